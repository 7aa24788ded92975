"""Values under a reference policy: the environment's expert, which acts randomly in a fraction of its turns.

QVal (arXiv 2606.32034) scores credit against the Q of such a policy; for learning, the acting policy's own Q matters.
Computing both shows how far they differ. No language model is needed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from turncredit.audit.estimates import mean_and_error
from turncredit.data.seeding import generator
from turncredit.envs.protocol import tell
from turncredit.rollouts.play import Checkpoint
from turncredit.rollouts.tasks import MOST_TURNS, Games


def has_reference(games: Games) -> bool:
    """Whether the environment has an expert and can choose random actions."""
    return games.env.expert is not None and games.env.acts_at_random


def reference_values(
    games: Games,
    task: Mapping[str, Any],
    actions: Sequence[str],
    checkpoints: Sequence[Checkpoint],
    *,
    noise: float,
    count: int,
    seed: int,
    low: float,
    high: float,
) -> tuple[np.ndarray, np.ndarray]:
    """Value and standard error (T), (T) before each turn of one rollout, from `count` continuations each.

    The expert has seen the rollout's turns up to there (`actions` T, `checkpoints` T) and continues with what it
    remembers.
    """
    value_T, error_T = np.zeros(len(checkpoints)), np.zeros(len(checkpoints))
    for number in range(len(checkpoints)):
        rng = generator(seed, "reference", number)
        returns = [_play_on(games, task, actions, checkpoints[: number + 1], noise, rng) for _ in range(count)]
        value_T[number], error_T[number] = mean_and_error(returns, low, high)
    return value_T, error_T


def _play_on(
    games: Games,
    task: Mapping[str, Any],
    actions: Sequence[str],
    checkpoints: Sequence[Checkpoint],
    noise: float,
    rng: np.random.Generator,
) -> float:
    """The return of one continuation from the last of `checkpoints`, with the observations at all of them in memory."""
    env = games.open(dict(task))
    expert = games.expert(env, rng, skip=False)
    expert.observe(checkpoints[0].observation)
    for action, checkpoint in zip(actions, checkpoints[1:], strict=False):
        expert.observe(checkpoint.observation, action)
    env.restore(checkpoints[-1].state)
    total = 0.0
    for _ in range(MOST_TURNS):
        action = chosen = expert.act()
        if rng.random() < noise:
            action = games.random_action(env, rng)
        step = env.step(action)
        total += step.reward
        if step.done:
            env.close()
            return total
        tell(expert, step.observation, action, chosen)
    raise games.endless(task)
