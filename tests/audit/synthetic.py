"""SYNTHETIC results: a folder with the pipeline's layout, filled from a formula. No policy, no game, no learning in it.

Held-out success rises from the SFT policy's by a logistic curve towards each method's ceiling, with games, seeds and
rounds as independent influences, so that the statistics have something to find.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from turncredit import tables
from turncredit.config import Experiment, from_mapping, sampling_slug
from turncredit.seeding import generator

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")
CEILINGS = {"flat_grpo": 0.50, "has_progressive": 0.58, "oracle_progress": 0.66, "random_credit": 0.43}
START = 0.35
MADE_BY = {"stage": "synthetic", "code": "synthetic", "config": {}, "config_hash": "", "inputs": {}, "seed": 0}


def experiment(methods=tuple(CEILINGS), seeds=(0, 1), rounds=12, games=64, **more) -> Experiment:
    return from_mapping(
        {
            "experiment": "synthetic",
            "methods": list(methods),
            "seeds": list(seeds),
            "rounds": rounds,
            "rollout": {"tasks": 4, "group_size": 4},
            "tasks": {"train": 64, "eval": games * rounds},
            "eval": {"games": games},
            **more,
        }
    )


def make(root: Path, config: Experiment, *, rounds_done: dict | None = None, turns: bool = True) -> Path:
    """Write the tree below `root`; `rounds_done` maps (method, seed) to the last round that exists."""
    folder = root / config.experiment
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps(config.model_dump(mode="json")))
    for round_ in config.eval_rounds():
        _evals(folder / f"sft/evals/round{round_:02d}.parquet", config, "sft", 0, round_)
    _metrics(folder / "sft/metrics/sft.json", seconds=41.0)
    for seed in config.seeds:
        for slug in {sampling_slug(config.section_for(method, "rollout")) for method in config.methods}:
            if turns:
                shared = folder / f"sft/rollouts/{slug}/seed{seed}"
                _turns(shared / "turns.parquet", config, "sft", seed, 1)
                _metrics(shared / "metrics/rollout.json", seconds=6.0)
        for method in config.methods:
            last = (rounds_done or {}).get((method, seed), config.rounds)
            for round_ in range(1, last + 1):
                _round(folder / f"runs/{method}/seed{seed}/round{round_:02d}", config, method, seed, round_, turns)
    return folder


def _round(place: Path, config: Experiment, method: str, seed: int, round_: int, turns: bool) -> None:
    if turns:
        path = place / "rollouts/turns.parquet"
        if round_ > 1:
            _turns(path, config, method, seed, round_)
            _metrics(place / "rollouts/metrics/rollout.json", seconds=6.0)
        else:
            slug = sampling_slug(config.section_for(method, "rollout"))
            path = place.parents[3] / f"sft/rollouts/{slug}/seed{seed}/turns.parquet"
        _credits(place / "credits.parquet", path, method)
    _metrics(place / "metrics/credit.json", seconds=0.1)
    _updates(place / "updates.parquet", method, seed, round_)
    _metrics(place / "metrics/update.json", seconds=3.0)
    if round_ in config.eval_rounds():
        _evals(place / "evals.parquet", config, method, seed, round_)
        _metrics(place / "metrics/eval.json", seconds=2.0)


def chance(config: Experiment, method: str, seed: int, round_: int) -> float:
    """The probability of success that the formula gives this policy on an average game."""
    if method == "sft":
        return START
    rise = 1 / (1 + np.exp(-(round_ - config.rounds / 3) / (config.rounds / 8)))
    swing = generator("swing", method, seed, round_).normal() * 0.02 + generator("run", method, seed).normal() * 0.015
    return float(np.clip(START + (CEILINGS.get(method, 0.55) - START) * rise + swing, 0.02, 0.98))


def _evals(path: Path, config: Experiment, method: str, seed: int, round_: int) -> None:
    rows = []
    for mode in config.eval.modes:
        for game in range(config.eval.games):
            task = f"eval-{round_:02d}-{game:04d}" if config.eval.fresh else f"eval-{game:04d}"
            hard = generator("game", task).normal() * 0.15
            luck = generator("luck", method, seed, task, mode.name, round_).random()
            won = bool(luck < chance(config, method, seed, round_) + hard)
            turns = int(generator("turns", task).integers(6, 15)) if won else 20
            rows.append(
                {
                    "policy_id": f"{method}/{seed}/{round_}",
                    "method": method,
                    "seed": seed,
                    "round": round_,
                    "mode": mode.name,
                    "split": "eval",
                    "task_id": task,
                    "family": FAMILIES[game % 6],
                    "repeat": 0,
                    "success": won,
                    "score": float(won),
                    "turns": turns,
                    "invalid": turns // 3,
                    "tokens": turns * 9,
                }
            )
    tables.write(pa.Table.from_pylist(rows), path, "evals", MADE_BY)


def _turns(path: Path, config: Experiment, method: str, seed: int, round_: int) -> None:
    rng = generator("train", method, seed, round_)
    rows = []
    for group in range(config.rollout.tasks):
        for copy in range(config.rollout.group_size):
            won, length = bool(rng.random() < chance(config, method, seed, round_)), int(rng.integers(3, 7))
            for turn in range(length):
                last = turn == length - 1
                rows.append(
                    {
                        "group_id": f"train-{round_}-{group}",
                        "rollout_id": f"train-{round_}-{group}#{copy}",
                        "turn": turn,
                        "env": "household",
                        "split": "train",
                        "task_id": f"train-{round_}-{group}",
                        "family": FAMILIES[group % 6],
                        "goal": "put a clean mug in shelf.",
                        "observation": f"You arrive at shelf {turn}. On the shelf {turn}, you see a mug 1.",
                        "context_reset": turn == 0,
                        "prompt_ids": [1, 2],
                        "response_ids": [3],
                        "response_logprobs": [-0.5],
                        "response_text": f"go to shelf {turn + 1}",
                        "action": f"go to shelf {turn + 1}",
                        "valid": bool(rng.random() < 0.7),
                        "admissible": ["look", f"go to shelf {turn + 1}"],
                        "next_observation": f"You arrive at shelf {turn + 1}.",
                        "reward": float(won and last),
                        "progress_before": turn / length,
                        "progress": (turn + 1) / length if won or not last else 0.5,
                        "distance_before": length - turn,
                        "distance": length - turn - 1 if won else -1,
                        "done": last,
                        "success": won,
                        "score": float(won),
                        "policy_id": f"{method}/{seed}/{round_ - 1}",
                        "agent": "transcript",
                        "seed": seed,
                        "temperature": config.rollout.temperature,
                        "created_by": "synthetic",
                    }
                )
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("turns")), path, "turns", MADE_BY)


def _credits(path: Path, turns: Path, method: str) -> None:
    keys = tables.read(turns, "turns").select(list(tables.KEYS))
    advantage = generator("credit", method).normal(size=keys.num_rows)
    table = keys.append_column("method", pa.array([method] * keys.num_rows)).append_column(
        "advantage", pa.array(advantage)
    )
    table = table.append_column("trajectory", pa.array(advantage / 2)).append_column(
        "turn_term", pa.array(advantage / 2)
    )
    tables.write(table, path, "credits", MADE_BY)


def _updates(path: Path, method: str, seed: int, round_: int) -> None:
    row = {"policy_id": f"{method}/{seed}/{round_}", "step": 0, "epoch": 0, "loss": 0.1, "grad_norm": 1.0, "lr": 1e-3}
    row |= {"clip_fraction": 0.0, "ratio_max": 1.0, "entropy": 0.5, "tokens": 100, "kl": None}
    tables.write(pa.Table.from_pylist([row], schema=tables.schema("updates")), path, "updates", MADE_BY)


def _metrics(path: Path, seconds: float) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = {"stage": path.stem, "started": 1.7e9, "wall_s": seconds, "cpu_s": seconds * 0.9, "peak_mb": 500.0}
    path.write_text(json.dumps({**measured, "metrics": {"success": 0.5}}))
