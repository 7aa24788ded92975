"""GAGPO: advantages by GAE on values that are the group's mean returns from each state."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Share, standardise
from turncredit.credit.parts.same_state import exact_anchors_N
from turncredit.data.turns import SAME_RETURN, Turns, cell_stats


def gagpo(
    turns: Turns,
    *,
    step_bonus_N: np.ndarray | None = None,
    gamma: Share = 0.95,
    lam: Share = 0.95,
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = sum over k >= t of (gamma lam)^(k - t) d_k, relative to all turns of the group; no rollout term.

    V(s) = mean of G over the group's turns that saw s, with G_t = r_t + bonus + gamma G_{t+1}
    d_t  = r_t + bonus + gamma V(s_{t+1}) - V(s_t), and V = 0 after the last turn

    A state that one turn alone saw has that turn's G as its value, so a step between two such states has d = 0: credit
    comes from the states that the group's rollouts share.

    Source: GAGPO (arXiv 2605.13217), from secondary transcriptions. Its update clips a ratio for each action, which is
    the update's matter. gamma and lam: not seen; 0.95 is GiGPO's gamma, and lam is ours.

    Reads `observation`. Returns `value` (V), `td_error` (d), `advantage` (each N).
    """
    reward_N = turns.reward_N if step_bonus_N is None else turns.reward_N + step_bonus_N
    anchor_N = exact_anchors_N(turns, "gagpo")
    ahead_N = turns.discounted_sum_N(reward_N, gamma)
    value_N = cell_stats(ahead_N, anchor_N, int(anchor_N.max()) + 1).mean_C[anchor_N]
    error_N = reward_N + gamma * turns.next_N(value_N, 0.0) - value_N
    added_N = turns.sum_R(np.abs(reward_N))[turns.rollout_N]
    error_N[np.abs(error_N) <= SAME_RETURN * added_N] = 0.0  # rounding: a division would turn it into credit
    raw_N = turns.discounted_sum_N(error_N, gamma * lam)
    return {
        "value": value_N,
        "td_error": error_N,
        "advantage": standardise(
            raw_N, turns.group_N, turns.groups, norm="mean_std", ddof=ddof, eps=eps, singleton="zero"
        ),
    }


GAGPO = Part("gagpo", gagpo, "estimator", reads=("observation",))

PARTS = (GAGPO,)
METHODS = (Method("gagpo", "GAE on the group's mean return from each state that its turns saw", GAGPO),)
