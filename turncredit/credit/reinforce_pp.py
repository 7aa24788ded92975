"""REINFORCE++ in its baseline form: centred in the group, whitened over the batch."""

from __future__ import annotations

from functools import partial

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, Singleton, Weighting, standardise
from turncredit.credit.parts.normalisers import whitened
from turncredit.data.turns import Turns


def reinforce_pp(
    turns: Turns,
    *,
    weighting: Weighting = "rollout",
    singleton: Singleton = "zero",
    var_eps: NonNegative = 1e-8,
) -> dict[str, np.ndarray]:
    """B(i) = R_i - mean_g R, then A = (B - mean B) / sqrt(var B + var_eps) over the batch; the same on every turn.

    The group's mean, and the batch's mean and unbiased variance, are over rollouts, or with weighting `row` over turns,
    as in verl-agent.
    Source: Hu et al. 2025 (REINFORCE++), baseline form, as in verl 0.9.1 (`rsqrt(var + 1e-8)`, ddof 1).
    Departures: verl whitens over response tokens, so long responses weigh more; here rollouts or turns are counted.
    A group of one has no baseline and gives B = 0 (`singleton="raw"`: its score).

    Returns `centred` and `advantage` (each N).
    """
    relative = partial(standardise, cells=turns.groups, norm="mean", ddof=1, eps=0.0, singleton=singleton)
    if weighting == "row":
        centred_N = relative(turns.return_R[turns.rollout_N], turns.group_N)
        return {"centred": centred_N, "advantage": whitened(centred_N, 1, var_eps)}
    centred_R = relative(turns.return_R, turns.group_R)
    advantage_R = whitened(centred_R, 1, var_eps)
    return {"centred": centred_R[turns.rollout_N], "advantage": advantage_R[turns.rollout_N]}


REINFORCE_PP = Part("reinforce_pp", reinforce_pp, "estimator")

PARTS = (REINFORCE_PP,)
METHODS = (Method("reinforce_pp", "centred in the group, whitened over the batch", REINFORCE_PP, family="rloo"),)
