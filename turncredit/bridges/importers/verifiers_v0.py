"""verifiers v0 and other pairs of prompt and completion: `prompt`, `completion`, `reward`, and often `example_id`.

Both are text or messages. Source: verifiers 0.1, `verifiers/utils/eval_utils.py`. Rollouts of an example are a group;
without one, those with the same prompt.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    BY_PROMPT,
    About,
    Context,
    Format,
    Rollout,
    Skip,
    id_of,
    per_record,
    short_hash,
)
from turncredit.bridges.importers.jsonl import Found, place_of, rewards
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.said import Note, Said


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a record."""
    note = context.report.note
    found = Found(context.options.mapping, context.report)
    found.check(record)
    before = _said(record["prompt"], note, ours=False)
    for said in before:
        said.ours = False
    turns = turns_from([*before, *_said(record["completion"], note, ours=True)], context, where)
    rewards(turns, found.value(record, "reward"))
    group = found.value(record, "group_id")
    if id_of(group) is None:
        note(BY_PROMPT)
        group = short_hash(record["prompt"])
    rollout = found.value(record, "rollout_id") if {"rollout_id", "trajectory_id"} & {*record, *found.names} else None
    name = place_of(where, context) if id_of(rollout) is None else str(rollout)
    yield Rollout(str(group), name, turns, where, None, {"task_id": str(group)})


def _said(value: Any, note: Note, *, ours: bool) -> list[Said]:
    if isinstance(value, str):
        return [Said(ours=ours, pieces=[("text", value)])]
    if not isinstance(value, list):
        raise Skip("prompt or completion is neither text nor messages", type(value).__name__)
    return [read_message(message, note) for message in value]


def _matches(record: Mapping[str, Any]) -> bool:
    return {"prompt", "completion"} <= set(record) and not {"step", "advantage"} <= set(record)


FORMAT = Format(
    "verifiers-v0",
    _matches,
    per_record(read),
    takes=("group_id", "rollout_id", "reward"),
    about=About(
        files="records with prompt and completion",
        group="example_id, else the prompt",
        turns="messages of the assistant",
        reward="reward",
        checked="code of verifiers 0.1",
    ),
)
