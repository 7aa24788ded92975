"""HGPO: step advantages among turns that share their last observation, their last two, their last three, ..."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from pydantic import Field

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Norm, Share, standardise
from turncredit.credit.parts.same_state import exact_anchors_N
from turncredit.data.turns import Turns


def hgpo(
    turns: Turns,
    *,
    step_bonus_N: np.ndarray | None = None,
    history: Annotated[int, Field(ge=0, le=20)] = 2,
    length_power: NonNegative = 1.0,
    gamma: Share = 0.95,
    norm: Norm = "mean_std",
    ddof: Ddof = 0,
    eps: NonNegative = 1e-6,
) -> dict[str, np.ndarray]:
    """A_t = sum_k w_k A^k_t over the levels k = 1..history+1 at which A^k_t is not 0; w_k ~ (k+1)^length_power.

    At level k a turn is compared with the turns of its group whose last k observations are the same (turns with fewer
    than k observations behind them have no level k). A^k makes the discounted step return relative to that set, over
    turns; a set of one has no part in the sum. Weights are divided by (their sum + eps). There is no rollout term.

    Source: He et al. 2026 (HGPO, K = history = 2) and its recipe in verl-agent, whose conventions these are:
    population deviation (ddof 0), zero advantages left out of the weighting. Departures: none known; the recipe's
    optional trajectory-level group, off by default there, is not offered.

    Returns `step_return`, `advantage_1` .. `advantage_{history+1}` and `advantage` (each N).
    """
    return_N = turns.step_return_N(gamma)
    if step_bonus_N is not None:
        return_N = return_N + step_bonus_N
    now_N = exact_anchors_N(turns, "hgpo")
    columns: dict[str, np.ndarray] = {"step_return": return_N}
    weighted_N, weight_N = np.zeros(turns.n), np.zeros(turns.n)
    cell_N = now_N
    for k in range(1, history + 2):
        rows = np.flatnonzero(turns.turn_N >= k - 1)
        if k > 1:
            before_N = turns.previous_N(cell_N, 0)
            cell_N = np.zeros(turns.n, dtype=np.int64)
            cell_N[rows] = np.unique(before_N[rows] * (int(now_N.max()) + 1) + now_N[rows], return_inverse=True)[1]
        level_N = np.zeros(turns.n)
        cells = int(cell_N[rows].max()) + 1 if len(rows) else 1
        level_N[rows] = standardise(
            return_N[rows], cell_N[rows], cells, norm=norm, ddof=ddof, eps=eps, singleton="zero"
        )
        weight = float(k + 1) ** length_power
        weighted_N += weight * level_N
        weight_N += weight * (level_N != 0)
        columns[f"advantage_{k}"] = level_N
    columns["advantage"] = np.divide(weighted_N, weight_N + eps, out=np.zeros(turns.n), where=weight_N > 0)
    return columns


HGPO = Part("hgpo", hgpo, "estimator", reads=("observation",))

PARTS = (HGPO,)
METHODS = (Method("hgpo", "turns compared at equal last one, two and three observations", HGPO),)
