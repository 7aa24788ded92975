"""Our own: the value of `turn_value`, corrected for how hard the task proved to be for the group's other rollouts."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Positive, Share
from turncredit.credit.parts.normalisers import RMS
from turncredit.credit.ppo import gae_N, values_N
from turncredit.data.turns import SAME_RETURN, Turns
from turncredit.errors import UserError

#: Values are kept this far from 0 and from the best return, where a small shift in log odds would mean nothing.
MARGIN = 0.01
#: Halvings of the interval that holds the shift: to about 1e-12 of its width.
HALVINGS = 40


def turn_value_calibrated(
    turns: Turns, *, lam: Share = 0.9, spread: Positive = 2.0, best: Positive | None = None
) -> dict[str, np.ndarray]:
    """A = GAE(1, lam) on V'(h_t) = best sigmoid(logit(V(h_t) / best) + c_i), for every turn t of rollout i.

    V is trained on other tasks: it knows how a rollout goes, and little of how hard its task is. The group's other
    rollouts know that: c_i is the most likely shift given their returns and their values before the first turn,

        c_i = argmax_c sum_{j != i} [R_j log p_j(c) + (best - R_j) log(1 - p_j(c))] / best - c^2 / (2 spread^2),
        p_j(c) = sigmoid(logit(V(h_0^j) / best) + c)

    so the rollout's own outcome has no part in its baseline. A group of one keeps V.

    spread     prior standard deviation of c, in log odds (0.5 to 2 were tried; V is off by about as much)
    best       the return of a success; by default the largest return or value of the batch, at least 1 as in the value
               model. Where a success is worth more than 1, give it: the only success of a batch would raise it

    In the first round no value model has been trained (all values null): the advantage is then flat GRPO's.

    Source: none of the five papers. `lam`, and the value model: `turn_value`. The baseline from the other rollouts of a
    task is RLOO's (Kool et al. 2019).

    Raises UserError for a return below 0 or above `best`.
    Returns `value` (as read; NaN in the first round), `value_calibrated` and `advantage` (each N).
    """
    value_N = values_N(turns, "turn_value_calibrated")
    if value_N is None:
        unknown_N = np.full(turns.n, np.nan)
        return {"value": unknown_N, "value_calibrated": unknown_N, **flat_grpo(turns)}
    if best is None:
        best = max(float(turns.return_R.max()), float(value_N.max()), 1.0)
    rounding = SAME_RETURN * best  # of rewards that were added up: .1 + .2 is above .3
    outside = np.flatnonzero((turns.return_R < -rounding) | (turns.return_R > best + rounding))
    if len(outside):
        raise UserError(
            f"{turns.where}: {turns.rollout_name(int(outside[0]))} has a return of {turns.return_R[outside[0]]:g}; "
            f"turn_value_calibrated needs returns from 0 to `best` ({best:g})"
        )
    share_N = np.clip(value_N / best, MARGIN, 1 - MARGIN)
    logit_N = np.log(share_N) - np.log1p(-share_N)
    shift_R = shifts_R(turns, logit_N[turns.first_R], turns.return_R / best, spread)
    calibrated_N = best * _sigmoid(logit_N + shift_R[turns.rollout_N])
    advantage_N = gae_N(turns, turns.reward_N, calibrated_N, 1.0, lam)
    return {"value": value_N, "value_calibrated": calibrated_N, "advantage": advantage_N}


def shifts_R(turns: Turns, logit_R: np.ndarray, share_R: np.ndarray, spread: float) -> np.ndarray:
    """c of each rollout: the root of sum_{j != i} (share_j - sigmoid(logit_j + c)) - c / spread^2, falling with c."""
    own_P, other_P = _pairs(turns)

    def slope_R(shift_R: np.ndarray) -> np.ndarray:
        surprise_P = share_R[other_P] - _sigmoid(logit_R[other_P] + shift_R[own_P])
        return np.bincount(own_P, surprise_P, turns.rollouts) - shift_R / spread**2

    high_R = spread**2 * turns.size_G[turns.group_R].astype(float)  # each of the others moves it by at most spread^2
    low_R = -high_R
    for _ in range(HALVINGS):
        middle_R = (low_R + high_R) / 2
        rises_R = slope_R(middle_R) > 0
        low_R, high_R = np.where(rises_R, middle_R, low_R), np.where(rises_R, high_R, middle_R)
    return (low_R + high_R) / 2


def _pairs(turns: Turns) -> tuple[np.ndarray, np.ndarray]:
    """All ordered pairs of different rollouts of one group: the first and the second of each (P)."""
    size_R = turns.size_G[turns.group_R]
    own_P = np.repeat(np.arange(turns.rollouts), size_R)
    place_P = np.arange(len(own_P)) - np.repeat(np.cumsum(size_R) - size_R, size_R)
    other_P = turns.first_G[turns.group_R[own_P]] + place_P
    return own_P[own_P != other_P], other_P[own_P != other_P]


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + np.tanh(x / 2))


TURN_VALUE_CALIBRATED = Part("turn_value_calibrated", turn_value_calibrated, "estimator", model="turn_value")

PARTS = (TURN_VALUE_CALIBRATED,)
METHODS = (
    Method(
        "turn_value_calibrated",
        "GAE on turn_value's value, calibrated to its task by the group's other rollouts",
        TURN_VALUE_CALIBRATED,
        normaliser=RMS,
    ),
)
