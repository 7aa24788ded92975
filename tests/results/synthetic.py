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
from turncredit.config import Experiment, from_mapping
from turncredit.config.layout import Layout, fill, round_name, sampled_by, sampler_id
from turncredit.config.stages import stages
from turncredit.config.warm_starts import is_start
from turncredit.data import tables
from turncredit.data.seeding import generator

FAMILIES = ("pick", "look", "clean", "heat", "cool", "pick2")
CEILINGS = {"flat_grpo": 0.50, "has_progressive": 0.58, "oracle_progress": 0.66, "random_credit": 0.43}
START, STARTS = 0.35, {"sft_plain": 0.15}


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
    layout = Layout(folder)
    Path(layout.path("config")).write_text(json.dumps(config.model_dump(mode="json")), encoding="utf-8")
    for start in config.starts():
        for round_ in config.eval_rounds():
            _evals(layout, config, {"method": start, "seed": 0, "round": round_})
        metrics(layout, "sft", {"warm_start": start}, seconds=41.0)
    for method, seed in config.runs():
        last = (rounds_done or {}).get((method, seed), config.rounds)
        if turns:
            _turns(layout, config, sampled(config, method, seed, 1))
        for round_ in range(1, last + 1):
            _round(layout, config, method, seed, round_, turns)
    return folder


def sampled(config: Experiment, method: str, seed: int, round_: int) -> dict[str, str | int]:
    """The keys of the turns that the run of `method` learns from in a round."""
    return {"policy": sampled_by(config, method, round_), "seed": seed, "round": round_}


def _round(layout: Layout, config: Experiment, method: str, seed: int, round_: int, turns: bool) -> None:
    keys = {"method": method, **sampled(config, method, seed, round_)}
    if turns:
        _turns(layout, config, keys)
        _credits(layout, keys)
    metrics(layout, "credit", keys, seconds=0.1)
    _updates(layout, keys)
    metrics(layout, "update", keys, seconds=3.0, steps=1.0, sequences=8.0, tokens=100.0)
    if round_ in config.eval_rounds():
        _evals(layout, config, keys)
        metrics(layout, "eval", keys, seconds=2.0)


def chance(config: Experiment, method: str, seed: int, round_: int) -> float:
    """The probability of success that the formula gives this policy on an average game."""
    if is_start(method):
        return STARTS.get(method, START)
    rise = 1 / (1 + np.exp(-(round_ - config.rounds / 3) / (config.rounds / 8)))
    swing = generator("swing", method, seed, round_).normal() * 0.02 + generator("run", method, seed).normal() * 0.015
    return float(np.clip(START + (CEILINGS.get(method, 0.55) - START) * rise + swing, 0.02, 0.98))


