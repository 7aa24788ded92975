"""VinePPO: the value of a state is the mean return of fresh continuations from it."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.normalisers import WHITEN
from turncredit.data.turns import Turns
from turncredit.errors import UserError


class StateValues(NamedTuple):
    """Monte Carlo values of the states before N turns, their standard errors (NaN for one continuation), and counts."""

    value_N: np.ndarray
    error_N: np.ndarray
    count_N: np.ndarray


def state_values(turns: Turns, method: str) -> StateValues:
    """Mean return of each state's continuations, from the side table `continuations`.

    Raises UserError for a state without any, and where there is no such table.
    """
    table = turns.side_table("continuations", method)
    count_N, sum_N, square_N = (
        table.numbers(name, method) for name in ("continuations", "return_sum", "return_square_sum")
    )
    without = np.flatnonzero(count_N < 1)
    if len(without):
        raise UserError(
            f"{table.name}: no continuation from the state before {turns.row_name(int(without[0]))} ({len(without)} "
            f"states have none); {method} needs at least one"
        )
    value_N = sum_N / count_N
    spread_N = np.maximum(square_N - count_N * value_N**2, 0.0)
    several_N = count_N > 1
    error_N = np.full(turns.n, np.nan)
    error_N[several_N] = np.sqrt(spread_N[several_N] / (count_N[several_N] * (count_N[several_N] - 1)))
    return StateValues(value_N, error_N, count_N)


def vineppo(turns: Turns) -> dict[str, np.ndarray]:
    """A_t = r_t + V(s_{t+1}) - V(s_t), V(s) the mean return of K continuations of the acting policy from s.

    V = 0 after the last turn; nothing is discounted (gamma 1, lambda 0). The named method takes K = 9 and whitens over
    the batch.

    Source: Kazemnejad et al. 2024 (VinePPO), section 4, and the authors' code, which has K = 9, the value 0 at the
    end, and whitens over the tokens of the batch. Departures: a step is a turn, where the paper splits one response
    into steps of reasoning; whitening is over turns; continuation k of neighbouring states shares its random numbers,
    which leaves each value unbiased and makes their difference more precise; a state that several rollouts begin with
    (the first of a group) has continuations for each of them, where the code samples equal prefixes once.

    Reads the side table `continuations`: as many for every state, fewer under a budget.
    Returns `value`, `value_se` (NaN for a single continuation), `continuations` and `advantage` (each N).
    """
    value_N, error_N, count_N = state_values(turns, "vineppo")
    return {
        "value": value_N,
        "value_se": error_N,
        "continuations": count_N,
        "advantage": turns.reward_N + turns.next_N(value_N, 0.0) - value_N,
    }


VINEPPO = Part("vineppo", vineppo, "estimator", requires=("snapshot", "replay"), continuations=9)

PARTS = (VINEPPO,)
METHODS = (
    Method(
        "vineppo",
        "the increase of a state's value, the mean return of 9 continuations from it",
        VINEPPO,
        normaliser=WHITEN,
    ),
)
