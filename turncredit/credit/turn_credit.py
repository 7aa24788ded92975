"""turn_credit: changes of the environment's progress as discounted returns, around the rollout's own level."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, Share, Singleton, standardise
from turncredit.data.turns import Turns


def turn_credit(
    turns: Turns, *, beta: NonNegative = 1.0, gamma: Share = 0.9, singleton: Singleton = "zero"
) -> dict[str, np.ndarray]:
    """A_t = level + beta (c_t - mean c), with c_t = d_t / z_t + gamma c_{t+1}.

    d_t = progress after turn t minus progress after turn t - 1, and 0 in the first turn, which has no progress before
    z_t = sum over k = 0..t of gamma^k, which is how often a change at turn t is counted in the turns up to it
    level = R + sum of d, minus its mean over the group
    mean c = mean over the rollout's turns, weighted with their response tokens (`response_ids`; without it, equally)

    Source: prime-rl's pull request 3282 at 6eaff3e, whose defaults are gamma 0.9 and beta 1; its optional penalty for
    length is left out. A group of one has the level 0 (`singleton="raw"`: R + sum of d).

    Reads `progress`, and `response_ids` where there is one. Returns `credit` (d), `credit_to_go` (c), `level`,
    `advantage` (each N).
    """
    progress_N = turns.numbers("progress", "turn_credit")
    credit_N = progress_N - turns.previous_N(progress_N, 0.0)
    credit_N[turns.first_R] = 0.0
    counted_N = np.cumsum(gamma ** np.arange(int(turns.length_R.max())))[turns.turn_N]
    ahead_N = turns.discounted_sum_N(credit_N / counted_N, gamma)
    tokens_N = _tokens_N(turns)
    mean_R = turns.sum_R(tokens_N * ahead_N) / turns.sum_R(tokens_N)
    total_R = turns.return_R + turns.sum_R(credit_N)
    level_R = standardise(total_R, turns.group_R, turns.groups, norm="mean", ddof=1, eps=0.0, singleton=singleton)
    level_N = level_R[turns.rollout_N]
    return {
        "credit": credit_N,
        "credit_to_go": ahead_N,
        "level": level_N,
        "advantage": level_N + beta * (ahead_N - mean_R[turns.rollout_N]),
    }


def _tokens_N(turns: Turns) -> np.ndarray:
    """Tokens of each response, at least 1; 1 everywhere in a table that has no `response_ids`."""
    if not turns.has("response_ids"):
        return np.ones(turns.n)
    return np.maximum(turns.list_lengths("response_ids", "turn_credit"), 1).astype(np.float64)


TURN_CREDIT = Part("turn_credit", turn_credit, "estimator", reads=("progress",), requires=("progress",))

PARTS = (TURN_CREDIT,)
METHODS = (
    Method(
        "turn_credit",
        "changes of the environment's progress to come, around the rollout's level",
        TURN_CREDIT,
        family="has_progressive",
    ),
)
