"""Values of states from sampled continuations: how many each state gets, the estimate, its standard error.

Three things make the differences between neighbouring states precise and unbiased (docs/audit.md).

1. The copies of all states of a rollout share their random numbers: copy 7 of a state and copy 7 of the next one differ
   by the turn between them and not by chance, which removes much of the variance of their difference.
2. Copies come in two halves with separate random numbers, and each half's count is decided by the other half's first
   copies. Stopping when the first eight returns happen to be all 0 would bias small values downwards; here no half's
   count depends on its own returns, and `value`, the mean of both, is unbiased. (Where the budget binds, all returns
   together decide how many copies it leaves for each state: with a single state .1 comes out as .108, with eight as
   .101; audits have a hundred and more.)
3. Variances are smoothed: a few equal returns do not make the value certain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

import numpy as np


class Continuation(NamedTuple):
    """The result of one continuation: its state, half (0 or 1), number of the copy, return and number of turns."""

    state: int
    half: int
    copy: int
    total: float
    turns: int


class Values(NamedTuple):
    """Estimates for S states, those of a rollout one after the other.

    value_S, error_S     estimate and standard error
    half_S2              the two halves' means: two estimates whose errors are nearly uncorrelated
    step_error_S         standard error of value_{s+1} - value_s, or of value_s where a rollout's last turn follows
    count_S, turns_S     continuations from each state, and the turns they took
    wanted               continuations from all states together that the target asks for, whatever they cost
    """

    value_S: np.ndarray
    error_S: np.ndarray
    half_S2: np.ndarray
    step_error_S: np.ndarray
    count_S: np.ndarray
    turns_S: np.ndarray
    wanted: int


#: `draw(first_S2, count_S2)` plays, from each state and half, the copies from number `first_S2` up to `count_S2`
Draw = Callable[[np.ndarray, np.ndarray], Iterable[Continuation]]


def smoothed_variance(x: np.ndarray, also: np.ndarray, weight: np.ndarray) -> np.ndarray:
    """Variance along the last axis, NaN left out, after values `also` were added as `weight` observations each.

    With half an observation at either end of a range of two values it is p(1 - p) at the posterior mean p of a
    proportion under Jeffreys' prior: eight failures out of eight have the variance 0.052 and not 0.
    """
    total = np.isfinite(x).sum(axis=-1) + weight.sum()
    mean = (np.nansum(x, axis=-1) + weight @ also) / total
    added = (weight * (also - mean[..., None]) ** 2).sum(axis=-1)
    return (np.nansum((x - mean[..., None]) ** 2, axis=-1) + added) / total


def return_variance(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """`smoothed_variance` of returns between `low` and `high`: half an observation at each."""
    return smoothed_variance(x, np.array([low, high]), np.array([0.5, 0.5]))


def step_variance(x: np.ndarray, low: float, high: float) -> np.ndarray:
    """`smoothed_variance` of differences of two such returns: half an observation of no difference, a quarter at either
    end.

    For returns of two values: Jeffreys' prior on how often the two differ.
    """
    width = high - low
    return smoothed_variance(x, np.array([-width, 0.0, width]), np.array([0.25, 0.5, 0.25]))


def mean_and_error(returns: Iterable[float], low: float, high: float) -> tuple[float, float]:
    """Mean of a fixed number of returns, and its standard error (`return_variance`)."""
    values = np.array(list(returns), dtype=float)
    return float(values.mean()), float(np.sqrt(return_variance(values, low, high) / len(values)))


def planned(
    variance_S2: np.ndarray,
    follows_S: np.ndarray,
    cost_S: np.ndarray,
    *,
    target: float,
    least: int,
    most: int,
    budget: float,
) -> np.ndarray:
    """Copies (S, 2) for each half of each state, at least `least`, at most `most`.

    Two halves of n copies leave the difference of two states, whose variance over copies is v, with the error
    sqrt(v / 2n). n is the smallest that brings it under `target`, with the *other* half's `variance_S2` for v; a state
    gets what the more demanding of its two turns needs (`follows_S`: the next state is of the same rollout). If those
    beyond `least` take more turns than `budget` (`cost_S` each), the target is raised until they fit.
    """
    slack = 1.0
    while True:
        wanted_S2 = np.ceil(variance_S2[:, ::-1] / (2 * slack * target**2))
        wanted_S2[1:] = np.maximum(wanted_S2[1:], np.where(follows_S[:-1, None], wanted_S2[:-1], 0))
        count_S2 = np.clip(wanted_S2, least, most).astype(int)
        more_S = (count_S2 - least).sum(axis=1)
        if more_S @ cost_S <= budget or not more_S.any():
            return count_S2
        slack *= 1.05


def estimate(
    draw: Draw,
    follows_S: np.ndarray,
    *,
    target: float,
    least: int,
    most: int,
    budget: float,
    low: float = 0.0,
    high: float = 1.0,
) -> Values:
    """Values of the S states that `draw` continues from; differences of neighbours to the standard error `target`.

    First `least` continuations from every state, half of them in either half (odd numbers are rounded up), whatever
    they cost; then `planned` ones, up to `most`, while the turns of all together stay within `budget`. Returns are
    taken to lie between `low` and `high`. `follows_S` is as in `planned`.
    """
    pilot, limit = (least + 1) // 2, max((least + 1) // 2, most // 2)
    x = np.full((len(follows_S), 2, limit), np.nan)
    turns_S = np.zeros(len(follows_S), dtype=np.int64)

    def play(first_S2: np.ndarray, count_S2: np.ndarray) -> None:
        for part in draw(first_S2, count_S2):
            x[part.state, part.half, part.copy] = part.total
            turns_S[part.state] += part.turns

    pilot_S2 = np.full(x.shape[:2], pilot)
    play(np.zeros_like(pilot_S2), pilot_S2)
    variance_S2 = _step_variances(x, follows_S, low, high)
    cost_S, left = turns_S / (2 * pilot), max(0.0, budget - float(turns_S.sum()))
    plan = partial(planned, variance_S2, follows_S, cost_S, target=target, least=pilot, most=limit)
    wanted, count_S2 = int(plan(budget=math.inf).sum()), plan(budget=left)
    play(pilot_S2, count_S2)

    half_S2 = np.nanmean(x, axis=2)
    both = x.reshape(len(x), 1, -1)
    spread_S = return_variance(both, low, high)[:, 0]
    step_S = _step_variances(both, follows_S, low, high)[:, 0]
    return Values(
        value_S=half_S2.mean(axis=1),
        error_S=np.sqrt(spread_S * (1 / count_S2).sum(axis=1)) / 2,
        half_S2=half_S2,
        step_error_S=_step_errors(spread_S, step_S, count_S2, follows_S),
        count_S=count_S2.sum(axis=1),
        turns_S=turns_S,
        wanted=wanted,
    )


def _step_variances(x: np.ndarray, follows_S: np.ndarray, low: float, high: float) -> np.ndarray:
    """Variance over copies of the difference between each state's return and the next one's (S, ...)."""
    alone = return_variance(x, low, high)
    paired = step_variance(np.roll(x, -1, axis=0) - x, low, high)
    return np.where(follows_S.reshape(-1, *[1] * (alone.ndim - 1)), paired, alone)


def _step_errors(spread_S: np.ndarray, step_S: np.ndarray, count_S2: np.ndarray, follows_S: np.ndarray) -> np.ndarray:
    """Standard error of the difference of two states' values, with copies paired where both states have them.

    In each half, with n and m copies: step / max(n, m), and what the state with fewer copies adds alone.
    """
    next_S2, next_spread_S = np.roll(count_S2, -1, axis=0), np.roll(spread_S, -1)
    most_S2 = np.maximum(count_S2, next_S2)
    square_S2 = (
        step_S[:, None] / most_S2
        + spread_S[:, None] * (1 / count_S2 - 1 / most_S2)
        + next_spread_S[:, None] * (1 / next_S2 - 1 / most_S2)
    )
    square_S2 = np.where(follows_S[:, None], square_S2, spread_S[:, None] / count_S2)
    return np.sqrt(square_S2.sum(axis=1)) / 2
