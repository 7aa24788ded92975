"""The conventions that differ between reference implementations, and the one place where each is applied.

norm        `mean_std` subtracts the mean and divides by (std + eps); `mean` only subtracts
weighting   `rollout`: each rollout counts once in its group's statistics (the papers); `row`: once for each of its
            turns, so long rollouts weigh more (verl-agent's default, `compute_mean_std_cross_steps=True`)
ddof        1: the sample's deviation (verl, verl-agent, TRL); 0: the population's (HGPO, rLLM)
eps         added to the deviation after the root: 1e-6 (verl, verl-agent); TRL has 1e-4
singleton   a cell with one member: `zero` (vectorised verl), or `raw`, its own value as if the mean were 0 and the
            deviation 1 (verl, verl-agent)
"""

from __future__ import annotations

from typing import Annotated, Literal

import numpy as np
from pydantic import Field

from turncredit.data.turns import SAME_RETURN, CellStats, Turns, cell_stats
from turncredit.errors import UserError

Norm = Literal["mean_std", "mean"]
Weighting = Literal["rollout", "row"]
Singleton = Literal["zero", "raw"]
TurnNorm = Literal["position", "group", "none"]
Ddof = Annotated[int, Field(ge=0, le=1)]
Share = Annotated[float, Field(ge=0, le=1)]
NonNegative = Annotated[float, Field(ge=0)]
Positive = Annotated[float, Field(gt=0)]
Count = Annotated[int, Field(ge=1)]

#: parameters that mean the same in every part of a method: setting one sets it wherever it occurs
CONVENTIONS = ("norm", "weighting", "ddof", "eps", "singleton", "gamma")

#: what a reference implementation does where it differs from the defaults, by name
PRESETS: dict[str, dict[str, object]] = {
    "verl_agent": {"weighting": "row", "singleton": "raw"},
    "verl": {"singleton": "raw"},
    "trl": {"eps": 1e-4},
}


def scale(
    x_M: np.ndarray, cell_M: np.ndarray, stats: CellStats, *, norm: Norm, eps: float, singleton: Singleton
) -> np.ndarray:
    """`x_M` made relative to its cell's statistics, by `norm`; cells of one member follow `singleton`."""
    out_M: np.ndarray = x_M - stats.mean_C[cell_M]
    if norm == "mean_std":
        divisor_M = stats.std_C[cell_M] + eps
        out_M = np.divide(out_M, divisor_M, out=np.zeros_like(out_M), where=divisor_M > 0)
    alone_M = stats.count_C[cell_M] == 1
    if singleton == "zero":
        out_M[alone_M] = 0.0
    else:
        out_M[alone_M] = x_M[alone_M] / (1.0 + eps) if norm == "mean_std" else x_M[alone_M]
    return out_M


def standardise(
    x_M: np.ndarray, cell_M: np.ndarray, cells: int, *, norm: Norm, ddof: int, eps: float, singleton: Singleton
) -> np.ndarray:
    """`x_M` made relative to the other values of its cell (`cell_M` holds 0..cells-1)."""
    return scale(x_M, cell_M, cell_stats(x_M, cell_M, cells, ddof), norm=norm, eps=eps, singleton=singleton)


def group_relative_N(
    turns: Turns,
    score_bonus_N: np.ndarray | None,
    *,
    norm: Norm,
    weighting: Weighting,
    ddof: int,
    eps: float,
    singleton: Singleton,
) -> np.ndarray:
    """The rollout's return relative to its group's, on each of its turns.

    `score_bonus_N` (a penalty on single turns) is added to that turn's own score only. The group's mean and deviation
    then are those of all turns' scores, each turn with the weight 1 / (turns of its rollout) (weighting `rollout`), or
    each with the same weight (`row`).
    """
    score_N = turns.return_R[turns.rollout_N]
    if score_bonus_N is not None:
        score_N = score_N + score_bonus_N
    if weighting == "row":
        stats = turns.row_stats_G(score_N, ddof)
    else:
        inside = cell_stats(score_N, turns.rollout_N, turns.rollouts, ddof=0)
        stats = turns.stats_G(inside.mean_C, ddof)
        # Between rollouts, and within them: of the mean scores alone, one fined turn among equal returns would be
        # -T sqrt(K) deviations off (K rollouts of T turns), more than in any other group.
        variance_G = stats.std_C**2 + turns.sum_G(inside.std_C**2) / np.maximum(stats.count_C - ddof, 1)
        stats = stats._replace(std_C=np.sqrt(variance_G))
    return scale(score_N, turns.group_N, stats, norm=norm, eps=eps, singleton=singleton)


def turn_relative_N(turns: Turns, credit_N: np.ndarray, turn_norm: TurnNorm, *, ddof: int, eps: float) -> np.ndarray:
    """A per-turn credit as a turn advantage.

    `position` (HAS, section 3.2): relative to the rollouts of the group that reached the same turn position. It is
    biased where the policy decides when a rollout ends, because those that reach a late position are a selection
    (verl #7244). `group`: relative to all turns of the group. `none`: as it is. One value alone gives 0, and so
    does a turn without a credit (NaN), which is left out of the statistics.
    """
    rows = np.flatnonzero(~np.isnan(credit_N))
    out_N = np.zeros(turns.n)
    if turn_norm == "none":
        out_N[rows] = credit_N[rows]
        return out_N
    if turn_norm == "group":
        cell_N, cells = turns.group_N, turns.groups
    else:
        width = int(turns.length_R.max())
        cell_N, cells = turns.group_N * width + turns.turn_N, turns.groups * width
    out_N[rows] = standardise(
        credit_N[rows], cell_N[rows], cells, norm="mean_std", ddof=ddof, eps=eps, singleton="zero"
    )
    return out_N


def blend(base_N: np.ndarray, turn_N: np.ndarray, alpha: float) -> np.ndarray:
    """alpha * base + (1 - alpha) * turn; alpha 1 is `base_N` bit for bit, whatever `turn_N` holds (HAS, prop. 1)."""
    if alpha == 1.0:
        return base_N.copy()
    if alpha == 0.0:
        return turn_N.copy()
    return alpha * base_N + (1.0 - alpha) * turn_N


def add(base_N: np.ndarray, turn_N: np.ndarray, weight: float) -> np.ndarray:
    """base + weight * turn; weight 0 is `base_N` bit for bit, whatever `turn_N` holds."""
    return base_N.copy() if weight == 0 else base_N + weight * turn_N


def success_R(turns: Turns, method: str, success_above: float | None, *, graded: bool = False) -> np.ndarray:
    """Which rollouts succeeded.

    With `success_above`, those whose return is above it (graded rewards: 9 on WebShop's 0-10 scale). Without, those
    with a true `success`; a table without that column counts a return above 0. UserError where its returns are graded
    (several values above 0), unless `graded` allows that: which of them are successes is not for us to guess.
    """
    if success_above is not None:
        return turns.above_R(success_above)
    if turns.has("success"):
        return turns.any_R(turns.truths("success", method))
    above_R = turns.above_R(0.0)
    if not graded and above_R.any() and np.ptp(turns.return_R[above_R]) > SAME_RETURN * turns.return_R.max():
        raise UserError(
            f"{turns.where}: {method} must know which rollouts succeeded, but there is no column 'success', and the "
            f"returns are graded ({turns.return_R.min():g} to {turns.return_R.max():g}); add the column, or set "
            "success_above to the return above which a rollout is a success"
        )
    return above_R
