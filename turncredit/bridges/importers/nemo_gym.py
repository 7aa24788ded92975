"""NeMo Gym: a line for each rollout: `responses_create_params` (the task), `response` (items), `reward`.

Source: NeMo Gym, `nemo_gym/rollout_collection.py`. Rollouts of a task are a group, by its index or its input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    Context,
    Format,
    Rollout,
    Skip,
    dict_of,
    finite_or_none,
    list_of,
    outcome,
    per_record,
    short_hash,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.parts import read_message


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a line."""
    if "response" not in record:
        raise Skip("a task, and no rollout: it has no response")
    asked = dict_of(record["responses_create_params"], "responses_create_params").get("input")
    asked = [{"role": "user", "content": asked}] if isinstance(asked, str) else list_of(asked, "input")
    note = context.report.note
    before = [read_message(message, note) for message in asked]
    for said in before:
        said.ours = False
    answered = list_of(dict_of(record["response"], "response").get("output"), "output")
    turns = turns_from([*before, *(read_message(item, note) for item in answered)], context, where)
    outcome(turns, finite_or_none(record.get("reward")))
    index = next((record[name] for name in ("_ng_task_index", "task_index", "task_id") if name in record), None)
    group = short_hash(asked) if index is None else f"{context.source.label}/{index}"
    number = next((record[name] for name in ("_ng_rollout_index", "rollout_index") if name in record), None)
    name = place_of(where, context) if number is None else f"{group}/{number}"
    yield Rollout(group, name, turns, where, None, {"task_id": group})


def _matches(record: Mapping[str, Any]) -> bool:
    return "responses_create_params" in record


FORMAT = Format("nemo-gym", _matches, per_record(read))
