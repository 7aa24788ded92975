"""Restore recorded rollouts: the environment's state and the agent before each of their turns.

The recorded actions are played once from the start, and then from every restored state to the rollout's end; the
results are compared with the recorded ones.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from turncredit.agents import Agent, Prompt
from turncredit.envs.protocol import State, Step
from turncredit.errors import UserError
from turncredit.rollouts.play import Checkpoint

#: the columns of a turn that are read
COLUMNS = (
    "observation", "context_reset", "prompt_ids", "response_ids", "response_text", "action", "next_observation",
    "reward", "done",
)  # fmt: skip


class Restored(NamedTuple):
    """A rollout's checkpoints, one before each turn, and whether the recorded turns were reproduced from each."""

    checkpoints: list[Checkpoint]
    replayed: list[bool]


def restore(
    open_env: Callable[[], Any],
    agent: Agent,
    turns: Sequence[Mapping[str, Any]],
    where: str = "turns",
    *,
    goal: str,
    admissible: Callable[[Any], Sequence[str]] = lambda env: env.admissible(),
) -> Restored:
    """Checkpoints of a recorded rollout, given a fresh `agent` and `turns`, its rows (`COLUMNS`) in order.

    `goal` is the task's, and `admissible` lists what an environment allows now, for agents that show it.

    `replayed[t]` means that observations, prompts and actions up to turn t were reproduced, and so were observations,
    rewards and end when the rest was played from the restored state. The model's context holds the recorded tokens in
    any case.

    Raises UserError, naming `where`, for a rollout that has no end, or that ends elsewhere when it is replayed: its
    states cannot be restored.
    """
    env = open_env()
    seen = env.reset()
    prompt = agent.open(goal, seen, admissible(env))
    checkpoints: list[Checkpoint] = []
    as_before: list[bool] = []
    context: list[int] = []
    same = True
    for number, turn in enumerate(turns):
        same = same and seen == turn["observation"] and _same_prompt(prompt, turn)
        context = [*([] if turn["context_reset"] else context), *turn["prompt_ids"]]
        checkpoints.append(Checkpoint(number, seen, env.snapshot(), agent.fork(), context))
        as_before.append(same)
        parsed = agent.parse(turn["response_text"])
        same = same and parsed.action == turn["action"]
        step = env.step(turn["action"])
        if step.done != (number == len(turns) - 1):
            raise UserError(
                f"{where}: replayed, the rollout {'ends' if step.done else 'goes on'} after turn "
                f"{number} of {len(turns)}; branching needs the env settings that the turns were recorded with"
            )
        same = same and _same_step(step, turn)
        seen = step.observation
        context = [*context, *turn["response_ids"]]
        if not step.done:
            prompt = agent.follow(turn["response_ids"], replace(parsed, action=turn["action"]), seen, admissible(env))
    env.close()
    env = open_env()
    onward = [_plays_on(env, checkpoint.state, turns[checkpoint.turn :]) for checkpoint in checkpoints]
    env.close()
    return Restored(checkpoints, [before and after for before, after in zip(as_before, onward, strict=True)])


def _plays_on(env: Any, state: State, turns: Sequence[Mapping[str, Any]]) -> bool:
    """Whether the recorded actions, played from the restored state, reproduce the recording."""
    env.restore(state)
    for number, turn in enumerate(turns, start=1):
        step = env.step(turn["action"])
        if not _same_step(step, turn) or step.done != (number == len(turns)):
            return False
    return True


def _same_prompt(prompt: Prompt, turn: Mapping[str, Any]) -> bool:
    return prompt.reset == turn["context_reset"] and list(prompt.ids) == list(turn["prompt_ids"])


def _same_step(step: Step, turn: Mapping[str, Any]) -> bool:
    return step.observation == turn["next_observation"] and step.reward == turn["reward"]
