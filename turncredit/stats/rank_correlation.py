"""Rank statistics: Spearman's correlation within cells and of a few points, and the area under the ROC curve.

There is one implementation, so that pages, terminal output and tables agree about the same turns. A cell is usually a
rollout; R cells are numbered from 0, and `cell_N` is sorted.
"""

from __future__ import annotations

from itertools import permutations
from typing import NamedTuple

import numpy as np

from turncredit.stats.bootstrap import Statistic, ratio, sums_by
from turncredit.stats.levels import normal_half

#: Rollouts with fewer scored turns are not informative about an order.
FEWEST = 3
#: With fewer points the interval of one rank correlation is not informative.
FEWEST_POINTS = 5
#: Up to this many points p is from all their orders.
ALL_ORDERS = 7
#: What is at most this share of a table's largest magnitude may be rounding alone.
NOISE = 16 * np.finfo(float).eps


class Ranked(NamedTuple):
    """Spearman's correlation of x and y in each of R cells.

    rho_R       the correlation; 0 where x or y is the same on all turns
    count_R     number of turns of the cell
    scored_R    whether it counts: at least 3 turns, and y differs between them
    varies_R    whether x differs between them, as opposed to a constant credit
    """

    rho_R: np.ndarray
    count_R: np.ndarray
    scored_R: np.ndarray
    varies_R: np.ndarray


def rounded(x_N: np.ndarray) -> np.ndarray:
    """A column divided by its largest magnitude, to 12 decimals: values that differ only by rounding become equal, or
    0.

    Ties among differences of shares of continuations (.3 - .2 and .2 - .1) and among projected credits are then decided
    by their meaning and not by their last bits.
    """
    largest = np.abs(x_N).max(initial=0)
    return np.round(x_N / largest, 12) if largest > 0 else x_N


def ranks(x_N: np.ndarray, cell_N: np.ndarray) -> np.ndarray:
    """Rank of each value within its cell, from 0; equal values share their mean rank.

    Values are equal up to rounding (as `rounded`) beside the largest magnitude of their own cell, so that no rank
    depends on another cell's scale. A cell whose values are all rounding beside the largest of the table is constant.
    """
    if not len(x_N):
        return np.zeros(0)
    largest_R = np.zeros(int(cell_N[-1]) + 1)
    np.maximum.at(largest_R, cell_N, np.abs(x_N))
    scale_N = largest_R[cell_N]
    with np.errstate(divide="ignore", invalid="ignore"):
        x_N = np.where(scale_N > NOISE * scale_N.max(), np.round(x_N / scale_N, 12), 0.0)
    order = np.lexsort((x_N, cell_N))
    x, cell = x_N[order], cell_N[order]
    new = np.ones(len(x), dtype=bool)
    new[1:] = (x[1:] != x[:-1]) | (cell[1:] != cell[:-1])
    start = np.flatnonzero(new)
    size = np.diff(np.append(start, len(x)))
    mean = start + (size - 1) / 2
    first_of_cell = np.searchsorted(cell_N, np.arange(int(cell_N[-1]) + 1))
    out_N = np.empty(len(x))
    out_N[order] = np.repeat(mean, size) - first_of_cell[cell]
    return out_N


def within(x_N: np.ndarray, y_N: np.ndarray, cell_N: np.ndarray, cells: int) -> Ranked:
    """Spearman's correlation of x and y within each cell. Ties share mean ranks."""
    return of_ranks(ranks(x_N, cell_N), ranks(y_N, cell_N), cell_N, cells)


def of_ranks(x_N: np.ndarray, y_N: np.ndarray, cell_N: np.ndarray, cells: int) -> Ranked:
    """`within` of columns that are `ranks` already."""
    count_R = np.bincount(cell_N, minlength=cells)
    middle_N = (count_R[cell_N] - 1) / 2
    u_N, v_N = x_N - middle_N, y_N - middle_N
    uv_R, uu_R, vv_R = sums_by(cell_N, cells, u_N * v_N, u_N**2, v_N**2).T
    rho_R = np.divide(uv_R, np.sqrt(uu_R * vv_R), out=np.zeros(cells), where=(uu_R > 0) & (vv_R > 0))
    return Ranked(rho_R, count_R, (count_R >= FEWEST) & (vv_R > 0), uu_R > 0)


