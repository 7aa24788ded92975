"""IGPO: a turn's reward is how much more likely it makes the gold answer."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Share, standardise
from turncredit.credit.parts.logprobs import gold_mean_logprob_N
from turncredit.data.turns import Turns


def igpo(turns: Turns, *, gamma: Share = 1.0, ddof: Ddof = 1, eps: NonNegative = 1e-6) -> dict[str, np.ndarray]:
    """A_t = sum over k >= t of gamma^(k - t) z_k, with z the turn rewards relative to all those of their group.

    p_t = exp(mean_j log pi(y_j | s_t)), over the gold answer's tokens y, had turn t given it; pi sampled the turns
    r_t = p_{t+1} - p_t before the last turn; r of the last turn is the rollout's return
    z_t = (r_t - mean r) / (std r + eps), mean and std over all turns of the group

    So the turns before the last are rewarded for what they found out, and the last one for the outcome. A group
    whose rewards are all equal, or with a single turn, gets 0.

    Source: Wang et al. 2025 (IGPO, arXiv 2510.14967), from secondary transcriptions. Its outcome is the answer's F1,
    less a penalty for a broken format; ours is the environment's return, whatever it is (`env.searchqa.reward`).

    Reads the side table `logprobs` (scorer `gold`). Returns `gold_probability` (p), `step_reward` (r), `advantage`
    (each N).
    """
    p_N = np.exp(gold_mean_logprob_N(turns, "igpo"))
    reward_N = turns.next_N(p_N, p_N[turns.last_R]) - p_N
    reward_N[turns.last_R] = turns.return_R
    z_N = standardise(reward_N, turns.group_N, turns.groups, norm="mean_std", ddof=ddof, eps=eps, singleton="zero")
    return {"gold_probability": p_N, "step_reward": reward_N, "advantage": turns.discounted_sum_N(z_N, gamma)}


IGPO = Part("igpo", igpo, "estimator", requires=("gold_answers",), scorer="gold")

PARTS = (IGPO,)
METHODS = (Method("igpo", "gains of the gold answer's probability, then the outcome", IGPO),)
