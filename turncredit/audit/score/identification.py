"""Does the credit find the turns that mattered? Within rollouts, so that knowing who won is worth nothing."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turncredit.audit.score.blocks import Measured, measured
from turncredit.audit.score.groups import Groups
from turncredit.stats.bootstrap import ratio, sums_by
from turncredit.stats.rank_correlation import mean_correlation, within

#: Credits and advantages are compared to so many decimals of their standard deviation. Smaller differences, such as
#: those that an `eps` in a divisor makes, do not order two turns.
DECIMALS = 3


@dataclass(frozen=True)
class Identification:
    """Agreement of credit and true advantage, turn by turn.

    rank      Spearman's correlation within rollouts, mean with the weight n - 1; constant credit has 0
    sign      share of turns that change something whose credit has the right sign; a credit of 0 is half right
    top       share of rollouts in which the turn whose credit is furthest from the rollout's mean is the one whose true
              advantage is; ties are shared
    chance    the same share for a turn picked at random
    """

    rank: Measured
    sign: Measured
    top: Measured
    chance: Measured


def identification(groups: Groups, advantage_N: np.ndarray) -> Identification:
    """The identification of a credit (N). NaN where no turn changes anything."""
    advantage_N, truth_N = in_deviations(advantage_N), in_deviations(groups.truth_N)
    rollouts = len(groups.length_R)
    group_R = np.arange(rollouts) // groups.size
    ranked = within(advantage_N, truth_N, groups.rollout_N, rollouts)
    ranks = mean_correlation(ranked, group_R, groups.count).sums_GK
    matters_N = truth_N != 0
    right_N = np.where(advantage_N == 0, 0.5, np.sign(advantage_N) == np.sign(truth_N))
    signs = sums_by(groups.group_N, groups.count, matters_N * right_N, matters_N)
    found_N, true_N = (furthest(x_N, groups.rollout_N, rollouts) for x_N in (advantage_N, truth_N))
    differs_R = np.logical_or.reduceat(~true_N, groups.first_R)
    hit_R = np.add.reduceat(found_N & true_N, groups.first_R) / np.add.reduceat(found_N, groups.first_R)
    share_R = np.add.reduceat(true_N, groups.first_R) / groups.length_R
    tops = sums_by(group_R, groups.count, differs_R * hit_R, differs_R)
    chances = sums_by(group_R, groups.count, differs_R * share_R, differs_R)
    return Identification(*(measured(groups, sums_GK, _ratio) for sums_GK in (ranks, signs, tops, chances)))


def in_deviations(x_N: np.ndarray) -> np.ndarray:
    """A column in units of its standard deviation, rounded."""
    spread = x_N.std()
    return np.round(x_N / spread, DECIMALS) if spread > 0 else x_N


def _ratio(sums_K: np.ndarray) -> float:
    return float(ratio(sums_K))


def furthest(x_N: np.ndarray, rollout_N: np.ndarray, rollouts: int) -> np.ndarray:
    """Which turns (bool, N) are furthest from the mean of their rollout; all of them where they are equal."""
    count_R = np.maximum(np.bincount(rollout_N, minlength=rollouts), 1)
    off_N = np.abs(x_N - (np.bincount(rollout_N, x_N, rollouts) / count_R)[rollout_N])
    most_R = np.zeros(rollouts)
    np.maximum.at(most_R, rollout_N, off_N)
    return off_N >= most_R[rollout_N] - 1e-9
