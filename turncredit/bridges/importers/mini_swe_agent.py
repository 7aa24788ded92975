"""mini-swe-agent: `.traj.json`, one object a rollout: `messages`, `info`, `trajectory_format`, lately `instance_id`.

Source: mini-swe-agent 1.17 and 2.0, `run/utils/save.py`, `agents/default.py`. A message of version 2 may be a whole
response of the Responses API (`object` is `response`), whose items are then the message. Rewards are elsewhere (the
benchmark's report): `--rewards FILE`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    dict_of,
    group_of,
    list_of,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.messages import turns_of


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a file."""
    turns = turns_of(list(_messages(objects_of(record.get("messages"), "messages"))), context, where)
    outcome(turns, None)
    info = dict_of(record.get("info"), "info")
    task = record.get("instance_id") or info.get("instance_id")
    columns = {}
    if task is None:
        task = group_of(turns[0]["observation"], place_of(where, context), context.report)
    else:
        columns["task_id"] = str(task)
    yield Rollout(str(task), place_of(where, context), turns, where, bool(info.get("exit_status")), columns)


def _messages(messages: list[dict[str, Any]]) -> Iterator[Any]:
    for message in messages:
        if message.get("object") == "response":
            yield from list_of(message.get("output"), "output")
        else:
            yield message


def _matches(record: Mapping[str, Any]) -> bool:
    if "messages" not in record:
        return False
    info = record.get("info")
    known = str(record.get("trajectory_format", "")).startswith("mini-swe-agent")
    return known or (isinstance(info, dict) and {"exit_status", "submission"} <= set(info))


FORMAT = Format(
    "mini-swe-agent",
    _matches,
    per_record(read),
    about=About(
        files=".traj.json",
        group="instance_id, else the first messages",
        turns="messages of the assistant",
        reward="none",
        checked="a file of version 1; code of version 2",
    ),
)
