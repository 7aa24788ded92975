"""OpenEnv: `results.jsonl` of `openenv collect`, a line for each rollout.

`episode_id`, `messages`, `reward`, `done`, `task`, `tool_trace`. Source: openenv-core 0.3.0, `core/harness/collect.py`.
Rollouts of the same task are a group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    Skip,
    finite_or_none,
    outcome,
    per_record,
    short_hash,
)
from turncredit.bridges.importers.messages import turns_of


def read(where: str, row: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a line."""
    task = row.get("task")
    if task is None:
        raise Skip("task is missing or null: the rollout belongs to no group")
    name = task if isinstance(task, str) else json.dumps(task, sort_keys=True)
    name = name if len(name) <= 64 else short_hash(name)
    turns = turns_of(row["messages"], context, where)
    outcome(turns, finite_or_none(row.get("reward")))
    rollout_id = f"{context.source.label}/{row['episode_id']}"
    yield Rollout(name, rollout_id, turns, where, bool(row.get("done")), {"task_id": name})


def _matches(record: Mapping[str, Any]) -> bool:
    return {"episode_id", "messages", "tool_trace"} <= set(record)


FORMAT = Format(
    "openenv",
    _matches,
    per_record(read),
    about=About(
        files="results.jsonl",
        group="task",
        turns="messages of the assistant",
        reward="reward",
        checked="code of openenv-core 0.3.0",
    ),
)
