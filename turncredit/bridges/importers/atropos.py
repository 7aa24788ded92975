"""Atropos: a group a record: `tokens`, `masks`, `scores` and, if they were kept, `messages`, a list for each rollout.

Source: Atropos, `atroposlib/type_definitions.py` (`ScoredDataGroup`): a mask is -100 where a token is not trained on.
Where fewer runs of a mask are trained than the policy wrote messages, the turns are the last of these, and what it
wrote before is context. Without messages, turns are the trained runs of tokens and have no text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    Skip,
    Turn,
    finite_or_none,
    list_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import turns_from

IGNORED = -100
Run = tuple[list[int], list[int]]


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollouts of a group."""
    scores = list_of(record["scores"], "scores")
    tokens, masks = (list_of(record.get(name), name) for name in ("tokens", "masks"))
    messages = list_of(record.get("messages"), "messages")
    logprobs = list_of(record.get("inference_logprobs"), "inference_logprobs")
    if not scores:
        raise Skip("a group without scores")
    group = place_of(where, context)
    for number, score in enumerate(scores):
        try:
            ids, mask, chosen = (list_of(_at(column, number), "tokens") for column in (tokens, masks, logprobs))
            runs = _runs(ids, mask, chosen)
            if said := _at(messages, number):
                trains_end = bool(mask) and mask[-1] != IGNORED
                turns = _turns(said, runs, context, f"{where}[{number}]", trains_end=trains_end)
            else:
                turns = [_columns(run, logprob) for run, logprob in runs]
            if not turns:
                raise Skip("no turn: the mask trains on no token")
            outcome(turns, finite_or_none(score, "score"))
        except Skip as skip:
            context.report.skip(where, str(skip), skip.detail)
            continue
        yield Rollout(group, f"{group}/{number}", turns, f"{where}[{number}]", None, {"task_id": group})


def _at(column: list[Any], number: int) -> Any:
    return column[number] if number < len(column) else None


def _runs(tokens: list[int], mask: list[int], logprobs: list[float]) -> list[tuple[Run, list[float]]]:
    """For each trained run of tokens: those before it since the last one, and itself; and its log-probabilities."""
    if len(tokens) != len(mask):
        raise Skip("tokens and mask of different lengths", f"{len(tokens)} and {len(mask)}")
    runs: list[tuple[Run, list[float]]] = []
    before: list[int] = []
    at = 0
    for ignored, part in groupby(mask, lambda value: value == IGNORED):
        end = at + len(list(part))
        if ignored:
            before = tokens[at:end]
        else:
            runs.append(((before, tokens[at:end]), logprobs[at:end] if len(logprobs) == len(tokens) else []))
            before = []
        at = end
    return runs


def _columns(run: Run, logprobs: list[float]) -> Turn:
    return {"prompt_ids": run[0], "response_ids": run[1], "response_logprobs": logprobs, "context_reset": False}


def _turns(
    messages: Any, runs: list[tuple[Run, list[float]]], context: Context, where: str, *, trains_end: bool
) -> list[Turn]:
    said = [read_message(message, context.report.note) for message in list_of(messages, "messages")]
    ours = [one for one in said if one.ours]
    if trains_end and not said[-1].ours:
        context.report.flaw(where, "the mask trains on a message that the policy did not write: tokens are left out")
        runs = []
    if len(runs) > len(ours):
        if runs:
            context.report.note("more trained runs of tokens than messages of the policy: tokens are left out")
    else:
        if runs and len(runs) < len(ours):
            context.report.note("the mask trains on the last messages of the policy alone: those before are no turns")
            for one in ours[: -len(runs)]:
                one.ours = False
        for one, (run, logprobs) in zip(ours[-len(runs) :] if runs else [], runs, strict=True):
            one.columns = _columns(run, logprobs)
    turns = turns_from(said, context, where)
    if runs and "prompt_ids" in turns[0]:
        turns[0]["context_reset"] = True
    return turns


def _matches(record: Mapping[str, Any]) -> bool:
    return {"tokens", "masks", "scores"} <= set(record)


FORMAT = Format(
    "atropos",
    _matches,
    per_record(read),
    about=About(
        files="groups with tokens, masks, scores",
        group="the record",
        turns="messages whose tokens are trained",
        reward="scores",
        checked="a file of Atropos",
    ),
)
