"""Delta-Belief: turns are rewarded for making the gold answer more likely, and for the outcome."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Singleton, standardise
from turncredit.data.turns import Turns


def delta_belief(
    turns: Turns,
    *,
    beta: NonNegative = 0.1,
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A_t = x_t relative to the x of the group's rollouts at the same turn, with 0 for those that have ended.

    x_t = R + beta max(0, log p_{t+1} - log p_t), with p_t the gold answer's probability, had turn t given it: the
    product over its tokens. The last turn, after which nothing is asked, has x = R.

    Source: Delta-Belief-RL (arXiv 2602.12342) and its code at f173b54, with the settings of its script for Qwen3-1.7B
    (positive changes alone, weight 0.1); there a turn's own score is added, which here is part of the return. Rollouts
    that have ended count with 0, as its padded tables have them, so a late turn of a success is above the mean.

    Reads the side table `logprobs` (scorer `gold`). Returns `gold_logprob` (log p), `step_reward` (x), `advantage`
    (each N).
    """
    log_p_N = turns.side_table("logprobs", "delta_belief").numbers("logprob", "delta_belief")
    gain_N = turns.next_N(log_p_N, log_p_N[turns.last_R]) - log_p_N
    reward_N = turns.return_R[turns.rollout_N] + beta * np.maximum(gain_N, 0.0)
    width = int(turns.length_R.max())
    padded_RT = np.zeros((turns.rollouts, width))
    padded_RT[turns.rollout_N, turns.turn_N] = reward_N
    cell_RT = turns.group_R[:, None] * width + np.arange(width)
    relative_M = standardise(
        padded_RT.ravel(),
        cell_RT.ravel(),
        turns.groups * width,
        norm="mean_std",
        ddof=ddof,
        eps=eps,
        singleton=singleton,
    )
    return {
        "gold_logprob": log_p_N,
        "step_reward": reward_N,
        "advantage": relative_M.reshape(padded_RT.shape)[turns.rollout_N, turns.turn_N],
    }


DELTA_BELIEF = Part("delta_belief", delta_belief, "estimator", requires=("gold_answers",), scorer="gold")

PARTS = (DELTA_BELIEF,)
METHODS = (
    Method(
        "delta_belief",
        "the outcome and gains of the gold answer's log-probability, relative to the same turn",
        DELTA_BELIEF,
        family="igpo",
    ),
)