def mean_correlation(ranked: Ranked, group_R: np.ndarray, groups: int) -> Statistic:
    """Mean of the scored cells' correlations with the weight n - 1, n the cell's turns; `group_R` in 0..groups-1.

    If credit is uninformative, Spearman's correlation of n turns has the variance 1 / (n - 1). The weights are the
    inverse variances, so that rollouts of three turns, whose correlation is mostly chance, count least.
    """
    weight_R = np.where(ranked.scored_R, ranked.count_R - 1, 0)
    sums_GK = sums_by(group_R, groups, weight_R * ranked.rho_R, weight_R)
    return Statistic(sums_GK, ratio, int(ranked.count_R[ranked.scored_R].sum()))


def auc(score_M: np.ndarray, positive_M: np.ndarray) -> float:
    """The probability that a positive's score is above a negative's, ties counting half (area under the ROC curve).

    NaN where all or none are positive.
    """
    return float(weighted_auc(score_M, positive_M, np.ones((1, len(score_M))))[0])


def weighted_auc(score_M: np.ndarray, positive_M: np.ndarray, weight_BM: np.ndarray) -> np.ndarray:
    """`auc` for each of B weightings of the M scores (B), such as the counts of a resample.

    Its pairs cross groups, so unlike the audit's other statistics it is not a function of sums over groups.
    """
    if positive_M.all() or not positive_M.any():
        return np.full(len(weight_BM), np.nan)
    place_M = np.unique(score_M, return_inverse=True)[1]
    order_M = np.argsort(place_M, kind="stable")
    first = np.flatnonzero(np.diff(place_M[order_M], prepend=-1))
    weight_BM = weight_BM[:, order_M]
    won_BP = np.add.reduceat(weight_BM * positive_M[order_M], first, axis=1)
    lost_BP = np.add.reduceat(weight_BM * ~positive_M[order_M], first, axis=1)
    below_BP = np.cumsum(lost_BP, axis=1) - lost_BP / 2
    with np.errstate(invalid="ignore"):
        return (won_BP * below_BP).sum(1) / (won_BP.sum(1) * lost_BP.sum(1))


def spearman(x_N: np.ndarray, y_N: np.ndarray) -> tuple[float, float, float, float]:
    """(rho, low, high, p): Spearman's rank correlation of a few points.

    The interval is Bonett and Wright's (2000), atanh(rho) +- 1.96 sqrt((1 + rho^2 / 2) / (n - 3)), NaN under five
    points. `p` is two-sided by permutation: of all orders up to seven points, above of 10,000 orders: the one seen, so
    that p is never 0, and random ones. It does not include the points' own errors.
    """
    together = np.zeros(len(x_N), dtype=np.int64)
    x, y = (ranks(column, together) - (len(column) - 1) / 2 for column in (x_N, y_N))
    size = float(np.sqrt((x @ x) * (y @ y)))
    if size == 0:
        return 0.0, float("nan"), float("nan"), 1.0
    rho = float(x @ y / size)
    if len(x) <= ALL_ORDERS:
        shuffled = np.array(list(permutations(y)))
    else:
        shuffled = np.vstack([y, np.random.default_rng(0).permuted(np.tile(y, (9_999, 1)), axis=1)])
    p = float((np.abs(shuffled @ x / size) >= abs(rho) - 1e-9).mean())
    if len(x) < FEWEST_POINTS:
        return rho, float("nan"), float("nan"), p
    middle = np.arctanh(np.clip(rho, -0.9999, 0.9999))
    half = normal_half(float(np.sqrt((1 + rho**2 / 2) / (len(x) - 3))))
    return rho, float(np.tanh(middle - half)), float(np.tanh(middle + half)), p
