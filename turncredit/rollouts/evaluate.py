"""Stage `eval`: a policy on held-out games. Success is counted once for each rollout."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa

from turncredit import tables
from turncredit.config import Experiment
from turncredit.heartbeat import progress
from turncredit.rollouts.play import Player, Start
from turncredit.rollouts.rollout import policy_id
from turncredit.rollouts.tasks import Games
from turncredit.seeding import derive_seed


def evaluate(
    *,
    experiment: Experiment,
    method: str,
    seed: int,
    round: int,
    policy: str | Path,
    tasks: str | Path,
    out: str | Path,
) -> dict[str, float]:
    """Play the round's held-out games in every mode; write one row for each rollout.

    The games and the random numbers are the same for every method and seed: differences between policies are
    paired by game. `method` is `sft` for the policy before any update.
    """
    settings = experiment.eval
    games = Games(experiment, tasks)
    rows = eval_tasks(experiment, round)
    sampling = experiment.rollout
    player = Player(experiment, policy, games, min(sampling.slots, len(rows)), processes=sampling.processes)
    results, metrics = [], {}
    for position, mode in enumerate(settings.modes):
        done_before = position * len(rows)
        starts = [
            Start(
                games.rows[number]["task_id"],
                games.rows[number]["task_id"],
                games.rows[number],
                derive_seed("eval", mode.name, games.rows[number]["task_id"]),
            )
            for number in rows
        ]
        played = player.play(
            starts,
            temperature=mode.temperature,
            on_done=lambda done, before=done_before: progress(before + done, len(rows) * len(settings.modes)),
        )
        for rollout in played:
            task = rollout.start.task
            results.append(
                {
                    "policy_id": policy_id(method, seed, 0 if method == "sft" else round),
                    "method": method,
                    "seed": seed,
                    "round": round,
                    "mode": mode.name,
                    "split": task["split"],
                    "task_id": task["task_id"],
                    "family": task["family"],
                    "repeat": 0,
                    "success": rollout.success,
                    "score": float(sum(turn.reward for turn in rollout.turns)),
                    "turns": len(rollout.turns),
                    "invalid": sum(not turn.valid for turn in rollout.turns),
                    "tokens": rollout.tokens,
                }
            )
        metrics[f"success_{mode.name}"] = float(np.mean([rollout.success for rollout in played]))
    made_by = tables.provenance(
        "eval",
        config={"eval": settings.model_dump(), "agent": experiment.agent.model_dump(), "round": round},
        inputs={"policy": policy, "tasks": tasks},
        seed=seed,
    )
    tables.write(pa.Table.from_pylist(results, schema=tables.schema("evals")), out, "evals", made_by)
    return metrics


def eval_tasks(experiment: Experiment, round: int) -> list[int]:
    """The rows of the eval tasks that `round` is evaluated on: its own slice where `eval.fresh`."""
    slices = experiment.eval_rounds()
    at = slices.index(round) if experiment.eval.fresh else 0
    return list(range(at * experiment.eval.games, (at + 1) * experiment.eval.games))
