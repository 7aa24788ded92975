"""Other frameworks' rollouts as a table of turns (`turncredit import`), one module for each format."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from turncredit.bridges.importers import art, jsonl, openenv, rllm, table, trl, verifiers, verl, verl_agent
from turncredit.bridges.importers.base import Format, Report, Rollout, Skip, Source
from turncredit.data import provenance, tables
from turncredit.data.json_lines import json_file, json_lines
from turncredit.errors import UserError, nearest

FORMATS: dict[str, Format] = {
    module.FORMAT.name: module.FORMAT for module in (verifiers, verl, verl_agent, art, rllm, openenv, trl, jsonl)
}

MAYBE_SHORTENED = (
    "a skipped line does not tell its rollout: if it was the last turn of one, that is imported without it"
)


def run(
    paths: Sequence[Path], out: Path, name: str | None, mapping: Mapping[str, str], *, strict: bool = False
) -> tuple[Format, Report]:
    """Import files, and folders' files, into the table `out`. Returns the format and what was read and skipped.

    name      the format; None: told by the files
    mapping   what `--map` says, for formats that take it
    strict    the first skip is an error

    Raises UserError for an unknown format, files of which the format cannot be told, a mapped field that no record has,
    and where nothing was read.
    """
    if name is not None and name not in FORMATS:
        raise UserError(f"--from {name}: unknown format{nearest(name, FORMATS)}; there are {', '.join(FORMATS)}")
    files = expand(paths, FORMATS[name].suffix if name else None)
    format_ = FORMATS[name] if name else detect(files[0].path)
    for key in mapping:
        if key not in format_.takes:
            takes = f"it takes {', '.join(format_.takes)}" if format_.takes else "it takes no --map"
            raise UserError(f"--map {key}: {format_.name} has no such key{nearest(key, format_.takes)}; {takes}")
    report = Report(strict=strict, files=len(files))
    made_by = provenance.record(
        "import", config={"from": format_.name, "map": dict(mapping)}, inputs={file.label: file.path for file in files}
    )
    table.write(_rollouts(files, format_, report, mapping), out, report, made_by)
    return format_, report


def _rollouts(
    files: Sequence[Source], format_: Format, report: Report, mapping: Mapping[str, str]
) -> Iterator[Rollout]:
    for file in files:
        yield from format_.read(file, report, mapping)
    for key, name in mapping.items():
        if report.fields and key not in report.mapped:
            raise UserError(
                f"--map {key}={name}: no record has '{name}'{nearest(name, report.fields)}; "
                f"there are {', '.join(list(report.fields)[:8])}"
            )
    if report.rollouts_in_parts and report.unattributed_skips:
        report.notes[MAYBE_SHORTENED] = report.unattributed_skips


def expand(paths: Sequence[Path], suffix: str | None) -> list[Source]:
    """The files to read, in order of their numbers (`2.jsonl` before `10.jsonl`), each with a label of its own.

    A folder stands for the files below it that end with `suffix`. A label is the name without the ending, with as many
    folders before it as are needed to tell it from the others.
    """
    file_paths: list[Path] = []
    for path in paths:
        if not path.exists():
            raise UserError(f"{path}: no such file or folder; check the path")
        if path.is_file():
            file_paths.append(path)
            continue
        endings = {suffix} if suffix else {format_.suffix for format_ in FORMATS.values()}
        below = [file for file in path.rglob("*") if file.suffix in endings and file.is_file()]
        if not below:
            raise UserError(f"{path}: no file that ends with {' or '.join(sorted(endings))} in this folder")
        file_paths += sorted(below, key=_natural)
    files = list(dict.fromkeys(path.resolve() for path in file_paths))
    parts = 1
    while len({_label(file, parts) for file in files}) < len(files):
        parts += 1
    given = {path.resolve(): path for path in reversed(file_paths)}
    return [Source(given[file], _label(file, parts)) for file in files]


def _label(path: Path, parts: int) -> str:
    return "/".join((*path.parts[:-1], path.stem)[-parts:])


def _natural(path: Path) -> list[Any]:
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", str(path))]


def detect(path: Path) -> Format:
    """The format of a file, by its ending and its first record. Raises UserError where that does not tell it."""
    try:
        record = _first(path)
    except Skip as skip:
        raise UserError(f"{path}: {skip}; give its format with --from") from None
    fitting = [format_ for format_ in FORMATS.values() if format_.suffix == path.suffix and format_.fits(path, record)]
    if len(fitting) == 1:
        return fitting[0]
    if {"input", "output", "score"} <= set(record):
        raise UserError(
            f"{path}: lines of verl or of verl-agent, which are alike: is a line a rollout, give --from verl; is it a "
            "turn, --from verl-agent"
        )
    raise UserError(
        f"{path}: the format cannot be detected from {', '.join(list(record)[:6]) or 'what is in it'}; give --from "
        f"{'|'.join(FORMATS)}, or --from jsonl with --map KEY=FIELD"
    )


def _first(path: Path) -> Mapping[str, Any]:
    if path.suffix == ".parquet":
        tables.metadata(path)  # a file that is damaged is said to be
        return dict.fromkeys(pq.read_schema(path).names)
    if path.suffix == ".json":
        return json_file(path)
    ignored = Report()
    return next((record for _, record in json_lines(path, ignored)), {})
