"""Rollouts -> a Parquet table of turns, written a row group at a time.

Memory holds one row group and, for each rollout, a number (so that no id is used twice) and, for formats with a line
for each turn, the turns seen. What is found wrong only at the end, such as a rollout that lacks a turn, is left out by
a second pass over the table, row group by row group.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.bridges.importers.base import Report, Rollout, Turn
from turncredit.data import tables
from turncredit.data.files import new_file
from turncredit.errors import UserError

SCHEMA = tables.schema("imported")
TYPES = dict(zip(SCHEMA.names, SCHEMA.types, strict=True))
REQUIRED = ("group_id", "rollout_id", "turn", "reward", "done", "source")
COLUMNS = tuple(name for name in SCHEMA.names if name not in REQUIRED)
#: A row group is written once its turns have this many characters and tokens.
SIZE = 4_000_000
#: why a rollout with both kinds of lines (jsonl) is left out
WHOLE_AND_PARTS = "a rollout that has a line of its own and lines of turns"
#: Turns beyond this are no turns, but a field that holds something else.
MOST_TURNS = 1_000_000


def write(rollouts: Iterable[Rollout], out: Path, report: Report, made_by: Mapping[str, Any]) -> None:
    """Write `rollouts` as an `imported` table. Raises UserError, and writes nothing, where there are none.

    Columns that no turn has a value for are left out. Duplicates, parts that do not make whole rollouts, and values of
    another type than their column's are skips of the report.
    """
    ledger = Ledger(report)
    with new_file(out) as part, TemporaryDirectory(dir=part.parent, prefix=f".{out.name}.") as folder:
        first = Path(folder) / "rows.parquet"
        empty = set(COLUMNS)
        quick = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
        with pq.ParquetWriter(first, SCHEMA, **quick) as writer:
            for batch in _batches(ledger.checked(rollouts)):
                table = _table(batch, report, ledger)
                writer.write_table(table)
                empty -= {name for name in empty if _has_values(table.column(name))}
        incomplete_ids = ledger.incomplete()
        columns = [name for name in SCHEMA.names if name not in empty]
        report.rollouts, report.turns = _copy(first, part, columns, incomplete_ids, {**made_by, **_counts(report)})
        if not report.turns:
            raise UserError(f"{out}: nothing to write: {'; '.join(report.lines())}")


class Ledger:
    """The rollouts so far: which ids are taken, and which turns of a rollout in parts are there.

    A rollout without one of its parts is left out (`report.incomplete_ids`): its return would be another one.
    """

    def __init__(self, report: Report) -> None:
        self.report = report
        self._whole: set[int] = set()
        #: rollout id -> its group, a bit for each turn, where it began
        self._parts: dict[str, list[Any]] = {}

    def checked(self, rollouts: Iterable[Rollout]) -> Iterator[Rollout]:
        """The rollouts without duplicates, their turns numbered."""
        for rollout in rollouts:
            reason = self._part(rollout) if rollout.part else self._new(rollout)
            if reason is None:
                if not rollout.part and rollout.ended is False:
                    self.report.note("the rollout has no end: its last turn is not done")
                yield rollout
            else:
                self.drop(rollout, reason, f"group {rollout.group_id!r}, rollout {rollout.rollout_id!r}")

    def drop(self, rollout: Rollout, reason: str, detail: str) -> None:
        """Skip a rollout that cannot be written, with the parts of it that are written already."""
        self.report.skip(rollout.where, reason, detail)
        if rollout.part or rollout.rollout_id in self._parts:
            self.report.incomplete_ids.add(rollout.rollout_id)

    def incomplete(self) -> set[str]:
        """The ids of rollouts of which a part is missing or was skipped; one that lacks a turn is skipped by name."""
        incomplete_ids = self.report.incomplete_ids
        for name, (group, turns, where) in self._parts.items():
            if name not in incomplete_ids and turns & (turns + 1):
                missing = next(turn for turn in range(MOST_TURNS) if not turns >> turn & 1)
                detail = f"{group!r}, {name!r}: no turn {missing}"
                self.report.skip(where, "a rollout without one of its turns", detail)
                incomplete_ids.add(name)
        return incomplete_ids

    def _new(self, rollout: Rollout) -> str | None:
        if rollout.rollout_id in self._parts:
            return WHOLE_AND_PARTS
        key = hash(rollout.rollout_id)
        if key in self._whole:
            return "a rollout id that was read before"
        self._whole.add(key)
        for number, turn in enumerate(rollout.turns):
            turn["turn"] = number
        return None

    def _part(self, rollout: Rollout) -> str | None:
        if hash(rollout.rollout_id) in self._whole:
            return WHOLE_AND_PARTS
        self.report.rollouts_in_parts = True
        record = self._parts.setdefault(rollout.rollout_id, [rollout.group_id, 0, rollout.where])
        if record[0] != rollout.group_id:
            return "a rollout in two groups"
        for turn in rollout.turns:
            number = turn["turn"]
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MOST_TURNS:
                return "turn is not a number 0, 1, 2, ..."
            if record[1] >> number & 1:
                return "a turn that was read before"
            record[1] |= 1 << number
        return None


def _batches(rollouts: Iterable[Rollout]) -> Iterator[list[Rollout]]:
    batch: list[Rollout] = []
    size = 0
    for rollout in rollouts:
        batch.append(rollout)
        size += 200 + sum(_size(turn) for turn in rollout.turns)
        if size > SIZE:
            yield batch
            batch, size = [], 0
    if batch:
        yield batch


def _size(turn: Turn) -> int:
    return sum([len(value) for value in turn.values() if value.__class__ in (str, list)])


def _table(batch: Sequence[Rollout], report: Report, ledger: Ledger) -> pa.Table:
    """The batch as a table; if a value does not fit its column, rollout by rollout, without those it is in."""
    try:
        return _columns(batch)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, UnicodeEncodeError) as error:
        if len(batch) > 1:
            return pa.concat_tables([_table([rollout], report, ledger) for rollout in batch])
        ledger.drop(batch[0], "a value of another type than its column's", str(error).splitlines()[0][:100])
        return SCHEMA.empty_table()


def _columns(batch: Sequence[Rollout]) -> pa.Table:
    turns: list[Turn] = []
    for rollout in batch:
        same = {"group_id": rollout.group_id, "rollout_id": rollout.rollout_id, "source": rollout.where}
        for turn in rollout.turns:
            turn.update(same)
            turn.update(rollout.columns)
        if not rollout.part and rollout.ended is not None:
            for turn in rollout.turns:
                turn["done"] = False
            rollout.turns[-1]["done"] = rollout.ended
        turns += rollout.turns
    present = set().union(*turns)
    columns = [
        pa.array([turn.get(name) for turn in turns], kind) if name in present else pa.nulls(len(turns), kind)
        for name, kind in TYPES.items()
    ]
    return pa.table(columns, schema=SCHEMA)


def _has_values(column: pa.ChunkedArray) -> bool:
    if column.null_count == len(column):
        return False
    return not pa.types.is_list(column.type) or bool(pc.max(pc.list_value_length(column)).as_py())


def _copy(
    first: Path, out: Path, columns: list[str], left_out: set[str], made_by: Mapping[str, Any]
) -> tuple[int, int]:
    """Copy these columns of the table without the rollouts `left_out`; returns the numbers of rollouts and turns."""
    turns = rollouts = 0
    with pq.ParquetFile(first) as file:
        schema = pa.schema([SCHEMA.field(name) for name in columns], tables.stamp("imported", made_by))
        # Dictionaries of tokens and log-probabilities take most of the time and save no space.
        plain = [name for name in columns if not pa.types.is_list(TYPES[name])]
        with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=plain) as writer:
            for number in range(file.num_row_groups):
                table = file.read_row_group(number, columns=columns, use_threads=False)
                if left_out:
                    table = table.filter(pc.invert(pc.is_in(table["rollout_id"], pa.array(sorted(left_out)))))
                turns += table.num_rows
                rollouts += pc.sum(pc.equal(table["turn"], 0)).as_py() or 0
                writer.write_table(table.replace_schema_metadata(schema.metadata))
    return rollouts, turns


def _counts(report: Report) -> dict[str, Any]:
    return {"skipped": {reason: number for reason, (number, _) in report.skipped.items()}, "notes": report.notes}
