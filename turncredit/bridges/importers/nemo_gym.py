"""NeMo Gym: a line for each rollout: `responses_create_params` (the task), `response` (items), `reward`.

Source: NeMo Gym, `nemo_gym/rollout_collection.py`, and the example rollouts of its environments. Rollouts of a task are
a group, by its index or its input.
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
    dict_of,
    finite_or_none,
    list_of,
    outcome,
    per_record,
    short_hash,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.said import Note, Said
from turncredit.bridges.importers.tokens import from_full_prompts

TOKENS = {
    "prompt_ids": "prompt_token_ids",
    "response_ids": "generation_token_ids",
    "response_logprobs": "generation_log_probs",
}


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
    if answered and isinstance(answered[0], list):  # transitions of Aviary, each with all items so far
        answered = answered[-1]
    turns = turns_from([*before, *(_said(item, note) for item in answered)], context, where)
    from_full_prompts(turns, context.report, where)
    outcome(turns, finite_or_none(record.get("reward")))
    index = next(
        (record[name] for name in ("_ng_task_index", "task_index", "task_idx", "task_id") if name in record), None
    )
    group = short_hash(asked) if index is None else f"{context.source.label}/{index}"
    number = next((record[name] for name in ("_ng_rollout_index", "rollout_index") if name in record), None)
    name = place_of(where, context) if number is None else f"{group}/{number}"
    yield Rollout(group, name, turns, where, None, {"task_id": group})


def _said(item: Any, note: Note) -> Said:
    """An item, with the tokens that the server of a policy in training keeps beside it."""
    said = read_message(item, note)
    said.columns = {column: list(item[name]) for column, name in TOKENS.items() if isinstance(item.get(name), list)}
    return said


def _matches(record: Mapping[str, Any]) -> bool:
    return "responses_create_params" in record


FORMAT = Format(
    "nemo-gym",
    _matches,
    per_record(read),
    about=About(
        files="responses_create_params and response",
        group="the task's index, else its input",
        turns="responses, of several items",
        reward="reward",
        checked="example rollouts of 40 of its environments",
    ),
)
