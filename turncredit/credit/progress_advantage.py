"""Progress Advantage: how much more likely a response is under the trained policy than under the SFT policy."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.has import shape
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Positive, Share, TurnNorm
from turncredit.credit.parts.logprobs import log_ratio_N
from turncredit.data.turns import Turns


def progress_advantage(
    turns: Turns,
    base_N: np.ndarray,
    *,
    beta: Positive = 1.0,
    alpha: Share = 0.5,
    turn_norm: TurnNorm = "group",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = alpha A_rollout + (1 - alpha) A_turn_t with c_t = beta (log pi(a_t|s_t) - log pi_SFT(a_t|s_t)).

    pi is the policy that sampled the turns; log pi is the sum over the response's tokens. A_turn is c_t relative to
    its group (`turn_norm`), so beta matters only with `turn_norm="none"`. In round 1 the SFT policy is the one that
    sampled: c_t is 0 everywhere, and the advantage is alpha times flat GRPO's.

    Source: Oh et al. 2026 (arXiv 2606.26080), the definition of c_t. They use it to score rollouts of a policy that is
    already trained, and do not train on it. Decided here: to train on it, as a decomposer in HAS's blend; the sum over
    tokens; `turn_norm="group"`. As an advantage it rewards distance from the SFT policy: with `turn_norm="none"` it is
    a KL penalty to that policy (estimator k1, in the reward) with the sign reversed.

    Reads the side table `logprobs` (scorer `sft`). Returns `advantage_rollout`, `credit` (c), `advantage_turn`,
    `advantage` (each N).
    """
    credit_N = -beta * log_ratio_N(turns, "progress_advantage")
    return shape(turns, base_N, credit_N, alpha=alpha, turn_norm=turn_norm, ddof=ddof, eps=eps)


PROGRESS_ADVANTAGE = Part("progress_advantage", progress_advantage, "turn_term", scorer="sft", neutral={"alpha": 1.0})

PARTS = (PROGRESS_ADVANTAGE,)
METHODS = (
    Method(
        "progress_advantage",
        "flat GRPO blended with the log-ratio of the policy to the SFT policy",
        FLAT_GRPO,
        turn_term=PROGRESS_ADVANTAGE,
    ),
)
