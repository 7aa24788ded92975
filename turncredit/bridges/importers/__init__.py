"""Other projects' rollouts as a table of turns (`turncredit import`), one module for each format."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields, replace
from itertools import groupby
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from turncredit.bridges.importers import (
    agent_lightning,
    art,
    atif,
    atropos,
    calls,
    exported,
    inspect_ai,
    jsonl,
    looking,
    mini_swe_agent,
    nemo_gym,
    openenv,
    openhands,
    rllm,
    swe_agent,
    table,
    tau2,
    tau_bench,
    transcript,
    trl,
    verifiers,
    verifiers_v0,
    verl,
    verl_agent,
    who_and_when,
)
from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Options,
    Record,
    Report,
    Rollout,
    Skip,
    Source,
    finite_or_none,
    id_of,
    outcome,
    truth,
)
from turncredit.bridges.importers.containers import ENDINGS, records
from turncredit.bridges.importers.rewards import Rewards
from turncredit.bridges.importers.templates import TEMPLATES
from turncredit.bridges.importers.unknown import UNKNOWN, why_not
from turncredit.data import provenance
from turncredit.errors import UserError, nearest

#: In the order in which a record is matched: the first format that matches is the record's.
FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT
    for module in (
        verifiers,
        verl_agent,
        verl,
        art,
        rllm,
        openenv,
        trl,
        atif,
        inspect_ai,
        who_and_when,
        openhands,
        swe_agent,
        mini_swe_agent,
        tau_bench,
        tau2,
        atropos,
        nemo_gym,
        agent_lightning,
        verifiers_v0,
        transcript,
        jsonl,
    )
}
#: What is decided for a user who decides nothing.
DEFAULTS = Options()
#: Keys of `--map` that every format takes: fields of a rollout's record.
OVERRIDES = ("group_id", "rollout_id", "task_id", "goal", "reward", "success")

MAYBE_SHORTENED = (
    "a skipped line does not tell its rollout: if it was the last turn of one, that is imported without it"
)


def told(name: str) -> list[str]:
    """What a user is told of a format: its name, and a line for each field of its `About`."""
    return [name, *(f"  {one.name:<8} {getattr(FORMATS[name].about, one.name)}" for one in fields(About))]


def run(
    paths: Sequence[Path],
    out: Path,
    name: str | None = None,
    options: Options = DEFAULTS,
    *,
    strict: bool = False,
    rewards: Path | None = None,
) -> Report:
    """Import files, and folders' files, into the table `out`. Returns what was read and skipped.

    paths     files, folders, and `-` for the standard input
    name      the format; None: each record's own
    options   what the user decided, the mapping of fields among it
    strict    the first skip or flaw is an error
    rewards   a second file, with rewards

    Raises UserError for an unknown format, a mapped field that no record has, where nothing was read, and where more
    was skipped than read.
    """
    _check(name, options)
    given = Rewards(rewards) if rewards is not None else None
    with _files(paths) as files:
        report = Report(strict=strict, files=len(files))
        config = {"from": name, "map": dict(options.mapping), **_chosen(options)}
        inputs = {file.label: file.path for file in files} | ({} if rewards is None else {"--rewards": rewards})
        made_by = provenance.record("import", config=config, inputs=inputs)
        table.write(_rollouts(files, name, report, options, given), out, report, made_by, options)
    return report


def _chosen(options: Options) -> dict[str, Any]:
    """The decisions that differ from the defaults, for the record."""
    chosen = {one.name: getattr(options, one.name) for one in fields(options) if one.name != "mapping"}
    differ = {name: value for name, value in chosen.items() if value != getattr(DEFAULTS, name)}
    return {name: value.pattern if isinstance(value, re.Pattern) else value for name, value in differ.items()}


def _check(name: str | None, options: Options) -> None:
    """Raises UserError for an unknown format or template, and for keys of `--map` that the format has no use for."""
    if name is not None and name not in FORMATS:
        raise UserError(f"--from {name}: unknown format{nearest(name, FORMATS)}; choose one of {', '.join(FORMATS)}")
    if options.template is not None and options.template not in TEMPLATES:
        known = f"{nearest(options.template, TEMPLATES)}; choose one of {', '.join(TEMPLATES)}"
        raise UserError(f"--template {options.template}: unknown template{known}")
    if options.join is not None and name not in (None, jsonl.FORMAT.name):
        raise UserError(f"--join reads calls of a model as {jsonl.FORMAT.name}; remove --from {name}")
    takes = jsonl.KEYS if name is None else tuple(dict.fromkeys((*FORMATS[name].takes, *OVERRIDES)))
    if options.join is not None:
        takes = (*takes, "response")
    for key in options.mapping:
        if key not in takes:
            what = name or "import"
            raise UserError(
                f"--map {key}: {what} has no such key{nearest(key, takes)}; choose one of {', '.join(takes)}"
            )


def _rollouts(
    files: Sequence[Source], name: str | None, report: Report, options: Options, rewards: Rewards | None
) -> Iterator[Rollout]:
    number = 0
    if rewards is not None:
        rewards.tell_ids(_read(files, name, Report(), options))
    for rollout in _read(files, name, report, options):
        if rewards is not None:
            rewards.give(rollout, report)
        number += 1
        yield rollout
    _check_mapped(report, options.mapping)
    if not number:
        raise UserError(_nothing(files, report))
    if rewards is not None:
        rewards.check(report)
    if report.rollouts_in_parts and report.unattributed_skips:
        report.notes[MAYBE_SHORTENED] = report.unattributed_skips


def _nothing(files: Sequence[Source], report: Report) -> str:
    where = files[0].name if len(files) == 1 else f"{len(files)} files"
    if not report.skipped:
        return f"{where}: no rollouts in it: {'it is empty' if len(files) == 1 else 'they are empty'}"
    reasons = "; ".join(
        f"{reason}{f' ({number} times; first at {first})' if number > 1 or len(files) > 1 else f' ({first})'}"
        for reason, (number, first) in report.skipped.items()
    )
    return f"{where}: no rollouts in it: {reasons}"


def _check_mapped(report: Report, mapping: Mapping[str, str]) -> None:
    for key, name in mapping.items():
        if report.fields and key not in report.mapped:
            raise UserError(
                f"--map {key}={name}: no record has '{name}'{nearest(name, report.fields)}; "
                f"choose one of {', '.join(list(report.fields)[:8])}"
            )


def _read(files: Sequence[Source], name: str | None, report: Report, options: Options) -> Iterator[Rollout]:
    """The rollouts of files, each record by its own format, or all by the one called `name`."""
    if options.join is not None:
        yield from _read_calls(files, options.join, report, options)
        return
    for file in files:
        context = Context(file, report, options)
        chosen = chooser(FORMATS[name] if name else None, options.mapping)
        for format_, run_ in groupby(records(file.path, report, file.name), key=lambda record: chosen(record[1])):
            ours = format_.name == jsonl.FORMAT.name
            for rollout in _by_format(format_, calls.noticed(run_, report) if ours else run_, context):
                if ours or _overridden(rollout, format_, context):
                    yield rollout


def _read_calls(files: Sequence[Source], join: str, report: Report, options: Options) -> Iterator[Rollout]:
    """The rollouts of calls. The calls of one may be in several files, since logs are rotated."""
    single = (record for file in files for record in records(file.path, report, file.name))
    found = calls.joined(single, join, options.mapping, report)
    mapping = {key: value for key, value in options.mapping.items() if key not in ("messages", "response")}
    yield from _by_format(jsonl.FORMAT, found, Context(files[0], report, replace(options, mapping=mapping)))


def _by_format(format_: Format, found: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """What a format makes of records, with the columns of an earlier export."""
    for rollout in format_.read(found, context):
        exported.restore(rollout, context.report)
        formats = context.report.formats
        formats[format_.name] = formats.get(format_.name, 0) + 1
        yield rollout


def chooser(forced: Format | None, mapping: Mapping[str, str]) -> Callable[[Mapping[str, Any]], Format]:
    """What tells the format of each record in turn; one that no format matches stays with the record before it."""
    if forced is None and {"messages", "turn"} & set(mapping):
        forced = jsonl.FORMAT
    current = UNKNOWN

    def choose(record: Mapping[str, Any]) -> Format:
        nonlocal current
        if forced is not None:
            return forced
        if not current.matches(record):
            current = next((one for one in FORMATS.values() if one.matches(record)), current)
        return current

    return choose


def _overridden(rollout: Rollout, format_: Format, context: Context) -> bool:
    """Whether `--map` could be applied to the rollout. If not, the report counts it as skipped."""
    try:
        _override(rollout, format_, context)
    except Skip as skip:
        context.report.skip(rollout.where, str(skip), skip.detail)
        if rollout.part:
            context.report.incomplete_ids.add((rollout.group_id, rollout.rollout_id))
        return False
    return True


def _override(rollout: Rollout, format_: Format, context: Context) -> None:
    """Apply `--map` to a rollout, in place of what the format found in its record. Raises Skip for unusable values."""
    mapping = {key: name for key, name in context.options.mapping.items() if key not in format_.takes}
    record = rollout.record
    if not mapping or record is None:
        return
    found = jsonl.Found(mapping, context.report)
    found.check(record)
    values = {key: value for key in mapping if (value := found.value(record, key)) is not None}
    rollout.group_id = id_of(values.get("group_id")) or rollout.group_id
    rollout.rollout_id = id_of(values.get("rollout_id")) or rollout.rollout_id
    texts: dict[str, Any] = {key: str(values[key]) for key in ("task_id", "goal") if key in values}
    success = {"success": truth(values["success"], "success")} if "success" in values else {}
    rollout.columns = {**rollout.columns, **texts, **success}
    if "reward" in values:
        outcome(rollout.turns, finite_or_none(values["reward"]))


@contextmanager
def _files(paths: Sequence[Path]) -> Iterator[list[Source]]:
    """The files to read. Input from a pipe is copied to a temporary file, which is removed after the block."""
    with TemporaryDirectory(prefix="turncredit-import-") as folder:
        kept = [_kept(path, Path(folder), number) for number, path in enumerate(paths)]
        names = {copy: _name(path) for copy, path in zip(kept, paths, strict=True) if copy != path}
        yield [replace(source, name=names.get(source.path, source.name)) for source in expand(kept)]


def _name(path: Path) -> str:
    """What a pipe or the standard input is called."""
    return "stdin" if str(path) == "-" else str(path)


def _kept(path: Path, folder: Path, number: int) -> Path:
    """The path; of a pipe or the standard input, a copy."""
    if str(path) == "-":
        return _spooled(sys.stdin.buffer, folder / ("stdin" if number == 0 else f"stdin{number}"))
    if path.exists() and not path.is_file() and not path.is_dir():
        with path.open("rb") as pipe:
            return _spooled(pipe, folder / f"pipe{number}")
    return path


def _spooled(stream: Any, path: Path) -> Path:
    with path.open("wb") as file:
        shutil.copyfileobj(stream, file)
    return path


def expand(paths: Sequence[Path]) -> list[Source]:
    """The files to read, in order of their numbers (`2.jsonl` before `10.jsonl`), each with a label of its own.

    A folder stands for the files below it with one of `ENDINGS`. A label is the name without the ending, with as many
    folders before it as are needed to tell it from the others.
    """
    file_paths: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder; check the path")
        if path.is_file():
            file_paths.append(path)
            continue
        below = [file for file in path.rglob("*") if file.suffix in ENDINGS and file.is_file()]
        if not below:
            raise UserError(
                f"{path}: no file that ends with {' or '.join(sorted(ENDINGS))} in this folder; "
                "give one that has such files"
            )
        file_paths += sorted(below, key=_natural)
    files = list(dict.fromkeys(path.resolve() for path in file_paths))
    parts = 1
    while len({_label(file, parts) for file in files}) < len(files) and parts < 50:
        parts += 1
    whole = len({_label(file, parts) for file in files}) < len(files)  # a.json beside a.jsonl
    given = {path.resolve(): path for path in reversed(file_paths)}
    labels = (str(Path(*file.parts[-parts:])) if whole else _label(file, parts) for file in files)
    return [Source(given[file], label, str(given[file])) for file, label in zip(files, labels, strict=True)]


def _label(path: Path, parts: int) -> str:
    stem = path.name
    while Path(stem).suffix in ENDINGS and Path(stem).stem:
        stem = Path(stem).stem
    return "/".join((*path.parts[:-1], stem)[-parts:])


def _natural(path: Path) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", str(path))]


def look(paths: Sequence[Path], name: str | None, options: Options, rewards: Path | None = None) -> list[str]:
    """What the first of the files holds, as lines: its structure, three turns, and the command to start from.

    The command has the paths and options that were given.
    """
    _check(name, options)
    with _files(paths) as files:
        report = Report(files=len(files))
        source = files[0]
        first = next(iter(records(source.path, Report())), None)
        format_ = UNKNOWN if first is None else chooser(FORMATS[name] if name else None, options.mapping)(first[1])
        guess = {} if first is None else looking.guess(first[1], format_, options.mapping)
        guessed = bool(guess) and format_ is UNKNOWN
        if guess:
            format_, options = FORMATS["jsonl"], replace(options, mapping={**options.mapping, **guess})
        rollouts = _read([source], name, report, options)
        command = ["turncredit", "import", *map(str, paths), *looking.given(name, options)]
        command += [] if rewards is None else ["--rewards", str(rewards)]
        context = Context(source, report, options)
        known = {"guessed": guessed, "rewarded": rewards is not None}
        lines = looking.look(first and first[1], format_, context, rollouts, command, **known)
        return lines if len(files) == 1 else [*lines, f"and {len(files) - 1} more files"]


def detect(path: Path) -> Format:
    """The format of a file's first record. Raises UserError where none matches it."""
    report = Report()
    first = next(iter(records(path, report)), None)
    if first is None:
        raise UserError(_nothing([Source(path, "", str(path))], report))
    found = chooser(None, {})(first[1])
    if found is UNKNOWN:
        raise UserError(f"{path}: {why_not(first[1])}")
    return found
