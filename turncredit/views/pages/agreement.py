"""Agreement of methods with ground truth, and with each other, within one rollout."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turncredit.stats.rank_correlation import mean_correlation
from turncredit.views.pages.data import Book


@dataclass(frozen=True)
class Agreement:
    """One method on one rollout: rank correlation (NaN if undefined), and `right` of `clear` signs.

    `ranked`: there is an order to find, that is, enough branched turns that do not all have the same A*.
    """

    rank: float
    right: int
    clear: int
    ranked: bool


def agreement(book: Book, method: str, rollout: int) -> Agreement:
    """Spearman's correlation with A* over the rollout's branched turns, and the signs that agree where A*'s is known.

    A credit of 0 agrees with neither sign. A constant credit has no rank correlation here.
    """
    if book.truth is None:
        return Agreement(float("nan"), 0, 0, False)
    rows, ranked = book.rows(rollout), book.correlations[method]
    clear = rows[book.truth.clear_N[rows]]
    right = book.credits[method].sign_N[clear] == np.sign(book.truth.advantage_N[clear])
    scored = bool(ranked.scored_R[rollout])
    rank = float(ranked.rho_R[rollout]) if scored and ranked.varies_R[rollout] else float("nan")
    return Agreement(rank, int(right.sum()), len(clear), scored)


def clashes(book: Book, method: str, row: int) -> bool:
    """Whether the method's credit has the opposite sign of an A* whose sign is known."""
    if book.truth is None or not book.truth.clear_N[row]:
        return False
    return bool(book.credits[method].sign_N[row] * book.truth.advantage_N[row] < 0)


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
    turns = book.turns
    return {name: mean_correlation(of, turns.group_R, turns.groups).value for name, of in book.correlations.items()}
