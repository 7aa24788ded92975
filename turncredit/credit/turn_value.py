"""Our own method: GAE on a causal value of each turn, predicted from the policy's hidden state."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Share
from turncredit.credit.parts.normalisers import RMS
from turncredit.credit.ppo import gae_N, values_N
from turncredit.data.turns import Turns


def turn_value(turns: Turns, *, lam: Share = 0.9) -> dict[str, np.ndarray]:
    """A = GAE(1, lam) on V(h_t); h_t is the policy's hidden state after it has read observation t.

    d_t = r_t + V_{t+1} - V_t, V = 0 after the last turn, A_t = d_t + lam A_{t+1}. Not centred; the named method scales
    it to unit RMS over the batch. lam matters: with 0 the credit is V's own increment, which rewards looking good if V
    confuses states; with 1 it is R - V_t. No discount: V is trained on returns without one.

    In the first round no value model has been trained (all values null): the advantage is then flat GRPO's.

    Source: none of the five papers. Relatives: PPO's critic with GAE (per token, trained with the policy), TRIAGE's
    shared-backbone value baseline (lam 0), VinePPO (Monte Carlo values).

    Returns `value` (NaN in the first round) and `advantage` (each N).
    """
    value_N = values_N(turns, "turn_value")
    if value_N is None:
        return {"value": np.full(turns.n, np.nan), **flat_grpo(turns)}
    return {"value": value_N, "advantage": gae_N(turns, turns.reward_N, value_N, 1.0, lam)}


TURN_VALUE = Part("turn_value", turn_value, "estimator", model="turn_value")

PARTS = (TURN_VALUE,)
METHODS = (Method("turn_value", "GAE on a causal value of the policy's hidden state", TURN_VALUE, normaliser=RMS),)
