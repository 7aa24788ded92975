"""Rollouts -> a Parquet table of turns, written a row group at a time.

Memory holds one row group and, for each rollout, two numbers (so that no id is used twice) and, for formats with a
record for each turn, the turns seen and a hash of each. What is known only at the end is done by a second pass over the
table, row group by row group: rollouts that lack a turn are left out, ids that are unique only within a group are
qualified by it, turns that are counted from 1 are counted from 0, and a reward that is on the last turn alone is 0 on
the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.bridges.importers.actions import Finder
from turncredit.bridges.importers.base import NO_REWARD, Options, Report, Rollout, Turn
from turncredit.bridges.importers.messages import retold
from turncredit.bridges.importers.said import begins_a_thought
from turncredit.data import tables
from turncredit.data.files import new_file
from turncredit.errors import UserError

SCHEMA = tables.schema("imported")
TYPES = dict(zip(SCHEMA.names, SCHEMA.types, strict=True))
REQUIRED = ("group_id", "rollout_id", "turn", "reward", "done", "source")
COLUMNS = tuple(name for name in SCHEMA.names if name not in REQUIRED)
#: In the first pass: the columns that a convention of responses would give, if all of them keep it.
FOUND = {"action": "_found", "observation": "_found_observation"}
DRAFT = pa.schema([*SCHEMA, *(pa.field(name, pa.string()) for name in FOUND.values())])
#: A row group is written once its turns have this many characters and tokens.
SIZE = 4_000_000
#: A turn number as large as this means that the field holds something else.
MOST_TURNS = 1_000_000
#: Observations that are watched for different histories.
MOST_ANCHORS = 500_000

WHOLE_AND_PARTS = "a rollout that has a record of its own and records of turns"
NOT_A_TURN = "turn is not a number 0, 1, 2, ..."
QUALIFIED = "rollout ids are unique only within a group: they are written as GROUP/ROLLOUT"
FROM_ONE = "turns are counted from 1 in the file: they are written from 0"
COPY = "a turn stands twice with the same content: it counts once"
ON_LAST = "the reward is on the rollout's last turn alone: it is 0 on the others"
REPEATED = "every turn of a rollout has the same reward, and the return is their sum; --reward-once counts it once"
THOUGHTS = "a response begins with a thought (up to `</think>` or the like), which is no part of the action"
EMPTY = "a response without an action (it is empty, or a thought alone) is a turn whose action is empty"
ENDLESS = "a response begins a thought that does not end: all of the response is the action"
ANCHORS = (
    "equal observations of a group have different histories, and GiGPO and others treat them as one state: fine if the "
    "observation is the whole state, otherwise import with --observation history"
)


def write(rollouts: Iterable[Rollout], out: Path, report: Report, made_by: Mapping[str, Any], options: Options) -> None:
    """Write `rollouts` as an `imported` table. Raises UserError, and writes nothing, where there are none.

    Columns beside `REQUIRED` that no turn has a value for are left out. Duplicates, parts that do not make whole
    rollouts, and values of another type than their column's are skips of the report.
    """
    ledger = Ledger(report, options)
    with new_file(out) as part, TemporaryDirectory(dir=part.parent, prefix=f".{out.name}.") as folder:
        first = Path(folder) / "rows.parquet"
        empty = set(COLUMNS)
        quick = {"compression": "lz4", "use_dictionary": False, "write_statistics": False}
        with pq.ParquetWriter(first, DRAFT, **quick) as writer:
            for batch in _batches(ledger.checked(rollouts)):
                table = _table(batch, report, ledger)
                writer.write_table(table)
                empty -= {name for name in empty if _has_values(table.column(name))}
        changes = ledger.changes()
        columns = [name for name in SCHEMA.names if name not in empty]
        made_by = {**made_by, **_counts(report)}
        sizes, report.turns = _copy(first, part, columns, changes, made_by)
        report.rollouts, report.groups = sizes.total(), len(sizes)
        report.lone_groups = sum(size == 1 for size in sizes.values())
        if not report.turns:
            raise UserError(f"{out}: nothing to write: {'; '.join(report.lines())}")
        if report.skips > (report.turns if report.rollouts_in_parts else report.rollouts) and not options.allow_skips:
            raise UserError(
                f"{out}: more was skipped ({report.skips}) than read, so nothing is written: "
                f"{'; '.join(report.lines()[1:])}. With --allow-skips the rest is written"
            )


@dataclass
class Changes:
    """What the second pass does.

    left_out    (group or None for any, rollout) of rollouts that are not written
    qualify     whether rollout ids are qualified by their group
    shift       what is taken off turn numbers
    fill        rollouts whose null rewards are 0
    once        rollouts whose reward counts once -> their last turn
    found       whether what a convention found counts
    """

    left_out: set[tuple[str | None, str]]
    qualify: bool = False
    shift: int = 0
    fill: set[tuple[str, str]] = field(default_factory=set)
    once: dict[tuple[str, str], int] = field(default_factory=dict)
    found: bool = False


@dataclass
class Seen:
    """The turns of a rollout in parts: a bit for each, where it began, and its rewards."""

    where: str
    turns: int = 0
    hashes: dict[int, int] = field(default_factory=dict)
    rewarded: int = 0
    last_rewarded: int = -1
    rewards: set[float] = field(default_factory=set)


class Anchors:
    """Observations with their histories: `mixed` are those that stand after several."""

    def __init__(self) -> None:
        self.mixed: set[int] = set()
        self._history: dict[int, int] = {}

    def watch(self, group: str, turn: Turn) -> None:
        """Count an observation that stands after another history than an equal one before."""
        if "_history" not in turn or len(self._history) > MOST_ANCHORS:
            return
        anchor, history = hash((group, turn["observation"])), hash(turn["_history"])
        if self._history.setdefault(anchor, history) != history:
            self.mixed.add(anchor)


class Ledger:
    """The rollouts so far: which ids are taken, and which turns of a rollout in parts are there.

    A rollout without one of its parts is left out (`report.incomplete_ids`): its return would be another one.
    """

    def __init__(self, report: Report, options: Options) -> None:
        self.report, self.options = report, options
        self._ids: set[int] = set()
        self._pairs: set[int] = set()
        self._qualify = False
        self._parts: dict[tuple[str, str], Seen] = {}
        self._repeated = self._varied = 0
        self._finder = Finder(options.action, report)
        self._anchors, self._found_anchors = Anchors(), Anchors()

    def checked(self, rollouts: Iterable[Rollout]) -> Iterator[Rollout]:
        """The rollouts without duplicates, their turns numbered, their actions looked for."""
        for rollout in rollouts:
            if rollout.part and self._is_copy(rollout):
                self.report.note(COPY)
                continue
            reason = self._part(rollout) if rollout.part else self._new(rollout)
            if reason is None:
                self._find_actions(rollout)
                yield rollout
            else:
                self.drop(rollout, reason, f"group {rollout.group_id!r}, rollout {rollout.rollout_id!r}")

    def _find_actions(self, rollout: Rollout) -> None:
        """Find the actions within responses. Histories, and observations that show them, are those of the actions."""
        turns = rollout.turns
        for turn in turns:
            self._finder.find(turn)
        if self.options.action is not None:
            for turn, told in zip(turns, retold(turns, "action"), strict=True):
                turn.update(told)
        found = retold(turns, "_found") if any("_found" in turn for turn in turns) else turns
        for turn, told in zip(turns, found, strict=True):
            self._anchors.watch(rollout.group_id, turn)
            self._found_anchors.watch(rollout.group_id, told)
            if told.get("observation") != turn.get("observation"):
                turn["_found_observation"] = told["observation"]
        if any(turn.get("_thought") for turn in turns):
            self.report.note(THOUGHTS)
        if any(turn.get("_empty") for turn in turns):
            self.report.note(EMPTY)
        if any(turn.get("_says") and begins_a_thought(turn.get("action")) for turn in turns):
            self.report.note(ENDLESS)

    def drop(self, rollout: Rollout, reason: str, detail: str) -> None:
        """Skip a rollout that cannot be written, with the parts of it that are written already."""
        self.report.skip(rollout.where, reason, detail)
        if rollout.part or (rollout.group_id, rollout.rollout_id) in self._parts:
            self.report.incomplete_ids.add((rollout.group_id, rollout.rollout_id))

    def changes(self) -> Changes:
        """What is known now that all rollouts are read; rollouts that lack a turn or a reward are skips."""
        report = self.report
        shift = self._shift()
        self._skip_incomplete(shift)
        changes = Changes(report.incomplete_ids, self._qualify, shift, found=self._finder.convention is not None)
        self._check_rewards(changes, shift)
        if self._repeated and not self._varied and not self.options.reward_once:
            report.warnings[REPEATED] = self._repeated
        if self._qualify:
            report.notes[QUALIFIED] = len(self._pairs) + len(self._parts)
        if mixed := (self._found_anchors if changes.found else self._anchors).mixed:
            report.warnings[ANCHORS] = len(mixed)
        if self._finder.convention is not None:
            report.note(f"every response has its action {self._finder.convention}: that is the action")
        return changes

    def _shift(self) -> int:
        """1 if the turns of all rollouts are counted from 1."""
        if not self._parts or not all(seen.turns & 3 == 2 for seen in self._parts.values()):
            return 0
        self.report.notes[FROM_ONE] = len(self._parts)
        return 1

    def _skip_incomplete(self, shift: int) -> None:
        """Skip rollouts that lack a turn; one that is in two groups counts as two only if both are whole."""
        incomplete_ids = self.report.incomplete_ids
        groups: dict[str, list[str]] = {}
        for group, name in self._parts:
            groups.setdefault(name, []).append(group)
        for (group, name), seen in self._parts.items():
            turns = seen.turns >> shift
            if not {(group, name), (None, name)} & incomplete_ids and turns & (turns + 1):
                missing = next(turn for turn in range(MOST_TURNS) if not turns >> turn & 1) + shift
                detail = f"{group!r}, {name!r}: no turn {missing}"
                two = len(groups[name]) > 1
                reason = "a rollout in two groups" if two else "a rollout without one of its turns"
                self.report.skip(seen.where, reason, detail)
                incomplete_ids.add((None if two else group, name))
        left = {name for name, among in groups.items() if len(among) > 1 and (None, name) not in incomplete_ids}
        self._qualify |= bool(left)

    def _check_rewards(self, changes: Changes, shift: int) -> None:
        for key, seen in self._parts.items():
            if {key, (None, key[1])} & self.report.incomplete_ids:
                continue
            count, last = seen.turns.bit_count(), seen.turns.bit_length() - 1
            if not seen.rewarded:
                self.report.note(NO_REWARD)
            elif seen.rewarded < count:
                if seen.rewarded == 1 and seen.last_rewarded == last:
                    changes.fill.add(key)
                    self.report.note(ON_LAST)
                else:
                    self.report.skip(seen.where, "reward is missing or null", f"on a turn of {key[0]!r}, {key[1]!r}")
                    self.report.incomplete_ids.add(key)
            elif count > 1 and self._repeats(seen.rewards) and self.options.reward_once:
                changes.once[key] = last - shift

    def _repeats(self, rewards: set[float]) -> bool:
        """Whether all turns of a rollout have one reward that is not 0; counted for the warning."""
        repeats = len(rewards) == 1 and 0.0 not in rewards
        self._repeated += repeats
        self._varied += not repeats and rewards != {0.0}
        return repeats

    def _new(self, rollout: Rollout) -> str | None:
        key = (rollout.group_id, rollout.rollout_id)
        if key in self._parts:
            return WHOLE_AND_PARTS
        if hash(key) in self._pairs:
            return "a rollout id that was read before"
        self._pairs.add(hash(key))
        self._qualify |= hash(rollout.rollout_id) in self._ids
        self._ids.add(hash(rollout.rollout_id))
        if rollout.ended is False:
            self.report.note("the rollout has no end: its last turn is not done")
        rewards = [turn["reward"] for turn in rollout.turns]
        if rewards[-1] is None:
            self.report.note(NO_REWARD)
        elif len(rewards) > 1 and self._repeats(set(rewards)) and self.options.reward_once:
            for turn in rollout.turns[:-1]:
                turn["reward"] = 0.0
        for number, turn in enumerate(rollout.turns):
            turn["turn"] = number
        return None

    def _is_copy(self, rollout: Rollout) -> bool:
        """Whether all turns of a part were read before, with the same content.

        Trainers repeat turns where their number has to be a multiple of the GPUs' (verl-agent's `adjust_batch`).
        """
        seen = self._parts.get((rollout.group_id, rollout.rollout_id))
        hashes = {} if seen is None else seen.hashes
        return all(_number(turn) in hashes and hashes[_number(turn)] == _hash(turn, rollout) for turn in rollout.turns)

    def _part(self, rollout: Rollout) -> str | None:
        key = (rollout.group_id, rollout.rollout_id)
        if hash(key) in self._pairs:
            return WHOLE_AND_PARTS
        self.report.rollouts_in_parts = True
        seen = self._parts.setdefault(key, Seen(rollout.where))
        for turn in rollout.turns:
            number = turn["turn"]
            if not isinstance(number, int) or isinstance(number, bool) or not 0 <= number < MOST_TURNS:
                return NOT_A_TURN
            if seen.turns >> number & 1:
                return "a turn that was read before"
            seen.turns |= 1 << number
            seen.hashes[number] = _hash(turn, rollout)
            if turn.get("reward") is not None:
                seen.rewarded += 1
                seen.last_rewarded = max(seen.last_rewarded, number)
                if len(seen.rewards) < 2:
                    seen.rewards.add(turn["reward"])
        return None


def _number(turn: Turn) -> int:
    """The turn's number; -1 if it is no integer."""
    return turn["turn"] if turn["turn"].__class__ is int else -1


