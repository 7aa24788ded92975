"""tau2-bench: one object with `simulations`, or an object for each: `task_id`, `trial`, `messages`, `reward_info`.

Source: tau2-bench, `src/tau2/data_model/simulation.py`, `message.py`, `orchestrator/orchestrator.py`. Trials of a task
are a group. The agent sees neither the calls of the user's own tools nor their results, and did not write the greeting
that comes first.
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
    needed_id,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.message import role_of
from turncredit.bridges.importers.messages import turns_of


def read(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file of results, or the one of a simulation."""
    if "simulations" not in record:
        yield _rollout(where, record, context)
        return
    for number, simulation in enumerate(objects_of(record["simulations"], "simulations")):
        try:
            yield _rollout(f"{where}:simulations[{number}]", simulation, context)
        except Skip as skip:
            context.report.skip(f"{where}:simulations[{number}]", str(skip), skip.detail)


def _rollout(where: str, simulation: dict[str, Any], context: Context) -> Rollout:
    if not simulation.get("messages") and simulation.get("ticks"):
        raise Skip("a simulation by voice, whose ticks are not read")
    messages = list(_seen(objects_of(simulation.get("messages"), "messages")))
    first = messages[0] if messages else {}
    greeting = role_of(first) == "assistant" and not first.get("tool_calls")
    if greeting:
        context.report.note("the assistant's greeting, which comes first, is the harness's and no turn")
    turns = turns_of(
        messages,
        context,
        where,
        lambda message: role_of(message) == "assistant" and not (greeting and message is first),
    )
    reward = finite_or_none(dict_of(simulation.get("reward_info"), "reward_info").get("reward"))
    outcome(turns, reward)
    task = needed_id(simulation.get("task_id"), "task_id")
    trial = simulation.get("trial")
    name = f"{task}/{simulation['id'] if trial is None else trial}"
    columns: dict[str, Any] = {"task_id": task}
    if reward in (0.0, 1.0):
        columns["success"] = reward == 1.0
    return Rollout(task, name, turns, where, True, columns, record=simulation)


def _seen(messages: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """What the agent sees, results of several tools one by one."""
    for message in messages:
        if message.get("tool_messages"):
            yield from _seen(objects_of(message["tool_messages"], "tool_messages"))
        elif message.get("role") == "user" and message.get("tool_calls"):
            if message.get("content"):
                yield {"role": "user", "content": message["content"]}
        elif message.get("role") != "tool" or message.get("requestor") != "user":
            yield {**message, "error": None}


def _matches(record: Mapping[str, Any]) -> bool:
    return "simulations" in record or {"task_id", "termination_reason", "reward_info"} <= set(record)


FORMAT = Format(
    "tau2",
    _matches,
    per_record(read),
    about=About(
        files="results with simulations",
        group="task_id",
        turns="messages of the assistant but the greeting",
        reward="reward_info.reward",
        checked="code of tau2-bench",
    ),
)
