"""ATIF, harbor's trajectories (terminus-2, OpenHands, Claude Code and others in terminal tasks): one object a rollout.

`schema_version` (`ATIF-v1.0` and later), `session_id`, `agent`, `steps`: each with `source`, `message`,
`reasoning_content`, `tool_calls`, `observation`, `metrics` (`prompt_token_ids`, `completion_token_ids`, `logprobs`).
Source: harbor, `docs/rfcs/0001-trajectory-format.md`.

A step of the agent is a turn, unless it was copied from another trajectory (`is_copied_context`) or no model was called
(`llm_call_count` 0). Where the context was summarised, the next turn is a `context_reset`. Trajectories of sub-agents
are rollouts of their own. The format has neither groups nor rewards: rollouts that begin with the same messages are a
group, unless `turncredit export` wrote theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers import exported
from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Rollout,
    Skip,
    Turn,
    dict_of,
    group_of,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import Note, Said, call_text
from turncredit.bridges.importers.tokens import from_full_prompts

SUMMARISED = re.compile(
    r"context (?:summari[sz]|compact|condens)|(?:summari[sz]|compact|condens)\w* (?:the )?context", re.I
)
DEEPEST = 20  # sub-agents of sub-agents


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a trajectory, and those of the sub-agents that are in it."""
    yield from _rollouts(where, record, context, place_of(where, context), "", 0)


def _rollouts(
    where: str, record: dict[str, Any], context: Context, name: str, suffix: str, depth: int
) -> Iterator[Rollout]:
    if depth > DEEPEST:
        raise Skip(f"sub-agents nested more than {DEEPEST} deep")
    said = list(_said(objects_of(record.get("steps"), "steps"), context.report.note))
    if not said:
        raise Skip("a trajectory without steps")
    turns = turns_from(said, context, where)
    from_full_prompts(turns, context.report, where)
    outcome(turns, None)
    agent = str(dict_of(record.get("agent"), "agent").get("name") or "agent")
    if record.get("continued_trajectory_ref"):
        context.report.note("the rollout goes on in another file, which is imported as a rollout of its own")
    columns = {"agent": agent}
    group = exported.group_in(dict_of(record.get("extra"), "extra"))
    if group is None:
        group = group_of(turns[0]["observation"], name, context.report)
    ended = None if record.get("continued_trajectory_ref") else True
    yield Rollout(f"{group}{suffix}", name, turns, where, ended, columns, record=record)
    for number, inner in enumerate(objects_of(record.get("subagent_trajectories"), "subagent_trajectories")):
        context.report.note("a sub-agent's trajectory is a rollout of its own")
        inner_name = f"{name}/{inner.get('trajectory_id') or inner.get('session_id') or number}"
        inner_agent = str(dict_of(inner.get("agent"), "agent").get("name") or "sub-agent")
        try:
            yield from _rollouts(where, inner, context, inner_name, f"{suffix}/{inner_agent}", depth + 1)
        except Skip as skip:
            context.report.skip(where, str(skip), skip.detail)


def _said(steps: list[dict[str, Any]], note: Note) -> Iterator[Said]:
    summarised = False
    for step in steps:
        ours = step.get("source") == "agent" and not step.get("is_copied_context")
        if ours and step.get("llm_call_count") == 0:
            note("a step for which no model was called is no turn")
            ours = False
        said = Said(ours=ours)
        said.pieces += [
            ("reasoning", flat(step.get("reasoning_content"), note)),
            ("text", flat(step.get("message"), note)),
        ]
        for call in objects_of(step.get("tool_calls"), "tool_calls"):
            said.pieces.append(("call", call_text(call.get("function_name"), call.get("arguments"))))
            said.calls.append(str(call.get("tool_call_id")))
        if ours:
            said.columns = _tokens(step)
            if summarised:
                said.columns["context_reset"] = True
            summarised = False
        summarised |= not ours and _summarises(step)
        yield said
        results = _results(step, note)
        if results.pieces:
            yield results


def _tokens(step: Mapping[str, Any]) -> Turn:
    metrics = dict_of(step.get("metrics"), "metrics")
    names = {"prompt_ids": "prompt_token_ids", "response_ids": "completion_token_ids", "response_logprobs": "logprobs"}
    return {column: list(metrics[name]) for column, name in names.items() if isinstance(metrics.get(name), list)}


def _results(step: Mapping[str, Any], note: Note) -> Said:
    said = Said(ours=False)
    for result in objects_of(dict_of(step.get("observation"), "observation").get("results"), "results"):
        said.pieces.append(("result", flat(result.get("content"), note)))
        call = result.get("source_call_id")
        if call is not None or step.get("tool_calls"):
            said.answers.append(None if call is None else str(call))
        for reference in objects_of(result.get("subagent_trajectory_ref"), "subagent_trajectory_ref"):
            name = reference.get("trajectory_path") or reference.get("trajectory_id") or reference.get("session_id")
            said.pieces.append(("result", f"[sub-agent {name}]"))
    return said


def _summarises(step: Mapping[str, Any]) -> bool:
    extra = dict_of(step.get("extra"), "extra")
    message = step.get("message")
    said = isinstance(message, str) and len(message) < 500 and SUMMARISED.search(message) is not None
    return "context_management" in extra or (step.get("source") == "system" and said)


def _matches(record: Mapping[str, Any]) -> bool:
    if str(record.get("schema_version", "")).startswith("ATIF"):
        return True
    steps = record.get("steps")
    return isinstance(steps, list) and bool(steps) and isinstance(steps[0], dict) and "source" in steps[0]


FORMAT = Format(
    "atif",
    _matches,
    per_record(read),
    about=About(
        files="harbor's trajectories, v1.0 and later",
        group="the first messages",
        turns="steps of the agent; with tokens and log-probabilities",
        reward="none",
        checked="files of harbor, v1.5",
    ),
)
