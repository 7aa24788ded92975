"""Rewards from a second file (`--rewards`): a table of ids and numbers, or a benchmark's report of what it resolved."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv

from turncredit.bridges.importers.base import Report, Rollout, Skip, finite_or_none, outcome, truth
from turncredit.bridges.importers.containers import records
from turncredit.errors import UserError

#: a benchmark's report (SWE-bench): lists of task ids -> the reward of their rollouts
RESOLVED = {"resolved_ids": 1.0, "unresolved_ids": 0.0, "empty_patch_ids": 0.0, "error_ids": 0.0}
#: columns of a CSV file that are text, whatever they look like: `007` is another id than `7`
IDS = ("group_id", "rollout_id", "task_id", "instance_id", "trial")
Outcome = tuple[float | None, bool | None]


class Rewards:
    """Rewards by id: (group, rollout), rollout, or task. Raises UserError for an id with two different rewards."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._by_id: dict[tuple[str, ...], Outcome] = {}
        self._used: set[tuple[str, ...]] = set()
        #: the group of each rollout that was found by its own id alone
        self._group_of: dict[str, str] = {}
        #: whether the file has objects of ids and numbers, which do not say what the ids are of
        self._says_no_kind = self._ids_are_tasks = False
        for where, row in _rows(path):
            self._says_no_kind |= _is_object_of_ids(row)
            try:
                self._add(where, _outcomes(row))
            except Skip as skip:
                raise UserError(f"--rewards {where}: {skip}{f' ({skip.detail})' if skip.detail else ''}") from None
        if not self._by_id:
            raise UserError(
                f"--rewards {path}: no rewards in it; it needs rollout_id (or task_id) and reward in each record, or "
                "an object of ids and numbers"
            )

    def _add(self, where: str, outcomes: Mapping[tuple[str, ...], Outcome]) -> None:
        for one, given in outcomes.items():
            if self._by_id.setdefault(one, given) != given:
                raise UserError(
                    f"--rewards {where}: the {one[0]} {'/'.join(one[1:])!r} has another reward before; give one for "
                    "each rollout, by group_id and rollout_id"
                )

    def tell_ids(self, rollouts: Iterable[Rollout]) -> None:
        """Decide whether the ids in `{id: reward}` are task or rollout ids: tasks', if none is a rollout's."""
        self._ids_are_tasks = self._says_no_kind and not any(
            one in self._by_id for rollout in rollouts for one in _ids(rollout) if one[0] == "rollout"
        )

    def give(self, rollout: Rollout, report: Report) -> None:
        """Give a rollout its reward. `tell_ids` has seen all rollouts before.

        Raises UserError for records that are turns, and for a rollout id that is found in two groups.
        """
        if rollout.part:
            raise UserError(
                f"--rewards {self.path}: records of these files are turns, which hold their rewards; "
                "leave --rewards out"
            )
        found = next((one for one in self._ids_of(rollout) if one in self._by_id), None)
        if found is None:
            report.note(f"no reward for the rollout in {self.path}")
            return
        if found == ("rollout", rollout.rollout_id):
            group = self._group_of.setdefault(rollout.rollout_id, rollout.group_id)
            if group != rollout.group_id:
                raise UserError(
                    f"--rewards {self.path}: rollout {rollout.rollout_id!r} is in several groups ({group!r}, "
                    f"{rollout.group_id!r}); give group_id beside rollout_id, or write GROUP/ROLLOUT"
                )
        self._used.add(found)
        reward, success = self._by_id[found]
        outcome(rollout.turns, reward)
        if success is not None:
            rollout.columns = {**rollout.columns, "success": success}

    def _ids_of(self, rollout: Rollout) -> Iterator[tuple[str, ...]]:
        yield from _ids(rollout)
        task = rollout.columns.get("task_id")
        if self._ids_are_tasks and task is not None:
            yield "rollout", str(task)

    def check(self, report: Report) -> None:
        """Raises UserError where no id is that of a rollout; notes rewards of rollouts that are not there."""
        if not self._used:
            some = next(iter(self._by_id))
            raise UserError(
                f"--rewards {self.path}: none of its {len(self._by_id)} ids belongs to a rollout; the first is "
                f"{some[-1]!r}. `turncredit import --look` shows the ids of rollouts"
            )
        for _ in self._by_id.keys() - self._used:
            report.note(f"a reward in {self.path} is of no rollout here")


