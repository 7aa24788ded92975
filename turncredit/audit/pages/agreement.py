"""How far methods agree with ground truth, and with each other, within one rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.stats import rankdata

from turncredit.audit.pages.book import Book

#: fewer branched turns than this rank nothing
MIN_TURNS = 3


@dataclass(frozen=True)
class Agreement:
    """One method on one rollout: rank correlation (NaN where there is none), and `right` of `clear` signs.

    `ranked` says whether there is an order to find: enough branched turns, which do not all have the same A*.
    """

    rank: float
    right: int
    clear: int
    ranked: bool


def agreement(book: Book, method: str, rollout: int) -> Agreement:
    """Spearman's correlation with A* over the rollout's branched turns, and the signs that agree where A*'s is known.

    A credit of exactly 0 agrees with neither sign.
    """
    if book.truth is None:
        return Agreement(float("nan"), 0, 0, False)
    rows = book.branched(rollout)
    credit, true = book.credits[method].advantage_N[rows], book.truth.advantage_N[rows]
    clear = book.truth.clear_N[rows]
    right = np.sign(credit[clear]) == np.sign(true[clear])
    ranked = len(true) >= MIN_TURNS and np.ptp(true) > 0
    return Agreement(spearman(credit, true), int(right.sum()), int(clear.sum()), bool(ranked))


def spearman(x: np.ndarray, y: np.ndarray) -> float:
    """Rank correlation with ties at their mean rank; NaN for fewer than three values or where one side is constant."""
    if len(x) < MIN_TURNS or np.ptp(x) == 0 or np.ptp(y) == 0:
        return float("nan")
    return float(np.corrcoef(rankdata(x), rankdata(y))[0, 1])


def clashes(book: Book, method: str, row: int) -> bool:
    """Whether the method's credit has the opposite sign of an A* whose sign is known."""
    if book.truth is None or not book.truth.clear_N[row]:
        return False
    return bool(book.credits[method].advantage_N[row] * book.truth.advantage_N[row] < 0)


def disagreement_R(book: Book) -> np.ndarray:
    """For each rollout, how far methods are apart: the deviation across methods of credit in units of each method's
    full colour, cut at 1, as its mean over turns. 0 with fewer than two methods."""
    if len(book.credits) < 2:
        return np.zeros(book.turns.rollouts)
    scaled = np.stack([np.clip(c.advantage_N / c.scale, -1, 1) for c in book.credits.values()])
    return book.turns.mean_R(scaled.std(axis=0))


def mean_ranks(book: Book) -> dict[str, float]:
    """Each method's rank correlation with A* over all rollouts, as `turncredit fidelity` has it: a mean with the weight
    n - 1 for n branched turns, in which a credit that is constant in a rollout counts 0. NaN without ground truth."""
    if book.truth is None:
        return dict.fromkeys(book.credits, float("nan"))
    rollouts = [int(r) for r in np.flatnonzero(book.turns.sum_R(book.truth.there_N) >= MIN_TURNS)]
    rollouts = [r for r in rollouts if np.ptp(book.truth.advantage_N[book.branched(r)]) > 0]
    if not rollouts:
        return dict.fromkeys(book.credits, float("nan"))
    weight = np.array([len(book.branched(rollout)) - 1.0 for rollout in rollouts])
    out = {}
    for name in book.credits:
        rank = np.nan_to_num([agreement(book, name, rollout).rank for rollout in rollouts])
        out[name] = float(weight @ rank / weight.sum())
    return out
