"""What an importer is: a function from a file to rollouts, and a report of what it did not read, and why.

A format is a `Format` in a module of its own. Its `read` yields rollouts one at a time and keeps none of them, so
memory does not depend on the size of a file. It guesses nothing silently: a record that cannot be told is a `Skip` with
its reason; whatever is decided for many (how rollouts are grouped, where turns end) is a note of the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from turncredit.data.json_lines import Skip as Skip  # noqa: PLC0414
from turncredit.errors import UserError

#: A turn: `reward`, and what else the format knows of `COLUMNS` (turncredit.bridges.importers.table).
Turn = dict[str, Any]


@dataclass
class Rollout:
    """A rollout, or, with `part`, some turns of one whose other turns are elsewhere in the file.

    group_id, rollout_id   as in the table of turns; no rollout_id is used twice, in whichever group
    turns     in order; each has `turn` if the rollout is a part, and is otherwise numbered here
    where     file and line, for messages
    ended     whether the rollout came to its end; None if the format does not say
    columns   what is the same for all of its turns: `task_id`, `success`
    """

    group_id: str
    rollout_id: str
    turns: list[Turn]
    where: str
    ended: bool | None = True
    columns: Mapping[str, Any] = field(default_factory=dict)
    part: bool = False


@dataclass
class Report:
    """What was read and what was not. With `strict`, the first skip is an error."""

    strict: bool = False
    files: int = 0
    records: int = 0
    rollouts: int = 0
    turns: int = 0
    #: reason -> how often, and where first
    skipped: dict[str, tuple[int, str]] = field(default_factory=dict)
    #: what was decided for many rollouts -> for how many
    notes: dict[str, int] = field(default_factory=dict)
    #: whether there are rollouts whose turns are in several records
    rollouts_in_parts: bool = False
    #: ids of the rollouts that are left out, since a record with some of their turns was skipped
    incomplete_ids: set[str] = field(default_factory=set)
    #: how many of the skipped records may be part of a rollout, and do not tell of which
    unattributed_skips: int = 0
    #: keys of `--map` whose field some record has, and fields (the first thousand) of the records that lack one
    mapped: set[str] = field(default_factory=set)
    fields: dict[str, None] = field(default_factory=dict)

    def skip(self, where: str, reason: str, detail: str = "", *, unattributed: bool = False) -> None:
        """Count a record that is not imported. Raises UserError with `strict`.

        unattributed   it may be part of a rollout, and does not tell of which
        """
        if self.strict:
            raise UserError(f"{where}: {reason}{f' ({detail})' if detail else ''}; without --strict it is skipped")
        self.unattributed_skips += unattributed
        count, first = self.skipped.get(reason, (0, f"{where}{f': {detail}' if detail else ''}"))
        self.skipped[reason] = (count + 1, first)

    def note(self, text: str) -> None:
        """Count a rollout for which something was decided that the file does not say."""
        self.notes[text] = self.notes.get(text, 0) + 1

    def lines(self) -> list[str]:
        """The report as text."""
        count = f"{self.files} file{'' if self.files == 1 else 's'}, {self.records} records"
        lines = [f"read {count}: {self.rollouts} rollouts, {self.turns} turns"]
        lines += [f"note: {text} ({number})" for text, number in self.notes.items()]
        lines += [f"skipped {number}: {reason}; first at {first}" for reason, (number, first) in self.skipped.items()]
        return lines


class Part(NamedTuple):
    """A record with some turns of a rollout; without an id it does not tell of which."""

    rollout_id: str | None


@dataclass(frozen=True)
class Source:
    """A file to import: `label` is its name in ids, which no other file of the import has."""

    path: Path
    label: str


@dataclass(frozen=True)
class Format:
    """A format: how to know it, and how to read it.

    suffix   the ending of its files
    fits     whether a first record (of JSON lines or JSON), or the names of columns (Parquet), are of this format
    read     (source, report, mapping) -> rollouts; `mapping` is what `--map` says
    takes    the keys of `--map` that the format uses
    """

    name: str
    suffix: str
    fits: Callable[[Path, Mapping[str, Any]], bool]
    read: Callable[[Source, Report, Mapping[str, str]], Iterator[Rollout]]
    takes: tuple[str, ...] = ()


def id_of(value: Any) -> str | None:
    """An id as text; None for what is none: null, a list, an object."""
    return None if value is None or isinstance(value, dict | list) else str(value)


def finite(value: Any, what: str = "reward") -> float:
    """`value` as a float. Raises Skip for one that is missing, null, text, or not finite."""
    if value is None:
        raise Skip(f"{what} is missing or null")
    if not isinstance(value, int | float):
        raise Skip(f"{what} is not a number", repr(value)[:60])
    if not math.isfinite(value):
        raise Skip(f"{what} is not a finite number", str(value))
    return float(value)


def each(
    records: Iterator[tuple[str, Any]],
    report: Report,
    read: Callable[[str, Any], Iterator[Rollout]],
    part_of: Callable[[Any], Part | None] | None = None,
) -> Iterator[Rollout]:
    """The rollouts of all records; a record that `read` cannot read is a skip of the report.

    part_of   of which rollout a record is a part; None: it is a whole one, as all are by default

    A field of another type than the format's is found where it is used; the error then names the field or the type.
    """
    for where, record in records:
        report.records += 1
        try:
            yield from read(where, record)
        except (Skip, AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
            wrong = Skip("not as the format has it", f"{type(error).__name__}: {error}")
            skip = error if isinstance(error, Skip) else wrong
            part = part_of(record) if part_of else None
            report.skip(where, str(skip), skip.detail, unattributed=part == Part(None))
            if part and part.rollout_id is not None:
                report.incomplete_ids.add(part.rollout_id)


def outcome(turns: list[Turn], reward: float) -> None:
    """Give the rollout's reward to its last turn, and 0 to the others: the sum over the rollout is `reward`."""
    for turn in turns:
        turn["reward"] = 0.0
    turns[-1]["reward"] = reward