def _hash(turn: Turn, rollout: Rollout) -> int:
    """A hash of what a turn of the rollout says."""
    return hash(repr((sorted(turn.items()), sorted(rollout.columns.items()))))


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
    return sum(len(value) for value in turn.values() if value.__class__ in (str, list))


def _table(batch: Sequence[Rollout], report: Report, ledger: Ledger) -> pa.Table:
    """The batch as a table; if a value does not fit its column, rollout by rollout, without those it is in."""
    try:
        return _columns(batch)
    except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, TypeError, UnicodeEncodeError) as error:
        if len(batch) > 1:
            return pa.concat_tables([_table([rollout], report, ledger) for rollout in batch])
        ledger.drop(batch[0], "a value of another type than its column's", str(error).splitlines()[0][:100])
        return DRAFT.empty_table()


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
        for name, kind in zip(DRAFT.names, DRAFT.types, strict=True)
    ]
    return pa.table(columns, schema=DRAFT)


def _has_values(column: pa.ChunkedArray) -> bool:
    if column.null_count == len(column):
        return False
    return not pa.types.is_list(column.type) or bool(pc.max(pc.list_value_length(column)).as_py())


def _copy(
    first: Path, out: Path, columns: list[str], changes: Changes, made_by: Mapping[str, Any]
) -> tuple[Counter[int], int]:
    """Copy these columns of the table with its `changes`; returns the rollouts of each group and the number of turns.

    The groups are hashes of their ids.
    """
    turns, sizes = 0, Counter[int]()
    reads = [*columns, *(FOUND.values() if changes.found else [])]
    with pq.ParquetFile(first) as file:
        schema = pa.schema([SCHEMA.field(name) for name in columns], tables.stamp("imported", made_by))
        # Dictionaries of tokens and log-probabilities take most of the time and save no space.
        plain = [name for name in columns if not pa.types.is_list(TYPES[name])]
        with pq.ParquetWriter(out, schema, compression="zstd", use_dictionary=plain) as writer:
            for number in range(file.num_row_groups):
                table = _changed(file.read_row_group(number, columns=reads, use_threads=False), changes)
                turns += table.num_rows
                sizes.update(map(hash, table["group_id"].filter(pc.equal(table["turn"], 0)).to_pylist()))
                writer.write_table(table.select(columns).cast(schema).replace_schema_metadata(schema.metadata))
    return sizes, turns


