"""LOTAPO: a turn is worth what the gold answer loses in likelihood when the turn is deleted from the rollout."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, add, standardise
from turncredit.credit.parts.logprobs import gold_mean_logprob_N
from turncredit.data.turns import Turns


def lotapo(
    turns: Turns, base_N: np.ndarray, *, lam: NonNegative = 1.0, eps: NonNegative = 1e-6
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + lam n_t where n_t has the sign of the turn's gain, and A_rollout elsewhere.

    gain_t = l - l_t, with l the gold answer's mean log-probability at the rollout's end and l_t the same with turn t,
             its response and what it was answered with, deleted; the last turn, which answers, has none
    b_t = tanh(gain_t / scale), scale = median of the group's |gain| above eps, plus eps
    n_t = (b_t - mean) / (population std + eps) over the group's turns that have a gain

    A gain counts only where it stands out in its own direction: a turn that helped less than the others is not blamed,
    and one that hurt less is not praised. lam = 0 is the estimator below it exactly.

    Source: LOTAPO (arXiv 2607.13501, version 2) and its code, where the rollout's advantage is that of the answer's F1
    with the population's deviation (ddof 0 in the named method). Decided here: every turn before the last has a gain,
    where the code has those that search; a group without a gain above eps has n = 0.

    Reads the side table `logprobs` (scorer `gold_deleted`). Returns `advantage_rollout`, `gain` (NaN on last turns),
    `gain_relative` (n, 0 on last turns), `advantage` (each N).
    """
    left_N = gold_mean_logprob_N(turns, "lotapo")
    gain_N = left_N[turns.last_R][turns.rollout_N] - left_N
    gain_N[turns.last_R] = np.nan
    size_N = np.abs(gain_N)
    rows = np.flatnonzero(size_N > eps)
    scale_G = np.full(turns.groups, np.inf)
    order = rows[np.lexsort((size_N[rows], turns.group_N[rows]))]
    found, start, count = np.unique(turns.group_N[order], return_index=True, return_counts=True)
    middle = (size_N[order[start + (count - 1) // 2]] + size_N[order[start + count // 2]]) / 2
    scale_G[found] = middle + eps
    inner = np.flatnonzero(~np.isnan(gain_N))
    bounded_N = np.tanh(gain_N / scale_G[turns.group_N])
    relative_N = np.zeros(turns.n)
    relative_N[inner] = standardise(
        bounded_N[inner], turns.group_N[inner], turns.groups, norm="mean_std", ddof=0, eps=eps, singleton="zero"
    )
    kept_N = np.where(gain_N * relative_N > 0, relative_N, 0.0)
    return {
        "advantage_rollout": base_N,
        "gain": gain_N,
        "gain_relative": relative_N,
        "advantage": add(base_N, kept_N, lam),
    }


LOTAPO = Part("lotapo", lotapo, "turn_term", requires=("gold_answers",), scorer="gold_deleted", neutral={"lam": 0.0})

PARTS = (LOTAPO,)
METHODS = (
    Method(
        "lotapo",
        "flat GRPO plus what the gold answer's likelihood loses when a turn is deleted",
        FLAT_GRPO.with_params(ddof=0),
        turn_term=LOTAPO,
        family="igpo",
    ),
)
