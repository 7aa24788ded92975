"""Flat GRPO: one advantage for all turns of a rollout, relative to its group."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Norm, Singleton, Weighting, group_relative_N
from turncredit.data.turns import Turns


def flat_grpo(
    turns: Turns,
    *,
    score_bonus_N: np.ndarray | None = None,
    norm: Norm = "mean_std",
    weighting: Weighting = "rollout",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A(i, t) = (R_i - mean_g R) / (std_g R + eps), the same for every turn t of rollout i.

    R_i is the undiscounted sum of the rollout's rewards; mean and std are over the rollouts of its group.

    Source: Shao et al. 2024 (GRPO), in the form of HAS eq. 1; numbers agree with verl 0.9.1.
    Departures: a group of one gets 0, not its raw score (`singleton="raw"` gives verl's); a turn's own score bonus
    (the invalid-action penalty) shifts that turn alone, as in verl-agent.

    Returns `advantage` (N).
    """
    advantage_N = group_relative_N(
        turns, score_bonus_N, norm=norm, weighting=weighting, ddof=ddof, eps=eps, singleton=singleton
    )
    return {"advantage": advantage_N}


FLAT_GRPO = Part("flat_grpo", flat_grpo, "estimator")

PARTS = (FLAT_GRPO,)
METHODS = (Method("flat_grpo", "the rollout's return relative to its group, on every turn", FLAT_GRPO),)
