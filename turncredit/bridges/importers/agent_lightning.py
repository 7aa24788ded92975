"""agent-lightning: a span a line: `rollout_id`, `attempt_id`, `sequence_id`, `name`, `attributes`.

A call of the model has `gen_ai.prompt.N.role`, `gen_ai.prompt.N.content` and `gen_ai.completion.0.*`, and where they
were kept `prompt_token_ids` and `response_token_ids`. A reward belongs to the call before it. Source: agent-lightning
0.3, `types/tracer.py`, `semconv.py`, `adapter/triplet.py`. Spans of a rollout stand together, in any order; it is one
attempt, and left out where they don't. The file has no groups: rollouts that begin with the same messages are one.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Record,
    Rollout,
    Skip,
    Together,
    dict_of,
    each,
    finite,
    finite_or_none,
    group_of,
    needed_id,
    outcome,
)
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.said import Said
from turncredit.bridges.importers.tokens import from_full_prompts

#: attributes that hold a span's reward, the newest first
REWARDS = ("agentlightning.reward.primary", "agentlightning.reward.0.value", "agentlightning.reward", "reward")

APART = "spans of a rollout that do not stand together: sort the lines by rollout_id and attempt_id"


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file."""
    report = context.report
    together = Together(APART)

    def spans(where: str, run: list[dict[str, Any]]) -> Iterator[Rollout]:
        rollout_id = _rollout_id(run[0])
        needed_id(run[0].get("rollout_id"), "rollout_id")
        together.begin(rollout_id)
        ordered = sorted(run, key=lambda span: finite(span.get("sequence_id") or 0, "sequence_id"))
        said: list[Said] = []
        rewards: list[list[float]] = []
        for span in ordered:
            attributes = dict_of(span.get("attributes"), "attributes")
            if _is_call(attributes):
                said += _call(attributes, context, first=not rewards)
                rewards.append([])
            reward = _reward(attributes)
            if reward is not None and rewards:
                rewards[-1].append(reward)
        if not rewards:
            raise Skip("no turn: no span is a call of the model")
        turns = turns_from(said, context, where)
        if len(turns) != len(rewards):
            raise Skip("a call of the model without a response")
        from_full_prompts(turns, report, where)
        outcome(turns, None)
        if any(rewards):
            for turn, values in zip(turns, rewards, strict=True):
                turn["reward"] = math.fsum(values)
        group = group_of(turns[0]["observation"], rollout_id, report)
        yield Rollout(group, rollout_id, turns, where, None, record=run[0])

    def rollouts() -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for _, run in groupby(records, lambda record: _key(record[1])):
            rows = list(run)
            report.records += len(rows) - 1
            yield rows[0][0], [span for _, span in rows]

    yield from each(rollouts(), report, spans, lambda run: together.part(_rollout_id(run[0])))


def _rollout_id(span: Mapping[str, Any]) -> str:
    return "/".join(str(part) for part in _key(span) if part is not None)


def _key(span: Mapping[str, Any]) -> tuple[Any, Any]:
    return span.get("rollout_id"), span.get("attempt_id")


def _is_call(attributes: Mapping[str, Any]) -> bool:
    return (
        any(str(name).startswith("gen_ai.completion.0.") for name in attributes) or "response_token_ids" in attributes
    )


def _call(attributes: Mapping[str, Any], context: Context, *, first: bool) -> list[Said]:
    """What the model was asked since its last response, and its response."""
    note = context.report.note
    asked = [read_message(message, note) for message in _messages(attributes, "gen_ai.prompt.")]
    begin = 0 if first else max((place + 1 for place, one in enumerate(asked) if one.ours), default=0)
    new = asked[begin:]
    for said in new:
        said.ours = False
        said.calls, said.answers = [], []
    answers = [read_message(message, note) for message in _messages(attributes, "gen_ai.completion.")][:1]
    response = answers[0] if answers else Said(ours=True)
    response.ours = True
    response.calls = []
    tokens = {"prompt_ids": "prompt_token_ids", "response_ids": "response_token_ids"}
    found = {column: _list(attributes[name]) for column, name in tokens.items() if name in attributes}
    response.columns = {column: ids for column, ids in found.items() if ids}
    return [*new, response]


def _list(value: Any) -> list[int]:
    if isinstance(value, str):
        value = json.loads(value)
    if not isinstance(value, list):
        raise Skip("token ids are not a list", type(value).__name__)
    return value


def _messages(attributes: Mapping[str, Any], prefix: str) -> list[dict[str, Any]]:
    """The messages that attributes hold as `PREFIX N.role`, `N.content`, `N.tool_calls.M.name`."""
    messages: dict[int, dict[str, Any]] = {}
    for name, value in attributes.items():
        if not str(name).startswith(prefix):
            continue
        number, _, field = str(name).removeprefix(prefix).partition(".")
        if not number.isdigit():
            continue
        message = messages.setdefault(int(number), {"role": "assistant" if "completion" in prefix else "user"})
        if field.startswith("tool_calls."):
            place, _, inner = field.removeprefix("tool_calls.").partition(".")
            message.setdefault("_calls", {}).setdefault(place, {})[inner] = value
        elif field in ("role", "content", "tool_call_id"):
            message[field] = value
    for message in messages.values():
        message["tool_calls"] = list(message.pop("_calls", {}).values())
    return [messages[number] for number in sorted(messages)]


def _reward(attributes: Mapping[str, Any]) -> float | None:
    for name in REWARDS:
        if attributes.get(name) is not None:
            return finite_or_none(attributes[name])
    output = attributes.get("agentops.task.output")
    if isinstance(output, str) and '"reward"' in output:
        value = json.loads(output)
        if isinstance(value, dict) and value.get("type") == "reward":
            return finite_or_none(value.get("value"))
    return None


def _matches(record: Mapping[str, Any]) -> bool:
    return {"rollout_id", "attributes"} <= set(record) and bool({"span_id", "sequence_id", "trace_id"} & set(record))


FORMAT = Format(
    "agent-lightning",
    _matches,
    read,
    about=About(
        files="spans",
        group="the first messages",
        turns="calls of the model",
        reward="reward spans, on the call before",
        checked="names of attributes in its code",
    ),
)
