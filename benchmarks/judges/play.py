"""Household rollouts of uneven quality, for benchmarks and for the calibration set: expert, noise, loops, forgetting.

    python -m benchmarks.judges.play --rollouts 40 --seed 0 --out turns.parquet

Writes the columns a judge reads, and `family` and `success` for whoever compares labels afterwards.
"""

from __future__ import annotations

import argparse
import random

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.envs.household import Expert, Settings, make_tasks, open_task, random_command

#: name -> (share of random commands, share of repeats of the last command, forgets the treatment)
PLAYERS = {
    "expert": (0.0, 0.0, False),
    "noisy": (0.25, 0.1, False),
    "looping": (0.1, 0.35, False),
    "forgetful": (0.15, 0.05, True),
    "lost": (0.6, 0.1, False),
}


def play(row: dict, settings: Settings, player: str, seed: int) -> list[dict]:
    """One rollout of a task: a row for each turn."""
    noise, loop, skip = PLAYERS[player]
    rng = random.Random(seed)
    env = open_task(row, settings)
    first = env.reset()
    expert = Expert(env, random.Random(seed + 1), skip=skip)
    expert.observe(first)
    rollout = f"{row['task_id']}/{player}{seed}"
    turns: list[dict] = []
    done = success = False
    while not done:
        draw = rng.random()
        action = expert.act()
        if draw < noise:
            action = random_command(env, rng)
        elif turns and draw < noise + loop:
            action = turns[-1]["action"]
        step = env.step(action)
        expert.observe(step.observation, action)
        turns.append(
            {
                "group_id": row["task_id"],
                "rollout_id": rollout,
                "turn": len(turns),
                "env": "household",
                "goal": env.goal,
                "action": action,
                "next_observation": step.observation,
                "family": row["family"],
            }
        )
        done, success = step.done, step.success
    return [{**turn, "success": success} for turn in turns]


def rollouts(count: int, seed: int, settings: Settings) -> pa.Table:
    """`count` rollouts over all players and as many tasks, as a table of turns."""
    tasks = make_tasks("train", count, seed, settings)
    players = list(PLAYERS)
    rows = [
        turn
        for at, task in enumerate(tasks)
        for turn in play(task, settings, players[at % len(players)], 1000 * seed + at)
    ]
    return pa.Table.from_pylist(rows)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rollouts", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--horizon", type=int, default=20)
    parser.add_argument("--out", required=True)
    given = parser.parse_args()
    pq.write_table(rollouts(given.rollouts, given.seed, Settings(horizon=given.horizon)), given.out)
