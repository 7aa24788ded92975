"""Stage `demos`: an expert plays, with noise; what was noise is marked, and never imitated.

The expert uses only what it has been shown, so that a policy which sees the same can imitate it. Noise makes the
demonstrations pass through states that a learner's own mistakes lead to.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from turncredit import tables
from turncredit.config import DemosConfig, Experiment
from turncredit.learn.tasks import Games
from turncredit.seeding import generator


def make_demos(*, experiment: Experiment, tasks: str | Path, out: str | Path) -> dict[str, float]:
    """Write `demos.count` demonstrations on the training games, in turn. Returns success and length."""
    settings = experiment.demos
    games = Games(experiment, tasks)
    rows: list[dict] = []
    won = 0
    for number in range(settings.count):
        task = games.rows[number % len(games)]
        rng = generator(settings.seed, "demos", number)
        turns = _demonstrate(games, task, rng, settings)
        won += turns[-1]["success"]
        for turn in turns:
            turn.update(
                group_id=task["task_id"],
                rollout_id=f"demo{number:06d}",
                task_id=task["task_id"],
                family=task["family"],
                goal=task["goal"],
                success=turns[-1]["success"],
            )
        rows.extend(turns)
    made_by = tables.provenance(
        "demos",
        config={"demos": settings.model_dump(), "env": experiment.env.model_dump()},
        inputs={"tasks": tasks},
        seed=settings.seed,
    )
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("demos")), out, "demos", made_by)
    return {
        "demonstrations": float(settings.count),
        "success": won / settings.count,
        "turns": len(rows) / settings.count,
    }


def _demonstrate(games: Games, task: dict, rng: np.random.Generator, settings: DemosConfig) -> list[dict]:
    """One demonstration's turns. Where noise or a slip acts, what the expert wanted to do is not shown."""
    env = games.open(task)
    observation = env.reset()
    expert = games.env.Expert(env, rng, skip=bool(rng.random() < settings.skip))
    expert.observe(observation)
    turns = []
    while True:
        action = expert.act()
        chance = rng.random()
        noisy = bool(chance < settings.noise)
        if noisy:
            action = games.env.random_command(env, rng)
        elif chance < settings.noise + settings.slips:
            action = games.env.slip_command(env, rng)
        admissible = list(env.admissible())
        step = env.step(action)
        turns.append(
            {
                "turn": len(turns),
                "observation": observation,
                "admissible": admissible,
                "action": action,
                "valid": step.valid,
                "imitate": not noisy,
                "next_observation": step.observation,
                "success": step.success,
            }
        )
        if step.done:
            return turns
        observation = step.observation
        expert.observe(observation, action)
