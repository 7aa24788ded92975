"""Who&When: failed logs of several agents, with the agent and the step that people hold decisive for the failure.

`history` (messages with `name`, or a role that is the agent's), `question`, `mistake_agent`, `mistake_step`,
`is_correct`. Source: https://github.com/mingyin1/Agents_Failure_Attribution, and the paper "Which Agent Causes Task
Failures and When?" (ICML 2025). A message of an agent is a turn, `agent` its name and `step` its place in the history;
messages of people and of the terminal are observations. `mistake_agent` and `mistake_step` are the same on all turns.
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
    id_of,
    objects_of,
    outcome,
    per_record,
    short_hash,
    truth,
)
from turncredit.bridges.importers.jsonl import place_of, turn_number
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import Said

PEOPLE = frozenset(("human", "user", "user_proxy", "system", "Computer_terminal", "computer_terminal"))


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollout of a log."""
    history = objects_of(record["history"], "history")
    said = [_said(place, message, context) for place, message in enumerate(history)]
    turns = turns_from(_heard(said), context, where)
    step = turn_number(record.get("mistake_step"))
    if not isinstance(step, int) or not 0 <= step < len(history):
        raise Skip("mistake_step is not the place of a message", repr(record.get("mistake_step"))[:40])
    success = truth(record.get("is_correct", record.get("is_corrected")), "is_correct")
    if success is not None:
        context.report.note("the reward is is_correct: 0 or 1")
    outcome(turns, None if success is None else float(success))
    if step not in {turn["step"] for turn in turns}:
        context.report.note("the decisive step is a message of the terminal or a person, and no turn")
    task = id_of(record.get("question_ID")) or short_hash(record.get("question"))
    columns: dict[str, Any] = {"task_id": task, "goal": flat(record.get("question"), context.report.note)}
    columns |= {"mistake_agent": str(record["mistake_agent"]), "mistake_step": step, "success": success}
    yield Rollout(task, place_of(where, context), turns, where, True, columns)


def _said(place: int, message: Mapping[str, Any], context: Context) -> Said:
    name = str(message.get("name") or message.get("role")).partition(" (")[0]  # "Orchestrator (thought)"
    ours = name not in PEOPLE
    text = flat(message.get("content"), context.report.note)
    return Said(ours=ours, pieces=[("text", text)], columns={"agent": name, "step": place} if ours else {})


def _heard(said: list[Said]) -> Iterator[Said]:
    """The messages; what one agent wrote, the next one reads."""
    for place, one in enumerate(said):
        yield one
        if one.ours and place + 1 < len(said):
            yield Said(ours=False, pieces=[("text", f"{one.columns['agent']}: {one.text()}")])


def _matches(record: Mapping[str, Any]) -> bool:
    return {"history", "mistake_agent", "mistake_step"} <= set(record)


FORMAT = Format(
    "who-and-when",
    _matches,
    per_record(read),
    about=About(
        files="failed logs of several agents",
        group="question_ID",
        turns="messages of agents; agent, step, mistake_agent, mistake_step",
        reward="is_correct",
        checked="all 112 files that docs/decisive_steps.md uses",
    ),
)
