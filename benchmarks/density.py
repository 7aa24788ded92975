"""How dense are decisive turns? python -m benchmarks.density [SET]

The density rho of a world and policy: the share of turns that carry the true advantage. If a share rho of turns has an
advantage of +-a and the others 0, (E A^2)^2 / E A^4 = rho; of other advantages it is the effective share. Both moments
are corrected for noise: the halves' estimates of A* have independent errors. 95% intervals by a bootstrap over tasks.

Whether gains of turn-level credit follow rho is a question of https://arxiv.org/abs/2606.22164.
"""

from __future__ import annotations

import sys
from typing import NamedTuple

import numpy as np

from turncredit.audit.score import rollout_set

#: Samples of the bootstrap.
SAMPLES = 2000


class Density(NamedTuple):
    """The density, its 95% interval, the root mean square of the true advantage, and the number of turns."""

    rho: float
    low: float
    high: float
    size: float
    turns: int


def density(first_N: np.ndarray, second_N: np.ndarray, se_N: np.ndarray, group_N: np.ndarray, seed: int = 0) -> Density:
    """The density from two independent estimates of each turn's advantage.

    se_N     standard error of the mean of both, so that a half's squared error is 2 se^2
    group_N  the task of each turn, by which the bootstrap samples
    """
    square_N = first_N * second_N
    fourth_N = (first_N**2 - 2 * se_N**2) * (second_N**2 - 2 * se_N**2)
    _, group_N = np.unique(group_N, return_inverse=True)
    sums = np.stack([np.bincount(group_N, x) for x in (square_N, fourth_N, np.ones(len(square_N)))])
    drawn = np.random.default_rng(seed).integers(sums.shape[1], size=(SAMPLES, sums.shape[1]))
    rho_S = np.array([_rho(*sums[:, draw].sum(1)) for draw in drawn])
    known_S = rho_S[np.isfinite(rho_S)]
    low, high = np.quantile(known_S, [0.025, 0.975]) if len(known_S) else (np.nan, np.nan)
    return Density(_rho(*sums.sum(1)), low, high, float(np.sqrt(max(square_N.mean(), 0))), len(square_N))


def _rho(square: float, fourth: float, turns: float) -> float:
    return (square / turns) ** 2 / (fourth / turns) if fourth > 0 else np.nan


def main(folder: str | None = None) -> None:
    """Print the density in each part of a set of rollouts with true advantages, by default the package's own."""
    found = rollout_set.load(folder) if folder else rollout_set.built_in()
    print("| rollouts | turns | root mean square of A* | density rho |", "|---|---:|---:|---:|", sep="\n")
    for part in found.parts:
        columns = ("advantage_first_half", "advantage_second_half", "advantage_true_se", "group_id")
        one = density(*(part.branches.column(name).to_numpy(zero_copy_only=False) for name in columns))
        print(f"| {part.name} | {one.turns} | {one.size:.3f} | {one.rho:.3f} ({one.low:.3f} to {one.high:.3f}) |")


if __name__ == "__main__":
    main(*sys.argv[1:])
