"""Rollouts whose true advantages are known exactly, and noisy estimates of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq


def make(*, groups=32, rollouts=8, turns=10, se=0.1, sparse=0.4, spread=0.2, seed=0):
    """Columns by name: keys, success, reward, family, valid, the exact `truth`, its estimate and the error's `se`.

    A share `sparse` of the turns changes nothing; the others have normal advantages, and a rollout succeeds if they add
    up to more than nothing.
    """
    rng = np.random.default_rng(seed)
    shape = (groups, rollouts, turns)
    truth = rng.normal(scale=spread, size=shape) * (rng.random(shape) > sparse)
    success = (truth.sum(-1) + rng.normal(scale=0.1, size=shape[:2]) > 0)[..., None].repeat(turns, -1)
    g, r, t = np.indices(shape)
    reward = success & (t == turns - 1)
    se = np.broadcast_to(se, shape) * rng.uniform(0.7, 1.3, size=shape)
    columns = {
        "group_id": np.char.add("g", g.ravel().astype(str)),
        "rollout_id": np.char.add(np.char.add("g", g.ravel().astype(str)), np.char.add("#", r.ravel().astype(str))),
        "turn": t.ravel().astype(np.int32),
        "success": success.ravel(),
        "reward": reward.ravel().astype(float),
        "family": np.where(g.ravel() % 2 == 0, "even", "odd"),
        "valid": rng.random(shape).ravel() > 0.3,
        "truth": truth.ravel(),
        "estimate": (truth + se * rng.normal(size=shape)).ravel(),
        "se": se.ravel(),
    }
    returns = success[..., 0].astype(float)
    flat = (returns - returns.mean(1, keepdims=True)) / (returns.std(1, ddof=1, keepdims=True) + 1e-6)
    columns["flat"] = flat[..., None].repeat(turns, -1).ravel()
    columns["noise"] = rng.normal(size=shape).ravel()
    return columns


KEYS = ("group_id", "rollout_id", "turn")


def write(folder: Path, columns, methods, *, rows=slice(None)) -> dict[str, Path]:
    """The three tables as files: all turns, the credits of `methods` (name -> column), the truth of some `rows`."""
    keys = {name: columns[name] for name in KEYS}
    turns = {**keys, **{name: columns[name] for name in ("success", "reward", "family", "valid")}}
    count = len(columns["turn"])
    credits = {
        **{name: np.concatenate([column] * len(methods)) for name, column in keys.items()},
        "method": np.repeat(list(methods), count),
        "advantage": np.concatenate([np.asarray(column, dtype=float) for column in methods.values()]),
    }
    branches = {name: column[rows] for name, column in keys.items()}
    branches |= {"advantage_true": columns["estimate"][rows], "advantage_true_se": columns["se"][rows]}
    paths = {}
    for name, table in (("turns", turns), ("credits", credits), ("branches", branches)):
        paths[name] = folder / f"{name}.parquet"
        pq.write_table(pa.table({key: pa.array(column) for key, column in table.items()}), paths[name])
    return paths
