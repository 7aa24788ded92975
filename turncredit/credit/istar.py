"""iStar: a reward for each turn from a model that was trained to prefer the task's successes to its failures."""

from __future__ import annotations

from typing import Literal

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, Positive, add
from turncredit.credit.parts.logprobs import log_ratio_N
from turncredit.credit.rloo import RLOO
from turncredit.data.turns import Turns


def istar(
    turns: Turns,
    base_N: np.ndarray,
    *,
    omega: NonNegative = 1.0,
    beta: Positive = 0.05,
    baseline: Literal["turns", "first_turn"] = "turns",
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + omega A_S, with r_t = beta (log pi_phi(a_t|s_t) - log pi_old(a_t|s_t)).

    pi_phi is the implicit reward model, a copy of the SFT policy that is trained by DPO on successes against failures
    of the same task in earlier rounds; pi_old is the policy that sampled; log pi is the sum over the response's tokens.
    A_S is r_t less the mean r of the other turns of its group (leave-one-out: n / (n - 1) (r_t - mean), n turns).
    In round 1 pi_phi is pi_old, and A is A_rollout exactly; so it is with omega = 0.

    Source: Liu et al. 2025 (iStar, arXiv 2509.19199); omega, beta and RLOO as the base are those of its code, whose
    docstring compares a turn with all turns of the group. The code itself takes mean and n from one row of each
    rollout, the first that it meets: `baseline="first_turn"` does, with turn 0 for that row. As in the code, phi has
    not been trained on the round that it scores.

    Reads the side table `logprobs` (scorer `implicit`). Returns `step_reward` (r), `advantage_rollout`,
    `advantage_turn` (A_S), `advantage` (each N).
    """
    reward_N = beta * log_ratio_N(turns, "istar")
    stats = turns.row_stats_G(reward_N) if baseline == "turns" else turns.stats_G(reward_N[turns.first_R])
    share_G = np.where(stats.count_C > 1, stats.count_C / np.maximum(stats.count_C - 1, 1), 0.0)
    turn_N = share_G[turns.group_N] * (reward_N - stats.mean_C[turns.group_N])
    return {
        "step_reward": reward_N,
        "advantage_rollout": base_N,
        "advantage_turn": turn_N,
        "advantage": add(base_N, turn_N, omega),
    }


ISTAR = Part("istar", istar, "turn_term", scorer="implicit", neutral={"omega": 0.0})

PARTS = (ISTAR,)
METHODS = (Method("istar", "RLOO plus rewards of an implicit reward model", RLOO, turn_term=ISTAR),)
