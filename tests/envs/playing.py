"""Rollouts of an environment's expert, with noise and slips."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, NamedTuple

from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step


class Played(NamedTuple):
    """A turn of the expert's rollout. `plan` has the environment's `expert_columns`; empty if there are none."""

    action: str
    step: Step
    plan: Mapping[str, Any]


def play(
    environment: Environment,
    row: Mapping[str, Any],
    settings: Any,
    noise: float = 0.0,
    slips: float = 0.0,
    seed: int = 0,
) -> list[Played]:
    """The expert's rollout of a task; `noise` and `slips` are the shares of turns with another action than its own."""
    rng = random.Random(seed)
    env = environment.open_task(row, settings)
    expert = environment.expert(env, rng)
    expert.observe(env.reset())
    turns: list[Played] = []
    while not turns or not turns[-1].step.done:
        action, chance = expert.act(), rng.random()
        if chance < noise:
            action = environment.random_command(env, rng)
        elif chance < noise + slips:
            action = environment.slip_command(env, rng)
        step = env.step(action)
        turns.append(Played(action, step, expert.columns() if environment.expert_columns else {}))
        expert.observe(step.observation, action)
    return turns
