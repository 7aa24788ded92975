"""TRACE: differences of the gold answer's log-probability under a frozen reference, turn by turn."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Share, TurnNorm, add, turn_relative_N
from turncredit.credit.parts.logprobs import gold_mean_logprob_N
from turncredit.data.turns import Turns


def trace(
    turns: Turns,
    base_N: np.ndarray,
    *,
    omega: NonNegative = 1.0,
    gamma: Share = 1.0,
    turn_norm: TurnNorm = "group",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + omega A_turn_t, with A_turn the TD error delta_t of the gold answer's log-ratio.

    l_t = mean_j log pi_SFT(y_j | s_t), over the gold answer's tokens y, had turn t given it
    V_t = l_t - l_0: the log-ratio of the gold answer's probability before turn t to that before the first turn
    delta_t = gamma V_{t+1} - V_t before the last turn; the last turn has none, and A_turn is 0 there

    A_turn is delta_t relative to its group (`turn_norm`). With gamma 1 delta_t is log p_{t+1} - log p_t. omega = 0 is
    the estimator below it exactly.

    Source: arXiv 2607.13988 (TRACE), of which only a sentence of its abstract was at hand: temporal differences of
    log-ratios of the gold answer under a frozen reference policy. Everything else is decided here
    (docs/methods/trace.md); do not take its results for the paper's.

    Reads the side table `logprobs` (scorer `gold_sft`). Returns `gold_logprob` (l), `td_error` (delta, NaN in last
    turns), `advantage_rollout`, `advantage_turn`, `advantage` (each N).
    """
    gold_N = gold_mean_logprob_N(turns, "trace")
    value_N = gold_N - gold_N[turns.first_R][turns.rollout_N]
    error_N = gamma * turns.next_N(value_N, np.nan) - value_N
    turn_N = turn_relative_N(turns, error_N, turn_norm, ddof=ddof, eps=eps)
    return {
        "gold_logprob": gold_N,
        "td_error": error_N,
        "advantage_rollout": base_N,
        "advantage_turn": turn_N,
        "advantage": add(base_N, turn_N, omega),
    }


TRACE = Part("trace", trace, "turn_term", requires=("gold_answers",), scorer="gold_sft", neutral={"omega": 0.0})

PARTS = (TRACE,)
METHODS = (
    Method("trace", "flat GRPO plus differences of the gold answer's log-probability", FLAT_GRPO, turn_term=TRACE),
)
