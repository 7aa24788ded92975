"""What an importer is: a function from records to rollouts, and a report of what was not read, and why.

A format is a `Format` at the end of a module of its own. Its `read` yields rollouts one at a time and keeps none of
them, so memory does not depend on the size of a file. It guesses nothing silently: a record that cannot be read is a
`Skip` with its reason; whatever is decided for many (how rollouts are grouped, where turns end) is a note of the
report.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from turncredit.data.counts import number_of
from turncredit.data.json_lines import Skip as Skip  # noqa: PLC0414
from turncredit.errors import UserError

#: A turn: `reward` (None: the file has none), and what else the format knows of `COLUMNS`
#: (turncredit.bridges.importers.table). Keys that begin with `_` are not written.
Turn = dict[str, Any]
#: Where a record is (`file:line`), and the record.
Record = tuple[str, dict[str, Any]]
#: What an observation is made of: the messages since the turn before; these after the calls that they answer; these
#: after a hash of all that happened before; and `auto`: `history` once a tool has been called, `messages` before.
Observation = Literal["auto", "messages", "calls", "history"]

NO_REWARD = "no reward, so no method can credit the rollout (give --rewards FILE or --map reward=FIELD)"
BY_PROMPT = "no group in the file: rollouts that begin with the same messages are a group"
NO_PROMPT = "no group in the file, and nothing before the policy's first message: the rollout is a group of its own"
BY_FILE = "no rollout id in the file: a rollout is named after its place in the file"


@dataclass
class Rollout:
    """A rollout, or, with `part`, some turns of one whose other turns are elsewhere in the file.

    group_id, rollout_id   as in the table of turns; an id is used once in a group
    turns     in order; each has `turn` if the rollout is a part, and is otherwise numbered here
    where     file and line, for messages
    ended     whether the rollout came to its end; None if the format does not say
    columns   what is the same for all of its turns: `task_id`, `success`
    record    the record that it was read from, which `--map` reads
    """

    group_id: str
    rollout_id: str
    turns: list[Turn]
    where: str
    ended: bool | None = True
    columns: Mapping[str, Any] = field(default_factory=dict)
    part: bool = False
    record: Mapping[str, Any] | None = None


@dataclass
class Report:
    """What was read and what was not. With `strict` (the option), or `exact`, the first skip or flaw is an error."""

    strict: bool = False
    exact: bool = False
    files: int = 0
    records: int = 0
    rollouts: int = 0
    turns: int = 0
    #: how many groups were written, and how many of them have one rollout
    groups: int = 0
    lone_groups: int = 0
    #: format -> how many rollouts
    formats: dict[str, int] = field(default_factory=dict)
    #: reason -> how often, and where first
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: what is wrong with something that was imported nevertheless -> how often, and where first
    flaws: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: what was decided for many rollouts -> for how many
    notes: dict[str, int] = field(default_factory=dict)
    #: what the table should not be used for without a look -> for how many
    warnings: dict[str, int] = field(default_factory=dict)
    #: whether there are rollouts whose turns are in several records
    rollouts_in_parts: bool = False
    #: (group or None, rollout id) of the rollouts that are left out, since a record with some of their turns was
    #: skipped; None stands for any group
    incomplete_ids: set[tuple[str | None, str]] = field(default_factory=set)
    #: number of skipped records that may be part of a rollout but do not name it
    unattributed_skips: int = 0
    #: keys of `--map` whose field some record has, and fields (the first thousand) of the records that lack one
    mapped: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)

    def skip(self, where: str, reason: str, detail: str = "", *, unattributed: bool = False) -> None:
        """Count a record that is not imported. Raises UserError with `strict` or `exact`.

        unattributed   it may be part of a rollout, and does not tell of which
        """
        self._count(self.skipped, where, reason, detail, "it is skipped")
        self.unattributed_skips += unattributed

    def flaw(self, where: str, reason: str, detail: str = "") -> None:
        """Count something wrong in a rollout that is imported. Raises UserError with `strict` or `exact`."""
        self._count(self.flaws, where, reason, detail, "the rollout is imported as it is")

    def _count(self, counts: dict[str, tuple[int, str]], where: str, reason: str, detail: str, otherwise: str) -> None:
        if self.strict or self.exact:
            leave_out = f"; without --strict {otherwise}" if self.strict else ""
            raise UserError(f"{where}: {reason}{f' ({detail})' if detail else ''}{leave_out}")
        count, first = counts.get(reason, (0, f"{where}{f': {detail}' if detail else ''}"))
        counts[reason] = (count + 1, first)

    def note(self, text: str) -> None:
        """Count a rollout for which something was decided that the file does not say."""
        self.notes[text] = self.notes.get(text, 0) + 1

    @property
    def skips(self) -> int:
        """How many records, or rollouts of a record, were skipped."""
        return sum(count for count, _ in self.skipped.values())

    def lines(self) -> list[str]:
        """The report as text."""
        read = f"{number_of(self.files, 'file')}, {number_of(self.records, 'record')}"
        lines = [f"read {read}: {number_of(self.rollouts, 'rollout')}, {number_of(self.turns, 'turn')}"]
        if len(self.formats) > 1:
            lines.append(f"formats: {', '.join(f'{name} {number}' for name, number in self.formats.items())}")
        lines += [f"note: {text} ({number_of(number, 'rollout')})" for text, number in self.notes.items()]
        lines += [f"warning: {text} ({number_of(number, 'time')})" for text, number in self.warnings.items()]
        lines += [f"flaw {number}: {reason}; first at {first}" for reason, (number, first) in self.flaws.items()]
        lines += [f"skipped {number}: {reason}; first at {first}" for reason, (number, first) in self.skipped.items()]
        return lines


class Part(NamedTuple):
    """A record with some turns of a rollout. Id and group are None where the record does not name them."""

    rollout_id: str | None
    group_id: str | None = None


@dataclass(frozen=True)
class Source:
    """A file to import.

    path    where it is read from: of a pipe and the standard input a copy
    label   its name in ids, which no other file of the import has
    name    what the user calls it, in messages and in the column `source`
    """

    path: Path
    label: str
    name: str


@dataclass(frozen=True)
class Options:
    """What the user decided.

    mapping       KEY -> FIELD of `--map`
    observation   what an observation is made of
    action        where the action is within a response; None: where all responses agree, it is found
    template      the chat template that the responses of a dump of verl are marked with; None: told by its markers
    reward_once   the same reward on every turn of a rollout is the rollout's, and counts once
    allow_skips   a table is written even if more was skipped than read
    join          records are single calls of a model: the field that the calls of a rollout share
    """

    mapping: Mapping[str, str] = field(default_factory=dict)
    observation: Observation = "auto"
    action: re.Pattern[str] | None = None
    template: str | None = None
    reward_once: bool = False
    allow_skips: bool = False
    join: str | None = None


@dataclass(frozen=True)
class Context:
    """What a format reads records with."""

    source: Source
    report: Report
    options: Options = field(default_factory=Options)


@dataclass(frozen=True, kw_only=True)
class About:
    """What a user is told of a format: its files, what its table takes from them, and what it was checked against.

    group     which rollouts are compared
    turns     what a turn is
    reward    where a rollout's reward comes from; it is on the last turn unless the file has rewards of turns
    checked   the files, or the code, that this was checked against
    """

    files: str
    group: str
    turns: str
    reward: str
    checked: str


@dataclass(frozen=True)
class Format:
    """A format: how to know it, and how to read it.

    matches   whether a record is of this format
    read      (records, context) -> rollouts
    about     what `turncredit import --formats` prints; None: no format that a user can name
    takes     the keys of `--map` that the format uses itself; `OVERRIDES` are taken for every format
    """

    name: str
    matches: Callable[[Mapping[str, Any]], bool]
    read: Callable[[Iterable[Record], Context], Iterator[Rollout]]
    about: About | None = None
    takes: tuple[str, ...] = ()


def per_record(one: Callable[[str, dict[str, Any], Context], Iterator[Rollout]]) -> Any:
    """The `read` of a format in which every record stands for itself: `one(where, record, context)`."""

    def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
        yield from each(records, context.report, lambda where, record: one(where, record, context))

    return read


def id_of(value: Any) -> str | None:
    """An id as text; None for null, a list or an object."""
    return None if value is None or isinstance(value, dict | list) else str(value)


def needed_id(value: Any, name: str) -> str:
    """An id as text. Raises Skip for null, a list or an object."""
    text = id_of(value)
    if text is None:
        raise Skip(f"'{name}' is missing or null, or no id")
    return text


def finite(value: Any, what: str = "reward") -> float:
    """`value` as a float. Raises Skip for one that is missing, null, text that is no number, or not finite."""
    if value is None:
        raise Skip(f"{what} is missing or null")
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise Skip(f"{what} is not a number", repr(value)[:60]) from None
    if not isinstance(value, int | float):
        raise Skip(f"{what} is not a number", repr(value)[:60])
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise Skip(f"{what} is not a finite number", str(value)[:60])
    return number


def finite_or_none(value: Any, what: str = "reward") -> float | None:
    """`value` as a float; None where there is none. Raises Skip for what is not a finite number."""
    return None if value is None else finite(value, what)


def truth(value: Any, name: str) -> bool | None:
    """True or false, which may be written as 0 and 1; None for null. Raises Skip for anything else."""
    if value is None or isinstance(value, bool):
        return value
    known = {"0": False, "0.0": False, "false": False, "1": True, "1.0": True, "true": True}
    word = str(value).lower()
    if isinstance(value, int | float | str) and word in known:
        return known[word]
    raise Skip(f"{name} is neither true nor false", repr(value)[:60])


def dict_of(value: Any, name: str) -> dict[str, Any]:
    """An object; an empty one for null. Raises Skip for anything else."""
    if value is not None and not isinstance(value, dict):
        raise Skip(f"'{name}' is not an object", type(value).__name__)
    return value or {}


def list_of(value: Any, name: str) -> list[Any]:
    """A list; an empty one for null. Raises Skip for anything else."""
    if value is not None and not isinstance(value, list):
        raise Skip(f"'{name}' is not a list", type(value).__name__)
    return value or []


def objects_of(value: Any, name: str) -> list[dict[str, Any]]:
    """A list of objects; an empty one for null. Raises Skip for anything else."""
    items = list_of(value, name)
    if not all(isinstance(item, dict) for item in items):
        raise Skip(f"'{name}' has an item that is not an object")
    return items


def short_hash(value: Any) -> str:
    """16 hexadecimal digits of a text's SHA-256, or of a value's JSON."""
    text = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def group_of(prompt: str, rollout: str, report: Report) -> str:
    """The group of rollouts that begin with the same text, where a file names none.

    A rollout that begins with the policy's own message is a group of its own: nothing tells which others have its task.
    """
    if prompt.strip():
        report.note(BY_PROMPT)
        return short_hash(prompt)
    report.note(NO_PROMPT)
    return rollout


def each(
    records: Iterable[tuple[str, Any]],
    report: Report,
    read: Callable[[str, Any], Iterator[Rollout]],
    part_of: Callable[[Any], Part | None] | None = None,
) -> Iterator[Rollout]:
    """The rollouts of all records; a record that `read` cannot read is a skip of the report.

    part_of   of which rollout a record is a part; None: it is a whole one, as all are by default

    A field of another type than the format's is found where it is used; the reason then names the field.
    """
    for where, record in records:
        report.records += 1
        try:
            for rollout in read(where, record):
                if rollout.record is None and isinstance(record, dict):
                    rollout.record = record
                yield rollout
        except (Skip, AttributeError, IndexError, KeyError, TypeError, ValueError, RecursionError) as error:
            skip = error if isinstance(error, Skip) else _wrong(error)
            part = part_of(record) if part_of else None
            report.skip(where, str(skip), skip.detail, unattributed=part == Part(None))
            if part and part.rollout_id is not None:
                report.incomplete_ids.add((part.group_id, part.rollout_id))


class Together:
    """Rollouts whose records stand together in a file: one that begins again is left out, with what was read of it."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._begun: set[str] = set()
        self._apart: set[str] = set()

    def begin(self, rollout_id: str) -> None:
        """Begin a rollout. Raises Skip, with the reason, where it was begun before."""
        if rollout_id in self._begun:
            self._apart.add(rollout_id)
            raise Skip(self._reason, rollout_id)
        self._begun.add(rollout_id)

    def part(self, rollout_id: str | None) -> Part | None:
        """The part that records of this rollout are, where it began again; None: they are the whole (`each`)."""
        return Part(rollout_id) if rollout_id in self._apart else None


#: what a value of JSON is called, by its type in Python
KINDS = {"list": "a list", "dict": "an object", "str": "text", "int": "a number", "float": "a number"} | {
    "bool": "true or false",
    "NoneType": "null",
}


def _wrong(error: Exception) -> Skip:
    """What is wrong with a record, in words, from the error that reading it raised."""
    if isinstance(error, KeyError) and error.args:
        return Skip(f"a field is missing: '{error.args[0]}'")
    if isinstance(error, RecursionError):
        return Skip("a record that is nested too deeply")
    found = re.search("'(\\w+)' object", str(error)) if isinstance(error, AttributeError | TypeError) else None
    detail = str(error)[:80] if isinstance(error, ValueError) else KINDS.get(found[1], "") if found else ""
    return Skip("a field of another type than the format's", detail)


def outcome(turns: list[Turn], reward: float | None) -> None:
    """Give the rollout's reward to its last turn, and 0 to the others: the sum over the rollout is `reward`.

    Without a reward, that of every turn is null.
    """
    for turn in turns:
        turn["reward"] = None if reward is None else 0.0
    turns[-1]["reward"] = reward
