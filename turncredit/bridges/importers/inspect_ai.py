"""Inspect: logs of evaluations, as `.eval` (a ZIP archive with a file for each sample) or JSON.

A sample has `id`, `epoch`, `messages`, `scores`, `attachments` (texts that messages refer to by hash) and, where its
messages are pooled, `events_data`. Source: inspect_ai, `log/_log.py`, `log/_condense.py`, `event/_pool.py`,
`scorer/_metric.py` (`value_to_float`). Samples of one id in a file are a group, epochs its rollouts.

The reward is the score of the only scorer: C 1, P 0.5, I and N 0, true, false, a number. Of several,
`--map reward=NAME` says which; without it the reward is null.
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
    finite,
    list_of,
    needed_id,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.messages import turns_of
from turncredit.errors import UserError

LETTERS = {"C": 1.0, "P": 0.5, "I": 0.0, "N": 0.0, "yes": 1.0, "true": 1.0, "no": 0.0, "false": 0.0}
REFERENCES = ("attachment://", "tc://")


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollouts of a log, or of one of its samples."""
    if "samples" not in record and "messages" not in record:
        raise Skip("a log of Inspect without samples: none had ended, or they were not logged")
    samples = objects_of(record["samples"], "samples") if "samples" in record else [record]
    if not samples:
        raise Skip("a log of Inspect without samples: none had ended, or they were not logged")
    for number, sample in enumerate(samples):
        try:
            yield _rollout(where if samples == [record] else f"{where}:samples[{number}]", sample, context)
        except Skip as skip:
            context.report.skip(where, str(skip), skip.detail)


def _rollout(where: str, sample: dict[str, Any], context: Context) -> Rollout:
    turns = turns_of(_messages(sample), context, where, _is_sampled)
    group = f"{context.source.label}/{needed_id(sample.get('id'), 'id')}"
    reward, success = _reward(dict_of(sample.get("scores") or _score(sample), "scores"), context)
    outcome(turns, reward)
    columns: dict[str, Any] = {"task_id": str(sample["id"])}
    if success is not None:
        columns["success"] = success
    rollout_id = f"{group}/{sample.get('epoch', 1)}"
    return Rollout(group, rollout_id, turns, where, not sample.get("error"), columns, record=sample)


def _is_sampled(message: dict[str, Any]) -> bool:
    """Whether the model wrote the message: the task may give examples of an assistant's."""
    return message.get("role") == "assistant" and message.get("source") != "input"


def _score(sample: Mapping[str, Any]) -> Any:
    """The score of logs before there were several."""
    return {"score": sample["score"]} if sample.get("score") is not None else {}


def _messages(sample: Mapping[str, Any]) -> list[Any]:
    """The messages with their attachments; from the last call of the model where the sample keeps none itself."""
    messages = list_of(sample.get("messages"), "messages")
    if not messages:
        messages = _pooled(sample)
    return [_resolved(message, dict_of(sample.get("attachments"), "attachments"), 0) for message in messages]


def _pooled(sample: Mapping[str, Any]) -> list[Any]:
    pool = list_of(dict_of(sample.get("events_data"), "events_data").get("messages"), "messages")
    for event in reversed(list_of(sample.get("events"), "events")):
        if not isinstance(event, dict) or event.get("event") != "model":
            continue
        asked = list(list_of(event.get("input"), "input"))
        for first, after in list_of(event.get("input_refs"), "input_refs"):
            asked += pool[first:after]
        choices = objects_of(dict_of(event.get("output"), "output").get("choices"), "choices")
        return asked + [choice["message"] for choice in choices[:1]]
    return []


def _resolved(value: Any, attachments: Mapping[str, Any], depth: int) -> Any:
    if isinstance(value, str):
        mark = next((mark for mark in REFERENCES if value.startswith(mark)), None)
        return attachments.get(value.removeprefix(mark), value) if mark else value
    if depth > 50:
        raise Skip("a message that is nested too deeply")
    if isinstance(value, dict):
        return {name: _resolved(inner, attachments, depth + 1) for name, inner in value.items()}
    return [_resolved(inner, attachments, depth + 1) for inner in value] if isinstance(value, list) else value


def _reward(scores: Mapping[str, Any], context: Context) -> tuple[float | None, bool | None]:
    """The reward, and success where the score says it: C and I, true and false."""
    name = context.options.mapping.get("reward")
    if name is not None:
        named = dict(_named(scores))
        if name not in named:
            context.report.fields.update(dict.fromkeys(named))
            return None, None
        context.report.mapped.add("reward")
        value = named[name]
    elif len(scores) > 1:
        context.report.note(f"several scorers, so the reward is null: name one with --map reward={'|'.join(scores)}")
        return None, None
    elif not scores:
        return None, None
    else:
        value = _value(next(iter(scores.values())))
    if isinstance(value, dict | list):
        choices = [one for one, inner in _named(scores) if not isinstance(inner, dict | list)]
        instead = f"name one with --map reward={'|'.join(choices)}" if choices else "give rewards with --rewards FILE"
        raise UserError(f"{context.source.name}: a score of several values; {instead}")
    if value is None:
        return None, None
    number = LETTERS.get(value, LETTERS.get(value.lower())) if isinstance(value, str) else None
    number = finite(value, "score") if number is None else number
    return number, bool(number) if isinstance(value, bool) or value in ("C", "I") else None


def _named(scores: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of all scores: `SCORER`, and `SCORER.NAME` of each one in a score of several."""
    for name, score in scores.items():
        value = _value(score)
        yield name, value
        if isinstance(value, dict):
            yield from ((f"{name}.{inner}", one) for inner, one in value.items())


def _value(score: Any) -> Any:
    return score.get("value") if isinstance(score, dict) else score


def _matches(record: Mapping[str, Any]) -> bool:
    if {"id", "epoch", "messages"} <= set(record) and not {"scores", "score", "target", "input"}.isdisjoint(record):
        return True
    if {"id", "epoch", "events"} <= set(record):
        return True
    return {"version", "status", "eval"} <= set(record)


FORMAT = Format(
    "inspect",
    _matches,
    per_record(read),
    takes=("reward",),
    about=About(
        files="logs of Inspect, .eval and JSON",
        group="the sample's id in a file",
        turns="messages of the assistant",
        reward="the only scorer's; of several --map reward=NAME",
        checked="files of inspect_ai, 2024-10 to 2025-12",
    ),
)
