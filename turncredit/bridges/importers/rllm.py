"""rLLM: `episode_hash{task}_id{episode}.json`, a file for each episode, with its trajectories and their steps.

`task_hash`, `training_step`, `is_correct`, `termination_reason`; a trajectory has `name`, `uid`, `reward` and `steps`,
each with `observation`, `action`, `model_response`, `reward` and `chat_completions`. Source: rllm-org/rllm,
`rllm/utils/episode_logger.py`. Trajectories of one name, of one task in one step, are a group.

A rollout's reward is its trajectory's. Steps' rewards are used where they sum to it, otherwise they are not: the last
turn then has the whole of it, and a note says so.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.bridges.importers.base import Format, Report, Rollout, Skip, Source, Turn, each, finite, outcome
from turncredit.bridges.importers.messages import chain_observations, text_of
from turncredit.data.json_lines import json_file


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of an episode's file."""
    del mapping

    def episode(where: str, path: Path) -> Iterator[Rollout]:
        data = json_file(path)
        if "trajectories" not in data:
            raise Skip("not an episode of rLLM: no 'trajectories'", ", ".join(list(data)[:6]))
        if not data["trajectories"]:
            raise Skip("an episode without trajectories")
        task = f"{data['training_step']}/{data['task_hash']}"
        columns: dict[str, Any] = {"task_id": str(data["task_hash"])}
        if isinstance(data.get("is_correct"), bool):
            columns["success"] = data["is_correct"]
        for place, trajectory in enumerate(data["trajectories"]):
            try:
                turns = _turns(trajectory, report)
            except Skip as skip:
                report.skip(where, str(skip), skip.detail)
                continue
            group = f"{task}/{trajectory.get('name') or 'agent'}"
            ended = data.get("termination_reason") is not None or bool(trajectory["steps"][-1].get("done"))
            uid = f"{task}/{data['episode_id']}/{trajectory.get('uid') or place}"
            yield Rollout(group, uid, turns, where, ended, columns)

    yield from each(iter([(str(source.path), source.path)]), report, episode)


def _turns(trajectory: dict[str, Any], report: Report) -> list[Turn]:
    if not trajectory["steps"]:
        raise Skip("no turn: a trajectory without steps")
    turns: list[Turn] = []
    for step in trajectory["steps"]:
        observation = step.get("observation")
        if observation is None:  # a workflow that keeps the conversation only
            observation = _asked(step.get("chat_completions") or [])
        response = text_of(step.get("model_response"))
        action = text_of(step.get("action")) or response
        turns.append({"observation": text_of(observation), "response_text": response or action, "action": action})
    chain_observations(turns, "")
    reward = finite(trajectory.get("reward"))
    own = [step.get("reward") or 0.0 for step in trajectory["steps"]]
    if math.isclose(math.fsum(finite(value) for value in own), reward, abs_tol=1e-9):
        for turn, value in zip(turns, own, strict=True):
            turn["reward"] = float(value)
    else:
        outcome(turns, reward)
        if any(own):
            report.note("the rewards of the steps do not sum to the trajectory's, which is on the last turn")
    return turns


def _asked(messages: list[dict[str, Any]]) -> str:
    """What the policy read before its last message: all messages since the one before."""
    texts: list[str] = []
    for message in reversed(messages[:-1] if messages and messages[-1].get("role") == "assistant" else messages):
        if message.get("role") == "assistant":
            break
        texts.insert(0, text_of(message.get("content")))
    return "\n".join(texts)


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    return "trajectories" in record or path.name.startswith("episode_hash")


FORMAT = Format("rllm", ".json", _fits, read)
