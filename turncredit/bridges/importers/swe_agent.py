"""SWE-agent and EnIGMA: `.traj`, one object a rollout: `trajectory` (steps), `history` (messages), `info`.

A step has `response`, `thought`, `action`, `observation`, and lately `query` or `messages`. Source: SWE-agent 0.4 and
1.1, `sweagent/agent/agents.py`. The first observation is what stands before the first response in the history,
demonstrations included. A file of several attempts (`attempts`) has a rollout for each. Rewards are elsewhere (the
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
    Skip,
    Turn,
    dict_of,
    group_of,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import NO_TURN, turns_from
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import Note, Said


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a file, or one for each attempt."""
    name = place_of(where, context)
    attempts = objects_of(record.get("attempts"), "attempts")
    if not attempts:
        yield _rollout(where, record, context, name, {})
    for number, attempt in enumerate(attempts):
        try:
            yield _rollout(where, attempt, context, f"{name}/{number}", record)
        except Skip as skip:
            context.report.skip(where, str(skip), skip.detail)


def _rollout(where: str, record: dict[str, Any], context: Context, name: str, whole: Mapping[str, Any]) -> Rollout:
    note = context.report.note
    history = objects_of(record.get("history"), "history")
    steps = objects_of(record.get("trajectory"), "trajectory")
    said = list(_steps(steps, history, note)) if steps else list(_history(history, note))
    if not any(one.ours for one in said):
        raise Skip(NO_TURN)
    turns = turns_from(said, context, where)
    outcome(turns, None)
    columns, task = {}, _task(record, whole)
    if task is None:
        task = group_of(turns[0]["observation"], name, context.report)
    else:
        columns["task_id"] = task
    ended = bool(dict_of(record.get("info"), "info").get("exit_status")) if "info" in record else None
    return Rollout(task, name, turns, where, ended, columns, record=record)


def _task(record: Mapping[str, Any], whole: Mapping[str, Any]) -> str | None:
    for one in (record, whole):
        config = one.get("replay_config")
        problem = dict_of(config if isinstance(config, dict) else None, "replay_config").get("problem_statement")
        if isinstance(problem, dict) and problem.get("id"):
            return str(problem["id"])
        if one.get("instance_id"):
            return str(one["instance_id"])
    return None


def _history(history: list[dict[str, Any]], note: Note) -> Iterator[Said]:
    """The messages of the history, for files that have no steps."""
    for message in history:
        said = read_message(message, note)
        if message.get("is_demo"):
            said.ours = False
        elif said.ours and message.get("action"):
            said.columns = {"action": str(message["action"]).strip()}
        yield said


def _steps(steps: list[dict[str, Any]], history: list[dict[str, Any]], note: Note) -> Iterator[Said]:
    """What stands before the first response, then a response and an observation for each step."""
    asked = history or objects_of(steps[0].get("query") or steps[0].get("messages"), "query")
    for message in asked:
        before = read_message(message, note)
        if before.ours and not message.get("is_demo"):
            break
        before.ours, before.calls, before.answers = False, [], []
        yield before
    for step in steps:
        response = flat(step.get("response"), note) or flat(step.get("thought"), note)
        action = flat(step.get("action"), note).strip()
        if response or action:
            columns: Turn = {"action": action} if action else {}
            yield Said(ours=True, pieces=[("text", response or action)], columns=columns)
        else:
            note("skipped a step without model output")
        yield Said(ours=False, pieces=[("text", flat(step.get("observation"), note))])


#: Keys of a file beside its steps, those of a step, and those of records that others write under the same names.
_OWN = frozenset(["info", "environment", "replay_config"])
_OF_A_STEP = frozenset(["response", "thought", "state"])
_OTHERS = frozenset(["reward", "group_id", "rollout_id"])


def _matches(record: Mapping[str, Any]) -> bool:
    steps, history = record.get("trajectory"), record.get("history")
    if isinstance(record.get("attempts"), list) and "info" in record:
        return True
    if not _OTHERS.isdisjoint(record):
        return False
    whole = not _OWN.isdisjoint(record)
    if isinstance(steps, list) and steps and isinstance(steps[0], dict):
        return {"action", "observation"} <= set(steps[0]) and (whole or not _OF_A_STEP.isdisjoint(steps[0]))
    whole = whole or set(record) == {"history"}
    return whole and isinstance(history, list) and bool(history) and _is_message(history[0])


def _is_message(value: Any) -> bool:
    return isinstance(value, dict) and "role" in value


FORMAT = Format(
    "swe-agent",
    _matches,
    per_record(read),
    about=About(
        files=".traj of SWE-agent and EnIGMA",
        group="the problem's id, else the first messages",
        turns="steps",
        reward="none",
        checked="their files",
    ),
)
