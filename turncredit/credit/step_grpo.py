"""Step-level GRPO: each turn's own return relative to all turns of its group."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Norm, Share, Singleton, standardise
from turncredit.data.turns import Turns


def step_grpo(
    turns: Turns,
    *,
    step_bonus_N: np.ndarray | None = None,
    gamma: Share = 0.95,
    norm: Norm = "mean_std",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A_t = (G_t - mean_g G) / (std_g G + eps) with G_t = r_t + gamma G_{t+1} + the turn's bonus.

    Mean and std are over all turns of the group, so this is GiGPO's step term with the whole group as one anchor, and
    no rollout term. It is the estimator that lets a step-reward shaper act on GRPO.

    Source: GRPO with process rewards (Shao et al. 2024, section 4.1.3), with discounted returns to go in place of
    normalised step rewards summed up; HIPIF, eq. 9, normalises over the same set of turns. Departures: see there.

    Returns `step_return` and `advantage` (each N).
    """
    return_N = turns.step_return_N(gamma)
    if step_bonus_N is not None:
        return_N = return_N + step_bonus_N
    advantage_N = standardise(return_N, turns.group_N, turns.groups, norm=norm, ddof=ddof, eps=eps, singleton=singleton)
    return {"step_return": return_N, "advantage": advantage_N}


STEP_GRPO = Part("step_grpo", step_grpo, "estimator")

PARTS = (STEP_GRPO,)
METHODS = (Method("step_grpo", "each turn's return to go relative to all turns of its group", STEP_GRPO),)
