"""Statistics as functions of sums over task groups, and their bootstrap intervals.

Rollouts of a group share a task and their advantages are relative to each other, so groups are the independent units,
and groups are resampled. A statistic that is a function of sums over groups costs one matrix product for all resamples
together, whatever the number of turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from turncredit.stats.distributions import normal_cdf, student_quantile
from turncredit.stats.levels import LEVEL

#: With fewer groups than this an interval is little more than their range: it is neither shown nor marked.
FEWEST_GROUPS = 8
#: More groups than this are resampled in blocks: sums over blocks of independent groups are independent, too.
BLOCKS = 1024


@dataclass(frozen=True)
class Statistic:
    """A number that is a function of sums over groups.

    sums_GK (G, K)   K sums over each group's turns or rollouts
    of               from sums (..., K) to values (...); NaN where undefined
    turns            the number of turns behind it
    decisive_K       (K, bool) the sums that say whether a group contributes, by not all being zero; None: all of them
    """

    sums_GK: np.ndarray
    of: Callable[[np.ndarray], np.ndarray]
    turns: int
    decisive_K: np.ndarray | None = None

    @property
    def value(self) -> float:
        """The statistic of all groups."""
        return float(self.of(self.sums_GK.sum(0)))

    @property
    def groups(self) -> int:
        """The number of groups that contribute."""
        decisive_GK = self.sums_GK if self.decisive_K is None else self.sums_GK[:, self.decisive_K]
        return int(np.any(decisive_GK != 0, axis=1).sum())


@dataclass(frozen=True)
class Resamples:
    """The resamples: how often each group is drawn. All statistics share them, so that differences are paired.

    groups   number of groups (G); count   number of resamples (B)
    """

    groups: int
    count: int
    seed: int

    @cached_property
    def weight_BJ(self) -> np.ndarray:
        """Draws (B, J) of each of J = min(G, 1024) blocks."""
        blocks = min(self.groups, BLOCKS)
        rng = np.random.default_rng(self.seed)
        drawn = rng.integers(blocks, size=(self.count, blocks)) + blocks * np.arange(self.count)[:, None]
        return np.bincount(drawn.ravel(), minlength=self.count * blocks).reshape(self.count, blocks).astype(float)

    def blocks(self, sums_GK: np.ndarray) -> np.ndarray:
        """Sums over blocks (J, K)."""
        if self.groups <= BLOCKS:
            return sums_GK
        starts = np.linspace(0, self.groups, BLOCKS + 1).astype(int)[:-1]
        return np.add.reduceat(sums_GK, starts, axis=0)

    def weights(self, group_M: np.ndarray) -> np.ndarray:
        """How often each resample draws each of M rows (B, M), by the row's group in 0..G-1: for statistics that are
        not functions of sums over groups."""
        if self.groups <= BLOCKS:
            return self.weight_BJ[:, group_M]
        starts = np.linspace(0, self.groups, BLOCKS + 1).astype(int)[:-1]
        return self.weight_BJ[:, np.searchsorted(starts, group_M, side="right") - 1]

    def values(self, statistic: Statistic) -> np.ndarray:
        """The statistic in each resample (B,)."""
        return self.values_of([statistic])[0]

    def values_of(self, statistics: Sequence[Statistic]) -> list[np.ndarray]:
        """`values` of several, with one matrix product."""
        together = np.concatenate([self.blocks(statistic.sums_GK) for statistic in statistics], axis=1)
        sums_BK = self.weight_BJ @ together
        ends = np.cumsum([statistic.sums_GK.shape[1] for statistic in statistics])
        parts = np.split(sums_BK, ends[:-1], axis=1)
        return [statistic.of(part) for statistic, part in zip(statistics, parts, strict=True)]

    def interval(self, value_B: np.ndarray, groups: int, level: float = LEVEL) -> tuple[float, float]:
        """The expanded percentile interval of resampled values (Hesterberg 2015, section 4.4); NaN below two groups.

        The percentiles are moved outwards, according to Student's t with groups - 1 degrees of freedom and the factor
        sqrt(G / (G - 1)): plain percentiles of few groups are too narrow. Resamples in which the statistic is not
        defined are left out.
        """
        value_B = value_B[np.isfinite(value_B)]
        if groups < 2 or not len(value_B):
            return float("nan"), float("nan")
        tail = normal_cdf(np.sqrt(groups / (groups - 1)) * student_quantile(groups - 1, (1 - level) / 2))
        low, high = np.quantile(value_B, [tail, 1 - tail])
        return float(low), float(high)


def ratio(sums: np.ndarray) -> np.ndarray:
    """The first sum over the second, NaN where the second is zero."""
    bottom = sums[..., 1]
    return np.divide(sums[..., 0], bottom, out=np.full(bottom.shape, np.nan), where=bottom != 0)


def sums_by(cell_M: np.ndarray, cells: int, *columns_M: np.ndarray) -> np.ndarray:
    """Sums of each column over each cell: (cells, K)."""
    return np.stack([np.bincount(cell_M, np.asarray(x_M, dtype=float), cells) for x_M in columns_M], axis=1)
