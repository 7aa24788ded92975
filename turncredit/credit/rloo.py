"""RLOO: the rollout's return minus the mean of the others."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Singleton, Weighting
from turncredit.data.turns import Turns


def leave_one_out_R(turns: Turns, return_R: np.ndarray, singleton: Singleton) -> np.ndarray:
    """R_i minus the mean of the other rollouts of its group, written n/(n-1) (R_i - mean)."""
    stats = turns.stats_G(return_R)
    size_R = turns.size_G[turns.group_R]
    alone_R = size_R == 1
    out_R: np.ndarray = (return_R - stats.mean_C[turns.group_R]) * (size_R / np.maximum(size_R - 1, 1))
    out_R[alone_R] = return_R[alone_R] if singleton == "raw" else 0.0
    return out_R


def rloo(
    turns: Turns,
    *,
    score_bonus_N: np.ndarray | None = None,
    weighting: Weighting = "rollout",
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A(i, t) = n/(n-1) (R_i - mean_g R) for a group of n rollouts, the same for every turn.

    With weighting `row` mean and n are those of the group's turns, each with its rollout's return: verl-agent's
    default, where a long rollout moves the mean more.

    Source: Kool et al. 2019; Ahmadian et al. 2024, eq. 6; numbers agree with verl 0.9.1.
    Departures: a group of one has no others to compare with and gets 0 (`singleton="raw"`: its score, as in verl).

    A shaper's score bonus shifts its own turn; the others' mean is then that of their rollouts' mean scores (`row`: of
    all turns' scores).

    Returns `advantage` (N).
    """
    if weighting == "row":
        return {"advantage": _among_rows_N(turns, score_bonus_N, singleton)}
    if score_bonus_N is None:
        return {"advantage": leave_one_out_R(turns, turns.return_R, singleton)[turns.rollout_N]}
    score_R = turns.return_R + turns.mean_R(score_bonus_N)
    own_N = score_bonus_N - turns.mean_R(score_bonus_N)[turns.rollout_N]  # what sets a turn apart in its rollout
    if singleton == "zero":
        own_N[turns.size_G[turns.group_N] == 1] = 0.0
    return {"advantage": leave_one_out_R(turns, score_R, singleton)[turns.rollout_N] + own_N}


def _among_rows_N(turns: Turns, score_bonus_N: np.ndarray | None, singleton: Singleton) -> np.ndarray:
    score_N = turns.return_R[turns.rollout_N]
    if score_bonus_N is not None:
        score_N = score_N + score_bonus_N
    stats = turns.row_stats_G(score_N)
    count_N = stats.count_C[turns.group_N]
    out_N: np.ndarray = (score_N - stats.mean_C[turns.group_N]) * (count_N / np.maximum(count_N - 1, 1))
    if singleton == "raw":
        out_N[count_N == 1] = score_N[count_N == 1]
    return out_N


RLOO = Part("rloo", rloo, "estimator")

PARTS = (RLOO,)
METHODS = (Method("rloo", "the rollout's return minus the mean of its siblings, on every turn", RLOO),)
