"""HCAPO, hindsight credit assignment: the policy scores each response again, given how the rollout ended."""

from __future__ import annotations

from typing import Literal

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Positive, Share, add, success_R, turn_relative_N
from turncredit.data.turns import Turns


def hcapo(
    turns: Turns,
    base_N: np.ndarray,
    *,
    omega: NonNegative = 1.0,
    gamma: Share = 0.95,
    sharpening: Positive = 5.0,
    ratio_low: NonNegative = 0.8,
    ratio_high: NonNegative = 1.2,
    smoothing: Share = 0.0,
    turn_norm: Literal["group", "position"] = "group",
    success_above: float | None = None,
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + omega (Q_t - mean Q) / (std Q + eps), in successes at least A_rollout.

    pi_h(a_t) = exp(mean_j log pi(y_j | s_t, s_final) / sharpening), over the response's tokens
    rho_t = clip(pi_h(a_t) / mean of pi_h over the rollout's turns, ratio_low, ratio_high)
    Q_t = rho_t gamma^(T - 1 - t) R, turns counted from 0; with `smoothing` s it becomes (1 - s) Q_t + s Q_{t+1}

    R is the rollout's return. Mean and std are over all turns of the group (`turn_norm` "position": over its
    rollouts at the same turn). In a success (`success`, or a return above `success_above`) a negative second term
    becomes 0. A failure with return 0 has Q = 0, whatever its ratios. omega = 0 is the estimator below it exactly.

    Source: Tan et al. 2026 (arXiv 2603.08754), from secondary transcriptions of its equations and appendix C, which
    agree in all constants; their smoothing is 0.5. Where its eq. 8 says "at time step t", its algorithm normalises
    over the group. Decided here: the last turn is not smoothed; a group whose Q are all equal has no second term.

    Reads the side table `logprobs` (scorer `hindsight`). Returns `hindsight` (pi_h), `ratio` (rho), `hindsight_q`
    (Q, smoothed), `advantage_rollout`, `advantage_turn` (the second term without omega), `advantage` (each N).
    """
    again = turns.side_table("logprobs", "hcapo")
    tokens_N = np.maximum(again.numbers("tokens", "hcapo"), 1)
    hindsight_N = np.exp(again.numbers("logprob", "hcapo") / tokens_N / sharpening)
    ratio_N = np.clip(hindsight_N / turns.mean_R(hindsight_N)[turns.rollout_N], ratio_low, ratio_high)
    left_N = turns.length_R[turns.rollout_N] - 1 - turns.turn_N
    q_N = ratio_N * gamma**left_N * turns.return_R[turns.rollout_N]
    if smoothing:
        q_N = (1.0 - smoothing) * q_N + smoothing * turns.next_N(q_N, q_N[turns.last_R])
    turn_N = turn_relative_N(turns, q_N, turn_norm, ddof=ddof, eps=eps)
    won_N = success_R(turns, "hcapo", success_above)[turns.rollout_N]
    turn_N = np.where(won_N, np.maximum(turn_N, 0.0), turn_N)
    return {
        "hindsight": hindsight_N,
        "ratio": ratio_N,
        "hindsight_q": q_N,
        "advantage_rollout": base_N,
        "advantage_turn": turn_N,
        "advantage": add(base_N, turn_N, omega),
    }


HCAPO = Part("hcapo", hcapo, "turn_term", reads=("success",), scorer="hindsight", neutral={"omega": 0.0})

PARTS = (HCAPO,)
BASE = Method(
    "hcapo", "flat GRPO plus returns weighted by how likely hindsight makes each turn", FLAT_GRPO, turn_term=HCAPO
)
METHODS = (
    BASE,
    BASE.variant("hcapo_smooth", "HCAPO with each turn's value averaged with the next turn's", smoothing=0.5),
)