def _changed(table: pa.Table, changes: Changes) -> pa.Table:
    if changes.left_out or changes.fill or changes.once:
        keys = list(zip(table["group_id"].to_pylist(), table["rollout_id"].to_pylist(), strict=True))
        stays = [key not in changes.left_out and (None, key[1]) not in changes.left_out for key in keys]
        rewards = table["reward"].to_pylist()
        for row, (key, turn) in enumerate(zip(keys, table["turn"].to_pylist(), strict=True)):
            if (key in changes.fill and rewards[row] is None) or (
                key in changes.once and turn - changes.shift != changes.once[key]
            ):
                rewards[row] = 0.0
        table = _with(table, "reward", pa.array(rewards, pa.float64())).filter(pa.array(stays, pa.bool_()))
    if changes.shift:
        table = _with(table, "turn", pc.subtract(table["turn"], pa.scalar(changes.shift, pa.int32())))
    if changes.qualify:
        table = _with(table, "rollout_id", pc.binary_join_element_wise(table["group_id"], table["rollout_id"], "/"))
    if changes.found:
        for name, found in FOUND.items():
            if name in table.column_names:
                table = _with(table, name, pc.coalesce(table[found], table[name]))
    return table


def _with(table: pa.Table, name: str, column: Any) -> pa.Table:
    return table.set_column(table.column_names.index(name), name, column)


def _counts(report: Report) -> dict[str, Any]:
    skipped = {reason: number for reason, (number, _) in report.skipped.items()}
    return {"formats": report.formats, "skipped": skipped, "notes": report.notes, "warnings": report.warnings}
