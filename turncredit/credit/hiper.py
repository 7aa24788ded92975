"""HiPER: hierarchical advantages of an agent that plans in subgoals, within each subgoal and from one to the next."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, Share, standardise
from turncredit.credit.ppo import trained_values_N
from turncredit.data.turns import Turns


def hiper(
    turns: Turns, *, gamma: Share = 1.0, lam: Share = 1.0, lam_seg: Share = 0.95, eps: NonNegative = 1e-8
) -> dict[str, np.ndarray]:
    """A_t = A_low(t), plus A_high(k) on the first turn of segment k; each relative to its own over the batch.

    A segment is a stretch of turns under one subgoal; the first turn of a rollout starts one.
    A_low   = GAE(gamma, lam) within the segment, whose last turn leads to the value of the next segment's first
              turn, or to 0 at the rollout's end
    A_high  = delta + gamma^d lam_seg A_high(next segment), delta = (sum of gamma^i r) + gamma^d V(next) - V(start),
              with d the segment's turns and i counted in it; no next segment: 0
    Both: (x - mean) / (population std + eps), A_low over all turns, A_high over all segments.

    Source: HiPER (arXiv 2602.16165) and its code at 9d3c118, `hiper_hae/core_hae.py`; gamma, lam and lam_seg are those
    of its configuration, the normalisation is its scripts'. Departures: there A_low is for the tokens of the action and
    A_high for those of the subgoal; a turn here has one advantage. One value serves both levels, which the code has as
    a fallback. Left out: the third head for the decision to switch, and the penalties for keeping a subgoal.

    Reads `subgoal_index` and the side table `values`. Returns `value`, `value_target` (A_low + V, before it is made
    relative), `advantage_low`, `advantage_high` (0 but on first turns), `advantage` (each N).
    """
    value_N = trained_values_N(turns, "hiper")
    index_N = turns.numbers("subgoal_index", "hiper")
    starts_N = (turns.turn_N == 0) | (turns.previous_N(index_N, 0.0) != index_N)
    leaves_N = turns.next_N(starts_N, True)  # the turn after this one has another subgoal, or there is none
    next_N = turns.next_N(value_N, 0.0)
    low_N = turns.discounted_sum_N(turns.reward_N + gamma * next_N - value_N, np.where(leaves_N, 0.0, gamma * lam))
    # U_t = r_t + gamma U_{t+1} within a segment, and gamma (V + lam_seg (U - V)) of the next segment's first turn
    # after its last: at a segment's first turn U - V is A_high.
    ahead_N = turns.discounted_sum_N(
        turns.reward_N + np.where(leaves_N, gamma * (1.0 - lam_seg) * next_N, 0.0),
        np.where(leaves_N, gamma * lam_seg, gamma),
    )
    high_N = np.zeros(turns.n)
    first = np.flatnonzero(starts_N)
    high_N[first] = _relative(ahead_N[first] - value_N[first], eps)
    relative_N = _relative(low_N, eps)
    return {
        "value": value_N,
        "value_target": low_N + value_N,
        "advantage_low": relative_N,
        "advantage_high": high_N,
        "advantage": relative_N + high_N,
    }


def _relative(x_M: np.ndarray, eps: float) -> np.ndarray:
    batch_M = np.zeros(len(x_M), dtype=np.int64)
    return standardise(x_M, batch_M, 1, norm="mean_std", ddof=0, eps=eps, singleton="zero")


HIPER = Part("hiper", hiper, "estimator", reads=("subgoal_index",), model="critic")

PARTS = (HIPER,)
METHODS = (Method("hiper", "GAE within each subgoal, and from subgoal to subgoal on the turn that sets one", HIPER),)
