"""PPO's advantage: generalised advantage estimation on a critic's value of each turn."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, NoValues, Part
from turncredit.credit.parts.conventions import Share
from turncredit.credit.parts.normalisers import WHITEN
from turncredit.data.turns import Turns


def gae_N(turns: Turns, reward_N: np.ndarray, value_N: np.ndarray, gamma: float, lam: float) -> np.ndarray:
    """A_t = sum_k (gamma lam)^k d_{t+k} with d_t = r_t + gamma V_{t+1} - V_t and V = 0 after the last turn."""
    next_N = turns.next_N(value_N, 0.0)
    return turns.discounted_sum_N(reward_N + gamma * next_N - value_N, gamma * lam)


def values_N(turns: Turns, method: str) -> np.ndarray | None:
    """V before each turn's action, from the side table `values`; None where no value is known yet (all null).

    A learned model has no values before its first training; a table with only some nulls is damaged.
    """
    table = turns.side_table("values", method)
    return None if table.all_null("value") else table.numbers("value", method)


def trained_values_N(turns: Turns, method: str) -> np.ndarray:
    """As `values_N`, for a method that cannot do without values: NoValues, a UserError, if there are none."""
    value_N = values_N(turns, method)
    if value_N is None:
        raise NoValues(method)
    return value_N


def ppo(
    turns: Turns, *, score_bonus_N: np.ndarray | None = None, gamma: Share = 1.0, lam: Share = 1.0
) -> dict[str, np.ndarray]:
    """GAE(gamma, lam) over turns, on V(h_t) read before turn t's action.

    A shaper's score bonus (the invalid-action penalty) changes its own turn's advantage and target alone. In
    verl-agent each turn is a row of its own, with the rollout's return, less its own penalty, at its last token, and
    GAE stays inside the row: with gamma = lam = 1 and a reward at the end only that is this advantage.

    Source: Schulman et al. 2016, eq. 16; 2017. gamma = lam = 1 are verl 0.9.1's defaults. As in verl the advantages
    are whitened for the policy (the normaliser of the named method), and the critic's targets are not.
    Departures: values and advantages are per turn; verl has one for each token. A rollout cut off by the horizon is
    treated as finished (V = 0 after it), as in verl.

    Returns `value`, `value_target` (A + V, what the critic is trained on) and `advantage` (each N).
    """
    value_N = trained_values_N(turns, "ppo")
    advantage_N = gae_N(turns, turns.reward_N, value_N, gamma, lam)
    if score_bonus_N is not None:
        advantage_N = advantage_N + score_bonus_N
    return {"value": value_N, "value_target": advantage_N + value_N, "advantage": advantage_N}


PPO = Part("ppo", ppo, "estimator", model="critic")

PARTS = (PPO,)
BASE = Method("ppo", "GAE on a critic's value of each turn", PPO, normaliser=WHITEN)
METHODS = (
    BASE,
    BASE.variant("turn_ppo", "turn-level PPO's setting of GAE over turns", gamma=0.99, lam=0.9),
    BASE.variant("bi_level_gae", "the outer pass of VAGEN's bi-level GAE: discounted between turns", gamma=0.95),
)
