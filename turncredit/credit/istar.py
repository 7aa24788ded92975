"""iStar: a reward for each turn from a model that was trained to prefer the task's successes to its failures."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Positive, add, standardise
from turncredit.credit.parts.logprobs import log_ratio_N
from turncredit.credit.rloo import RLOO
from turncredit.data.turns import Turns


def istar(
    turns: Turns,
    base_N: np.ndarray,
    *,
    omega: NonNegative = 1.0,
    beta: Positive = 0.05,
    baseline: Literal["standardised", "turns", "first_turn"] = "standardised",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + omega A_S, with r_t = beta (log pi_phi(a_t|s_t) - log pi_old(a_t|s_t)).

    pi_phi is the implicit reward model, a copy of the SFT policy that is trained by DPO on successes against failures
    of the same task; pi_old is the policy that sampled; log pi is the sum over the response's tokens.
    A_S is r_t relative to all turns of its group: (r_t - mean) / (std + eps).
    With omega = 0 A is A_rollout exactly.

    Source: Liu et al. 2025 (iStar, arXiv 2509.19199). Its text was read for us: A_S divides by the deviation, and phi
    is updated on the rollouts that it then scores. omega, beta and RLOO as the base are its authors' code's
    (github.com/Tongyi-ConvAI/Qwen-Character, CharacterRL-iStar). In that, A_S is n / (n - 1) (r_t - mean), with mean
    and n from one row of each rollout, the first that it meets (`baseline="first_turn"`, with turn 0 as that row; its
    docstring says `"turns"`, all turns of the group), and phi has not been trained on the round that it scores:
    `istar_code`.

    Reads the side table `logprobs` (scorer `implicit`). Returns `step_reward` (r), `advantage_rollout`,
    `advantage_turn` (A_S), `advantage` (each N).
    """
    reward_N = beta * log_ratio_N(turns, "istar")
    if baseline == "standardised":
        turn_N = standardise(
            reward_N, turns.group_N, turns.groups, norm="mean_std", ddof=ddof, eps=eps, singleton="zero"
        )
    else:
        turn_N = _without_own_N(turns, reward_N, baseline)
    return {
        "step_reward": reward_N,
        "advantage_rollout": base_N,
        "advantage_turn": turn_N,
        "advantage": add(base_N, turn_N, omega),
    }


def _without_own_N(turns: Turns, reward_N: np.ndarray, baseline: str) -> np.ndarray:
    """n / (n - 1) (r_t - mean): r_t less the mean of the others, if mean and n are of all turns of the group."""
    stats = turns.row_stats_G(reward_N) if baseline == "turns" else turns.stats_G(reward_N[turns.first_R])
    share_G = np.where(stats.count_C > 1, stats.count_C / np.maximum(stats.count_C - 1, 1), 0.0)
    turn_N: np.ndarray = share_G[turns.group_N] * (reward_N - stats.mean_C[turns.group_N])
    return turn_N


ISTAR = Part("istar", istar, "turn_term", scorer="implicit", neutral={"omega": 0.0})
#: the model as in the authors' code: a mean over turns, one round behind, at a constant learning rate
CODE = {"score": "mean", "trained_on": "before", "schedule": "constant"}
ISTAR_CODE = replace(ISTAR, name="istar_code", model_settings=CODE).with_params(baseline="first_turn")

PARTS = (ISTAR, ISTAR_CODE)
BASE = Method("istar", "RLOO plus rewards of an implicit reward model", RLOO, turn_term=ISTAR)
METHODS = (BASE, BASE.variant("istar_code", "the same as in its authors' code", turn_term=ISTAR_CODE))
