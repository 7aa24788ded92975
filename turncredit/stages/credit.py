"""Stage `credit`: a method's advantages, and every component they were made from, for a table of turns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from turncredit import tables
from turncredit.config import Experiment
from turncredit.credit import compute, resolve
from turncredit.seeding import derive_seed
from turncredit.turns import Turns


def credit(
    *,
    experiment: Experiment,
    method: str,
    seed: int,
    round: int,
    turns: str | Path,
    side: Mapping[str, str | Path],
    out: str | Path,
) -> dict[str, float]:
    """Write the credits of `turns` by `method`. `side` names the side tables that the method reads."""
    entry = experiment.define.get(method)
    resolved = resolve(experiment.definition(method), method)
    view = Turns(
        tables.read(turns, "turns"), {name: tables.read(path, name) for name, path in side.items()}, where=str(turns)
    )
    table = compute(view, resolved, seed=derive_seed(seed, "credit", round))
    made_by = tables.provenance(
        "credit",
        config={"method": method, "define": entry.model_dump() if entry else None, "round": round},
        inputs={"turns": turns, **side},
        seed=seed,
    )
    tables.write(table, out, "credits", made_by)
    advantage_N = table.column("advantage").to_numpy()
    return {
        "advantage_rms": float(np.sqrt(np.mean(advantage_N**2))),
        "advantage_zero": float(np.mean(advantage_N == 0)),
    }
