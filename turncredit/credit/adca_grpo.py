"""ADCA-GRPO: the outcome, plus a judge's good and bad flags of the turns to come, normalised in the group."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, add
from turncredit.credit.parts.judge_labels import role_credits_N
from turncredit.credit.triage import ROLES
from turncredit.data.turns import Turns, cell_stats

#: what a judge's role is as a flag, good or bad
FLAGS = {"decisive": 1.0, "exploration": 1.0, "no_progress": -1.0, "regression": -1.0}


def adca_grpo(
    turns: Turns, base_N: np.ndarray, *, alpha: NonNegative = 0.1, flag: NonNegative = 0.2
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + alpha (z_t + z_{t+1} + ... + z_T): z is the turn's flag relative to its group's.

    x_t = +flag for a good turn, -flag for a bad one
    z_t = (x_t - m) / (sqrt(v + 1e-8) + 1e-12), m the mean over the group's rollouts of their mean x, v the mean over
          the rollouts of their mean (x - m)^2: each rollout counts once. Flags that are all equal give 0

    Source: AgentEvolver (arXiv 2511.10395) and its code at a5a8db8. The outcome stands on the last turn there and is
    summed up like the flags, so each turn has it whole; its deviation is the population's (ddof 0 in the named method).
    Departures: its judge is told the outcome and asked for good or bad; ours is not told, and is asked for a role:
    decisive and exploration are good, no progress and regression are bad. A turn without a flag is good, as there.

    Reads `role` of the side table `labels`. Returns `advantage_rollout`, `flag_relative` (z), `credit` (the sum without
    alpha), `advantage` (each N).
    """
    sign_N = role_credits_N(turns, FLAGS, ROLES, "adca_grpo")
    x_N = np.where(sign_N < 0, -flag, flag)
    inside = cell_stats(x_N, turns.rollout_N, turns.rollouts, ddof=0)
    between = turns.stats_G(inside.mean_C, ddof=0)
    variance_G = between.std_C**2 + turns.sum_G(inside.std_C**2) / between.count_C
    z_N = (x_N - between.mean_C[turns.group_N]) / (np.sqrt(variance_G + 1e-8) + 1e-12)[turns.group_N]
    credit_N = turns.discounted_sum_N(z_N, 1.0)
    return {
        "advantage_rollout": base_N,
        "flag_relative": z_N,
        "credit": credit_N,
        "advantage": add(base_N, credit_N, alpha),
    }


ADCA_GRPO = Part("adca_grpo", adca_grpo, "turn_term", asks="role", neutral={"alpha": 0.0})

PARTS = (ADCA_GRPO,)
METHODS = (
    Method(
        "adca_grpo",
        "flat GRPO plus the sum of a judge's flags of this turn and those after it",
        FLAT_GRPO.with_params(ddof=0, eps=1e-12),
        turn_term=ADCA_GRPO,
        family="triage",
    ),
)
