"""Why does the environment's own progress not help? A control for has_progressive, and what its credit looks like.

snakemake --configfile config/progressive.yaml
python -m benchmarks.methods.progressive results/progressive
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np

from turncredit.config.layout import Layout
from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.has import progressive, shape
from turncredit.data import tables
from turncredit.data.seeding import generator
from turncredit.data.turns import Turns


def progressive_shuffled(turns: Turns, *, alpha: float = 0.5, seed: int = 0) -> dict[str, np.ndarray]:
    """HAS on changes of progress that are permuted within each rollout: the same numbers, which say nothing."""
    credit_N = change_N(turns)
    rng = generator(seed, "shuffled progress")
    for first, length in zip(turns.first_R, turns.length_R, strict=True):
        rows = slice(int(first), int(first + length))
        credit_N[rows] = rng.permutation(credit_N[rows])
    base_N = flat_grpo(turns)["advantage"]
    return shape(turns, base_N, credit_N, alpha=alpha, turn_norm="position", ddof=1, eps=1e-6)


def change_N(turns: Turns) -> np.ndarray:
    """By how much each turn changed the environment's progress (N,)."""
    return turns.numbers("progress", "this") - turns.numbers("progress_before", "this")


def looks(turns: Turns) -> dict[str, float]:
    """Shares of turns, and of the turn term, that has_progressive's credit on these turns consists of."""
    credit_N = change_N(turns)
    before_N, after_N = (turns.numbers(name, "this") for name in ("distance_before", "distance"))
    nearer_N = (after_N >= 0) & (after_N < before_N)  # -1: the goal cannot be reached
    turn_N = progressive(turns, flat_grpo(turns)["advantage"])["advantage_turn"]
    won_N = (turns.return_R > 0)[turns.rollout_N]
    last_N = np.zeros(turns.n, dtype=bool)
    last_N[turns.last_R] = True
    rises_N, none_N = credit_N > 0, credit_N == 0
    return {
        "progress rises in": rises_N.mean(),
        "progress falls in": (credit_N < 0).mean(),
        "rises that are the success itself": (rises_N & won_N & last_N).sum() / rises_N.sum(),
        "share of the turn term's square on turns with a change": (turn_N[~none_N] ** 2).sum() / (turn_N**2).sum(),
        "mean turn term of turns without a change, successes": turn_N[none_N & won_N].mean(),
        "mean turn term of turns without a change, failures": turn_N[none_N & ~won_N].mean(),
        "turns that bring the goal nearer with a negative turn term": (turn_N[nearer_N] < 0).mean(),
    }


def main(results: str) -> None:
    """Print the means over the tables of rounds 1, 5 and 10 of flat GRPO's runs."""
    layout = Layout(Path(results))
    for round in (1, 5, 10):
        rows = []
        for at in layout.find("measures", round=round):
            if round > 1 and at.keys["policy"] != "flat_grpo":
                continue
            turns, measures = (tables.read(layout.path(name, at.keys), name) for name in ("turns", "measures"))
            rows.append(looks(Turns(turns, {"measures": measures})))
        for name in rows[0] if rows else ():
            print(f"round {round:2d}  {name:60s} {np.mean([row[name] for row in rows]):+.2f}  ({len(rows)} tables)")


if __name__ == "__main__":
    main(sys.argv[1])
