"""rLLM: `episode_hash{task}_id{episode}.json`, a file for each episode, with its trajectories and their steps.

`task_hash`, `training_step`, `is_correct`, `termination_reason`; a trajectory has `name`, `uid`, `reward` and `steps`,
each with `observation`, `action`, `model_response`, `reward` and `chat_completions`. Source: rllm-org/rllm,
`rllm/utils/episode_logger.py`. Trajectories of one name, of one task in one step, are a group.

A rollout's reward is its trajectory's or, if it has none, its last step's (`trainer/algorithms/transform.py`). Steps'
rewards are used where they sum to it, otherwise they are not: the last turn then has the whole of it, and a note says
so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Observation,
    Report,
    Rollout,
    Skip,
    Turn,
    finite,
    finite_or_none,
    objects_of,
    outcome,
    per_record,
)
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import History, chain_replies
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import Said


def read(where: str, data: dict[str, Any], context: Context) -> Iterator[Rollout]:
    """The rollouts of an episode."""
    if "trajectories" not in data:
        raise Skip("not an episode of rLLM: no 'trajectories'", ", ".join(list(data)[:6]))
    if not data["trajectories"]:
        raise Skip("an episode without trajectories")
    task = f"{data['training_step']}/{data['task_hash']}"
    columns: dict[str, Any] = {"task_id": str(data["task_hash"])}
    # Of several agents' trajectories, each may have succeeded or not.
    if isinstance(data.get("is_correct"), bool) and len(data["trajectories"]) == 1:
        columns["success"] = data["is_correct"]
    for place, trajectory in enumerate(objects_of(data["trajectories"], "trajectories")):
        try:
            turns = turns_of(trajectory, context.report, context.options.observation)
        except Skip as skip:
            context.report.skip(where, str(skip), skip.detail)
            continue
        group = f"{task}/{trajectory.get('name') or 'agent'}"
        ended = data.get("termination_reason") is not None or bool(trajectory["steps"][-1].get("done"))
        uid = f"{task}/{data['episode_id']}/{trajectory.get('uid') or place}"
        yield Rollout(group, uid, turns, where, ended, columns)


def turns_of(trajectory: Mapping[str, Any], report: Report, shows: Observation = "auto") -> list[Turn]:
    """The turns of a trajectory, one for each step. Raises Skip where there is none.

    shows   what an observation is made of
    """
    if not trajectory["steps"]:
        raise Skip("no turn: a trajectory without steps")
    history = History(shows)
    turns: list[Turn] = []
    for step in objects_of(trajectory["steps"], "steps"):
        observation = step.get("observation")
        if observation is None:  # a workflow that keeps the conversation only
            observation = _asked(objects_of(step.get("chat_completions"), "chat_completions"), report)
        history.hear(flat(observation, report.note))
        said = _said(step, report)
        turn = history.turn(said, empty=True) or history.turn(Said(ours=True), empty=True)
        assert turn is not None  # every step is one
        turns.append(turn)
    chain_replies(turns, "")
    reward = finite_or_none(trajectory.get("reward"))
    if reward is None:
        reward = finite_or_none(trajectory["steps"][-1].get("reward"))
    own = [step.get("reward") or 0.0 for step in trajectory["steps"]]
    if reward is None:
        outcome(turns, None)
    elif math.isclose(math.fsum(finite(value) for value in own), reward, abs_tol=1e-9):
        for turn, value in zip(turns, own, strict=True):
            turn["reward"] = float(value)
    else:
        outcome(turns, reward)
        if any(own):
            report.note("the rewards of the steps do not sum to the trajectory's, which is on the last turn")
    return turns


def _said(step: Mapping[str, Any], report: Report) -> Said:
    """What the policy wrote in a step; its tool calls are in the conversation alone (`engine/trace_converter.py`)."""
    messages = objects_of(step.get("chat_completions"), "chat_completions")
    response, action = (flat(step.get(name), report.note) for name in ("model_response", "action"))
    if not action and messages and messages[-1].get("role") == "assistant":
        said = read_message(messages[-1], report.note)
        if said.calls or not response:
            return said
    columns: Turn = {"action": action} if action and action != response else {}
    return Said(ours=True, pieces=[("text", response or action)], columns=columns)


def _asked(messages: list[dict[str, Any]], report: Report) -> str:
    """What the policy read before its last message: all messages since the one before."""
    texts: list[str] = []
    for message in reversed(messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages):
        if message.get("role") == "assistant":
            break
        texts.insert(0, flat(message.get("content"), report.note))
    return "\n".join(texts)


def _matches(record: Mapping[str, Any]) -> bool:
    return "trajectories" in record and {"task_hash", "episode_id"} & set(record) != set()


FORMAT = Format(
    "rllm",
    _matches,
    per_record(read),
    about=About(
        files="episode_hash*_id*.json",
        group="task, step and agent",
        turns="steps",
        reward="the trajectory's, else its last step's; of steps if they sum to it",
        checked="code of rLLM",
    ),
)