def _evals(layout: Layout, config: Experiment, keys: dict) -> None:
    method, seed, round_ = (keys[name] for name in ("method", "seed", "round"))
    rows, splits = [], config.tasks.eval_split
    splits = [splits] if isinstance(splits, str) else splits
    for mode in config.eval.modes:
        for game in range(config.eval.games):
            task = f"eval-{round_:02d}-{game:04d}" if config.eval.fresh else f"eval-{game:04d}"
            hard = generator("game", task).normal() * 0.15
            luck = generator("luck", method, seed, task, mode.name, round_).random()
            won = bool(luck < chance(config, method, seed, round_) + hard)
            turns = int(generator("turns", task).integers(6, 15)) if won else 20
            rows.append(
                {
                    "policy_id": round_name(method, seed, round_),
                    "method": method,
                    "seed": seed,
                    "round": round_,
                    "mode": mode.name,
                    "split": splits[game % len(splits)],
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
    tables.write(pa.Table.from_pylist(rows), layout.path("evals", keys), "evals", MADE_BY)


def _turns(layout: Layout, config: Experiment, keys: dict) -> None:
    """The turns that a policy sampled, and the metrics of sampling them, once."""
    path = Path(layout.path("turns", keys))
    if path.exists():
        return
    metrics(layout, "rollout", keys, seconds=6.0)
    method = keys["policy"].partition("-")[0]
    seed, round_ = keys["seed"], keys["round"]
    rng = generator("train", method, seed, round_)
    rows = []
    for group in range(config.rollout.tasks):
        for copy in range(config.rollout.group_size):
            won, length = bool(rng.random() < chance(config, method, seed, round_)), int(rng.integers(3, 7))
            for turn in range(length):
                given = {"length": length, "success": won, "family": FAMILIES[group % 6]}
                given |= {
                    "valid": bool(rng.random() < 0.7),
                    "policy_id": sampler_id(keys["policy"], seed, round_),
                    "seed": seed,
                }
                name = f"train-{round_}-{group}"
                rows.append(turn_row(name, f"{name}#{copy}", turn, temperature=config.rollout.temperature, **given))
    for name in ("turns", "measures"):
        table = pa.Table.from_pylist(rows, schema=tables.schema(name))
        tables.write(table, layout.path(name, keys), name, MADE_BY)


def _credits(layout: Layout, keys: dict) -> None:
    path = Path(layout.path("credits", keys))
    if path.exists():
        return
    method = keys["method"]
    table = tables.read(layout.path("turns", keys), "turns").select(list(tables.KEYS))
    advantage = generator("credit", method).normal(size=table.num_rows)
    table = table.append_column("method", pa.array([method] * table.num_rows))
    table = table.append_column("advantage", pa.array(advantage))
    for term in ("trajectory", "turn_term"):
        table = table.append_column(term, pa.array(advantage / 2))
    tables.write(table, path, "credits", MADE_BY)


def _updates(layout: Layout, keys: dict) -> None:
    method, seed, round_ = (keys[name] for name in ("method", "seed", "round"))
    row = {"policy_id": round_name(method, seed, round_), "step": 0, "epoch": 0, "loss": 0.1, "grad_norm": 1.0}
    row |= {"lr": 1e-3, "clip_fraction": 0.0, "ratio_max": 1.0, "entropy": 0.5, "kl": None}
    row |= {"tokens": 100, "sequences": 8, "zero_sequences": 2}
    path = layout.path("updates", keys)
    tables.write(pa.Table.from_pylist([row], schema=tables.schema("updates")), path, "updates", MADE_BY)


def metrics(layout: Layout, stage: str, keys: dict, seconds: float, **numbers: float) -> Path:
    """What a job of `stage` leaves of itself, `numbers` among it. The file."""
    path = layout.root / fill(stages()[stage].metrics, keys)
    path.parent.mkdir(parents=True, exist_ok=True)
    measured = {"stage": stage, "started": 1.7e9, "wall_s": seconds, "cpu_s": seconds * 0.9, "peak_mb": 500.0}
    path.write_text(json.dumps({**measured, "metrics": numbers or {"success": 0.5}}))
    return path


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
    layout = Layout(folder)
    for seed in config.seeds:
        for round_ in rounds:
            keys = sampled(config, run, seed, round_)
            _branches(layout, keys)
            for method in FIDELITY:
                _credits(layout, {**keys, "method": method})
            _labels(layout, keys)
            _scores(layout, keys)
            _holds(layout, run, keys, broken=broken and round_ == rounds[-1])
            metrics(layout, "branch", keys, seconds=9.0)
            page = Path(layout.path("pages", keys))
            page.parent.mkdir()
            page.write_text("<title>pages</title>", encoding="utf-8")


def _branches(layout: Layout, place: dict) -> None:
    keys = tables.read(layout.path("turns", place), "turns").select([*tables.KEYS, "success"]).to_pylist()
    seed = place["seed"]
    rng = generator("branch", seed, len(keys))
    rows = [branch_row(key, q=0.5 + float(rng.normal() * 0.2), policy_id="x") for key in keys]
    path = layout.path("branches", place)
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("branches")), path, "branches", MADE_BY)


def _labels(layout: Layout, place: dict) -> None:
    keys = tables.read(layout.path("turns", place), "turns").select(list(tables.KEYS)).to_pylist()
    rows = [label_row(key, "DENR"[number % 4]) for number, key in enumerate(keys)]
    path = layout.path("labels", place, judge="rule", question="role")
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("labels")), path, "labels", MADE_BY)


def _scores(layout: Layout, keys: dict) -> None:
    seed, round_ = keys["seed"], keys["round"]
    rng = generator("scores", seed, round_)
    scored, signal, leaks, groups = [], [], [], 12
    for method, (rank, snr) in FIDELITY.items():
        values = {"rank_correlation": (rank, 0.6), "sign_agreement": (0.5 + rank / 2, 0.85), "error": (0.9, None)}
        values |= {"regression_auc": (0.5 + rank / 3, 0.8), "useful_auc": (0.5 + rank / 3, 0.8)}
        values |= {"pooled_correlation": (rank + 0.1, None)}
        for measure, (value, ceiling) in values.items():
            at = value + rng.normal() * 0.01
            row = {"method": method, "measure": measure, "subset": "all", "value": at, "low": at - 0.05}
            scored.append(row | {"high": at + 0.05, "turns": 60, "groups": groups, "ceiling": ceiling})
        early = {"method": method, "measure": "bias", "subset": "position:early", "value": 0.1, "low": 0.0, "high": 0.2}
        scored.append(early | {"turns": 20, "groups": groups, "ceiling": None})
        cosines = {"cosine_flat": rank, "cosine_truth": rank}
        for measure, value in {"snr": snr, "signal": snr * 2, "noise": 2.0, **cosines}.items():
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
        tables.write(pa.Table.from_pylist(rows, schema=tables.schema(name)), layout.path(name, keys), name, MADE_BY)


def _holds(layout: Layout, run: str, keys: dict, *, broken: bool) -> None:
    rows = []
    for name in ("keys", "success", "conservation"):
        at = {"run": run, "seed": keys["seed"], "round": keys["round"], "name": name, "checked": 16}
        fails = broken and name == "conservation"
        worst = (0.3 if fails else 1e-7) if name == "conservation" else None
        rows.append(at | {"holds": not fails, "worst": worst, "detail": "rollout 3 is off by 0.3" if fails else ""})
    path = layout.path("rollout_invariants", keys)
    tables.write(pa.Table.from_pylist(rows, schema=tables.schema("invariants")), path, "invariants", MADE_BY)
