"""ART: `trajectories/{split}/{step}.parquet`, a row for each rollout: `group_index`, `reward`, `metadata`, `messages`.

A message has `role`, `content`, `tool_calls` (JSON) and `trainable`: whether the policy wrote it, as a choice of the
model. Source: openpipe-art 0.5.18, `utils/trajectory_logging.py`. Groups are numbered within a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    Skip,
    finite_or_none,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.messages import turns_of


def read(where: str, row: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a row."""
    if row.get("group_index") is None:
        raise Skip("group_index is missing or null")
    messages = objects_of(row.get("messages"), "messages")
    if any(message.get("trainable") for message in messages):
        turns = turns_of(messages, context, where, lambda message: bool(message.get("trainable")))
    else:
        turns = turns_of(messages, context, where)
        context.report.note("no message is marked as trainable: every message of the assistant is a turn")
    outcome(turns, finite_or_none(row.get("reward")))
    group = f"{context.source.label}/{row['group_index']}"
    yield Rollout(group, f"{group}/{where.rpartition(':')[2]}", turns, where, None, {"task_id": group})


def _matches(record: Mapping[str, Any]) -> bool:
    return {"group_index", "messages"} <= set(record)


FORMAT = Format(
    "art",
    _matches,
    per_record(read),
    about=About(
        files="trajectories/{split}/{step}.parquet",
        group="group_index",
        turns="trainable messages",
        reward="reward",
        checked="code of openpipe-art 0.5.18",
    ),
)