def _rows(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    if not path.is_file():
        raise UserError(f"--rewards {path}: no such file; check the path")
    if path.suffix in (".csv", ".tsv"):
        try:
            table = _csv(path)
        except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
            raise UserError(
                f"--rewards {path}: not a CSV table ({str(error).splitlines()[0][:100]}); give another file"
            ) from None
        yield from ((f"{path}:{number + 2}", _stripped(row)) for number, row in enumerate(table.to_pylist()))
        return
    report = Report(exact=True)
    yield from records(path, report)


def _csv(path: Path) -> pa.Table:
    """A CSV file whose separator is the comma, semicolon or tab that its header has most of. Ids are text."""
    with path.open(encoding="utf-8-sig", errors="replace") as file:
        header = next((line for line in file if line.strip()), "")
    separated = pyarrow.csv.ParseOptions(delimiter=max(",;\t", key=header.count))
    with pyarrow.csv.open_csv(path, parse_options=separated) as reader:
        ids = [name for name in reader.schema.names if name.strip() in IDS]
    typed = pyarrow.csv.ConvertOptions(column_types=dict.fromkeys(ids, pa.string()), strings_can_be_null=True)
    return pyarrow.csv.read_csv(path, parse_options=separated, convert_options=typed)


def _stripped(row: Mapping[str, Any]) -> dict[str, Any]:
    """The row without blanks around names and texts; a text of blanks alone is null."""
    return {name.strip(): (value.strip() or None) if isinstance(value, str) else value for name, value in row.items()}


def _ids(rollout: Rollout) -> Iterator[tuple[str, ...]]:
    """What a rollout may be called in a file of rewards, the most exact first."""
    group, name, task = rollout.group_id, rollout.rollout_id, rollout.columns.get("task_id")
    yield "rollout", group, name
    yield "rollout", f"{group}/{name}"  # as in the table, where ids are unique only within a group
    if task is not None:
        yield "rollout", f"{task}/{name}"
    yield "rollout", name
    if task is not None:
        yield "task", str(task)


def _is_object_of_ids(row: Mapping[str, Any]) -> bool:
    """Whether a record is an object of ids and numbers."""
    named = {"resolved_ids", "reward", "score", "success", "resolved"} & set(row)
    return bool(row) and not named and all(isinstance(value, int | float) for value in row.values())


def _outcomes(row: Mapping[str, Any]) -> dict[tuple[str, ...], Outcome]:
    """The rewards of a record, by id."""
    if "resolved_ids" in row:
        return {
            ("task", str(one)): (reward, reward == 1.0)
            for name, reward in RESOLVED.items()
            for one in row.get(name) or []
        }
    if _is_object_of_ids(row):
        return {("rollout", str(name)): (finite_or_none(value), None) for name, value in row.items()}
    if not {"reward", "score", "success", "resolved"} & set(row):
        raise Skip("a record without 'reward'", ", ".join(list(row)[:6]))
    success = truth(row.get("success", row.get("resolved")), "success")
    reward = finite_or_none(row.get("reward", row.get("score")))
    reward = float(success) if reward is None and success is not None else reward
    task, trial = (row.get(name) for name in ("task_id", "trial"))
    if row.get("rollout_id") is not None:
        group = row.get("group_id")
        key = ("rollout", *(() if group is None else (str(group),)), str(row["rollout_id"]))
    elif task is not None and trial is not None:
        key = ("rollout", f"{task}/{trial}")
    else:
        task = task if task is not None else row.get("instance_id")
        if task is None:
            raise Skip("a record without 'rollout_id' or 'task_id'", ", ".join(list(row)[:6]))
        key = ("task", str(task))
    return {key: (reward, success)}
