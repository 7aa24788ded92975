"""tau-bench: an array of runs: `task_id`, `reward`, `info`, `traj` (messages), `trial`.

Source: tau-bench, `tau_bench/run.py`, `tau_bench/types.py` (`EnvRunResult`). Trials of a task are a group; `trial` is
unique within it only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    finite_or_none,
    needed_id,
    outcome,
    per_record,
)
from turncredit.bridges.importers.messages import turns_of


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a run."""
    turns = turns_of(record["traj"], context, where)
    reward = finite_or_none(record.get("reward"))
    outcome(turns, reward)
    task, trial = (needed_id(record.get(name), name) for name in ("task_id", "trial"))
    columns: dict[str, Any] = {"task_id": task}
    if reward in (0.0, 1.0):
        columns["success"] = reward == 1.0
    yield Rollout(task, f"{task}/{trial}", turns, where, True, columns)


def _matches(record: Mapping[str, Any]) -> bool:
    return {"task_id", "trial", "traj"} <= set(record)


FORMAT = Format(
    "tau-bench",
    _matches,
    per_record(read),
    about=About(
        files="arrays of runs",
        group="task_id",
        turns="messages of the assistant",
        reward="reward",
        checked="a file of tau-bench",
    ),
)
