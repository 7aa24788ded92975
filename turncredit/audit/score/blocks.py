"""Numbers with standard errors: functions of sums over groups, exact where all groups were enumerated."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from turncredit.audit.score.groups import Groups

#: Blocks of drawn groups that the jackknife leaves out one at a time.
BLOCKS = 32


class Measured(NamedTuple):
    """A number and its standard error: 0 where it is exact, NaN with the number where there is none."""

    value: float
    error: float


def measured(groups: Groups, x_GK: np.ndarray, of: Callable[[np.ndarray], float]) -> Measured:
    """`of` the weighted mean over groups of `x_GK` (G, K), with the error of a jackknife over blocks of groups."""
    value = of(groups.weight_G @ x_GK)
    if groups.enumerated or not np.isfinite(value):
        return Measured(value, 0.0 if groups.enumerated else np.nan)
    without_B = np.array([of(mean_K) for mean_K in without_each_block(x_GK)])
    spread = ((without_B - without_B.mean()) ** 2).sum()
    return Measured(value, float(np.sqrt((len(without_B) - 1) / len(without_B) * spread)))


def without_each_block(x_GK: np.ndarray) -> np.ndarray:
    """The means of drawn groups without each of the blocks (B, K)."""
    starts = np.unique(np.linspace(0, len(x_GK), BLOCKS + 1).astype(int)[:-1])
    sum_BK = np.add.reduceat(x_GK, starts, axis=0)
    count_B = np.diff(np.append(starts, len(x_GK)))
    return (sum_BK.sum(0) - sum_BK) / (len(x_GK) - count_B)[:, None]
