"""Values of states from sampled continuations: how many each state gets, the estimate, its standard error.

Continuations come in two halves. Each half's number is decided by what the other half's first continuations showed,
so that no half's mean is chosen by its own luck: stopping where the first eight returns happen to be all 0 would pull
small values down. `value` is the mean of the two halves' means and is unbiased (docs/branching.md).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np


class Continuation(NamedTuple):
    """What one continuation came to: from which state, of which half (0 or 1), its return and its turns."""

    state: int
    half: int
    total: float
    turns: int


class Values(NamedTuple):
    """Estimates for S states.

    value_S, error_S     estimate and standard error
    half_S2              the two halves' means: two estimates whose errors are uncorrelated
    count_S, turns_S     continuations from each state, and the turns they took
    """

    value_S: np.ndarray
    error_S: np.ndarray
    half_S2: np.ndarray
    count_S: np.ndarray
    turns_S: np.ndarray


#: `draw(first_S2, more_S2)` plays `more_S2` continuations from each state and half, the first one numbered `first_S2`
Draw = Callable[[np.ndarray, np.ndarray], Iterable[Continuation]]


def smoothed_variance(returns: Iterable[float], low: float, high: float) -> float:
    """Variance of returns that lie between `low` and `high`, half an observation of either added.

    For returns of two values it is p(1 - p) at the posterior mean p of a proportion under Jeffreys' prior: eight
    losses out of eight have the variance 0.052 and not 0, which would claim to know the value exactly.
    """
    seen = np.asarray(list(returns), dtype=float)
    ends = np.array([low, high])
    total = len(seen) + 1.0
    mean = (seen.sum() + ends.sum() / 2) / total
    return float((((seen - mean) ** 2).sum() + ((ends - mean) ** 2).sum() / 2) / total)


def mean_and_error(returns: Iterable[float], low: float, high: float) -> tuple[float, float]:
    """Mean of a number of returns that was fixed beforehand, and its standard error (`smoothed_variance`)."""
    seen = list(returns)
    return float(np.mean(seen)), float(np.sqrt(smoothed_variance(seen, low, high) / len(seen)))


def planned(
    variance_S2: np.ndarray, target_S: np.ndarray, cost_S: np.ndarray, *, least: int, most: int, budget: float
) -> np.ndarray:
    """Continuations (S, 2) for each half of each state, at least `least`, at most `most`.

    Two halves of n returns of variance v have the error sqrt(v / 2n); n is the smallest that brings it under the
    state's target, with the *other* half's variance for v. Where those beyond `least` take more turns than `budget`
    (`cost_S` each), all targets are raised by one factor until they fit.
    """
    slack = 1.0
    while True:
        wanted_S2 = np.ceil(variance_S2[:, ::-1] / (2 * slack * target_S[:, None] ** 2))
        count_S2 = np.clip(wanted_S2, least, most).astype(int)
        more_S2 = count_S2 - least
        if more_S2.sum(axis=1) @ cost_S <= budget or not more_S2.any():
            return count_S2
        slack *= 1.05


def estimate(
    draw: Draw,
    target_S: np.ndarray,
    *,
    least: int,
    most: int,
    budget: float,
    low: float = 0.0,
    high: float = 1.0,
) -> Values:
    """Values of the S states that `draw` continues from, to the standard errors `target_S` where they can be had.

    First `least` continuations from every state, half of them in either half (odd numbers are rounded up), whatever
    they cost; then `planned` ones, up to `most`, while the turns of all together stay within `budget`. Returns are
    taken to lie between `low` and `high`.
    """
    states = len(target_S)
    returns: list[tuple[list[float], list[float]]] = [([], []) for _ in range(states)]
    turns_S = np.zeros(states, dtype=np.int64)

    def play(first_S2: np.ndarray, more_S2: np.ndarray) -> None:
        for part in draw(first_S2, more_S2):
            returns[part.state][part.half].append(part.total)
            turns_S[part.state] += part.turns

    pilot, limit = (least + 1) // 2, max((least + 1) // 2, most // 2)
    pilot_S2 = np.full((states, 2), pilot)
    play(np.zeros_like(pilot_S2), pilot_S2)
    variance_S2 = np.array([[smoothed_variance(half, low, high) for half in pair] for pair in returns])
    left = max(0.0, budget - float(turns_S.sum()))
    count_S2 = planned(variance_S2, target_S, turns_S / (2 * pilot), least=pilot, most=limit, budget=left)
    play(pilot_S2, count_S2 - pilot_S2)

    half_S2 = np.array([[np.mean(half) for half in pair] for pair in returns])
    variance_S = np.array([smoothed_variance([*one, *two], low, high) for one, two in returns])
    error_S = np.sqrt(variance_S * (1 / count_S2).sum(axis=1)) / 2
    return Values(half_S2.mean(axis=1), error_S, half_S2, count_S2.sum(axis=1), turns_S)
