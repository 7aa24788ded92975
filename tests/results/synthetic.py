"""SYNTHETIC results: a folder with the pipeline's layout, filled from a formula. No policy, no game, no learning in it.

Held-out success rises from the SFT policy's by a logistic curve towards each method's ceiling, with games, seeds and
rounds as independent influences, so that the statistics have something to find.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.rows import MADE_BY, branch_row, label_row, turn_row
from turncredit import tables
from turncredit.config import Experiment, from_mapping, sampling_slug
from turncredit.seeding import generator

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")
CEILINGS = {"flat_grpo": 0.50, "has_progressive": 0.58, "oracle_progress": 0.66, "random_credit": 0.43}
START = 0.35


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
                given = {"length": length, "success": won, "family": FAMILIES[group % 6]}
                given |= {"valid": bool(rng.random() < 0.7), "policy_id": f"{method}/{seed}/{round_ - 1}", "seed": seed}
                name = f"train-{round_}-{group}"
                rows.append(turn_row(name, f"{name}#{copy}", turn, temperature=config.rollout.temperature, **given))
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


#: How well each method's credit agrees with the made-up truth: rank correlation, signal to noise.
FIDELITY = {
    "flat_grpo": (0.0, 0.004),
    "has_progressive": (0.21, 0.05),
    "oracle_progress": (0.34, 0.12),
    "random_credit": (-0.02, 0.001),
    "turn_value": (0.29, 0.2),
    "has_turnrd": (-0.22, 0.02),
}
LEARNED = ("turn_value", "has_turnrd")


def audit(folder: Path, config: Experiment, *, run: str = "flat_grpo", rounds=(1, 3), broken: bool = False) -> None:
    """SYNTHETIC tables of an audit: ground truth, every method's credit, fidelity, gradients, leaks and invariants."""
    for seed in config.seeds:
        for round_ in rounds:
            place = folder / f"audit/{run}/seed{seed}/round{round_:02d}"
            turns = folder / f"runs/{run}/seed{seed}/round{round_:02d}/rollouts/turns.parquet"
            if round_ == 1:
                slug = sampling_slug(config.section_for(run, "rollout"))
                turns = folder / f"sft/rollouts/{slug}/seed{seed}/turns.parquet"
            _branches(place / "branches.parquet", turns, seed)
            for method in FIDELITY:
                _credits(place / f"credits/{method}.parquet", turns, method)
            _labels(turns.parent / "labels/rule-role.parquet", turns)
            _scores(place, seed, round_)
            _holds(place / "invariants.parquet", run, seed, round_, broken=broken and round_ == rounds[-1])
            _metrics(place / "metrics/branch.json", seconds=9.0)
            (place / "pages").mkdir()
            (place / "pages/index.html").write_text("<title>pages</title>")


def _branches(path: Path, turns: Path, seed: int) -> None:
    keys = tables.read(turns, "turns").select([*tables.KEYS, "success"]).to_pylist()
    rng = generator("branch", seed, len(keys))
    rows = [branch_row(key, q=0.5 + float(rng.normal() * 0.2), policy_id="x") for key in keys]
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("branches")), path, "branches", MADE_BY)


def _labels(path: Path, turns: Path) -> None:
    if path.exists():
        return
    keys = tables.read(turns, "turns").select(list(tables.KEYS)).to_pylist()
    rows = [label_row(key, "DENR"[place % 4]) for place, key in enumerate(keys)]
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("labels")), path, "labels", MADE_BY)


def _scores(place: Path, seed: int, round_: int) -> None:
    rng = generator("scores", seed, round_)
    scored, signal, leaks = [], [], []
    for method, (rank, snr) in FIDELITY.items():
        values = {"rank_correlation": (rank, 0.6), "sign_agreement": (0.5 + rank / 2, 0.85), "error": (0.9, None)}
        values |= {"regression_auc": (0.5 + rank / 3, 0.8), "useful_auc": (0.5 + rank / 3, 0.8)}
        values |= {"pooled_correlation": (rank + 0.1, None)}
        for measure, (value, ceiling) in values.items():
            at = value + rng.normal() * 0.01
            row = {"method": method, "measure": measure, "subset": "all", "value": at, "low": at - 0.05}
            scored.append(row | {"high": at + 0.05, "turns": 60, "groups": 4, "ceiling": ceiling})
        early = {"method": method, "measure": "bias", "subset": "position:early", "value": 0.1, "low": 0.0, "high": 0.2}
        scored.append(early | {"turns": 20, "groups": 4, "ceiling": None})
        for measure, value in (("snr", snr), ("signal", snr * 2), ("noise", 2.0), ("cosine_flat", rank)):
            ends = {"low": value * 0.8 - 0.001, "high": value * 1.2 + 0.001}
            signal.append({"method": method, "measure": measure, "value": value, **ends})
    for method in LEARNED if round_ > 1 else ():
        bad = method == "has_turnrd"
        views = {
            "full": 0.99 if bad else 0.8,
            "padded": 0.6 if bad else 0.78,
            "blind": 0.55 if bad else 0.77,
            "length_only": 0.9,
        }
        for view, value in views.items():
            leaks.append({"method": method, "view": view, "measure": "outcome_auc", "value": value})
        leaks.append({"method": method, "view": "padded", "measure": "outcome_drop", "value": 0.39 if bad else 0.02})
    leaks = [row | {"low": row["value"] - 0.03, "high": row["value"] + 0.03} for row in leaks]
    for name, rows in (("fidelity", scored), ("gradients", signal), ("leaks", leaks)):
        tables.write(pa.Table.from_pylist(rows, schema=tables.schema(name)), place / f"{name}.parquet", name, MADE_BY)


def _holds(path: Path, run: str, seed: int, round_: int, *, broken: bool) -> None:
    rows = []
    for name in ("keys", "success", "conservation"):
        at = {"run": run, "seed": seed, "round": round_, "name": name, "checked": 16}
        fails = broken and name == "conservation"
        worst = (0.3 if fails else 1e-7) if name == "conservation" else None
        rows.append(at | {"holds": not fails, "worst": worst, "detail": "rollout 3 is off by 0.3" if fails else ""})
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("invariants")), path, "invariants", MADE_BY)
