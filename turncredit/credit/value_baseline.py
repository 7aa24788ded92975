"""TRIAGE's comparator: the increment of a shared-backbone value head, added to the rollout's advantage."""

from __future__ import annotations

import numpy as np

from turncredit.credit.flat_grpo import FLAT_GRPO
from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import NonNegative, Positive, add
from turncredit.credit.parts.normalisers import WHITEN
from turncredit.credit.ppo import values_N
from turncredit.data.turns import Turns


def value_baseline(
    turns: Turns, base_N: np.ndarray, *, lam: NonNegative = 0.2, clip: Positive = 0.5
) -> dict[str, np.ndarray]:
    """A_t = A_rollout + lam * clip(r_t + V_{t+1} - V_t, -clip, clip); the named method whitens it over the batch.

    V is a linear head on the frozen backbone's hidden state at the last token of each prompt (column `value` of the
    side table `values`), and 0 after the last turn. With a reward at the end only, which is the paper's, this is
    the increment V_{t+1} - V_t, and what came out less V_T at the end. While the head warms up (all values null) the
    credit is 0. lam = 0 is the estimator below it exactly, before whitening.

    Source: TRIAGE, appendix D, eq. 12, which reads the state at the observation's last token. Decided here: the
    paper's clip bound and what follows the last turn are not in its text; 0.5 is half of the value's range for a 0/1
    reward. The reward in the increment is ours, for rewards before the end: V is what is still to come, so a turn that
    earns lowers it.

    Returns `advantage_rollout`, `value` (NaN while warming up), `credit` (the clipped increment), `advantage` (N).
    """
    value_N = values_N(turns, "value_baseline")
    if value_N is None:
        nothing_N = np.zeros(turns.n)
        value_N, credit_N = np.full(turns.n, np.nan), nothing_N
    else:
        credit_N = np.clip(turns.reward_N + turns.next_N(value_N, 0.0) - value_N, -clip, clip)
    return {
        "advantage_rollout": base_N,
        "value": value_N,
        "credit": credit_N,
        "advantage": add(base_N, credit_N, lam),
    }


VALUE_BASELINE = Part("value_baseline", value_baseline, "turn_term", model="value_head", neutral={"lam": 0.0})

PARTS = (VALUE_BASELINE,)
METHODS = (
    Method(
        "value_baseline",
        "TRIAGE's comparator: flat GRPO plus increments of a value head",
        FLAT_GRPO,
        turn_term=VALUE_BASELINE,
        normaliser=WHITEN,
    ),
)
