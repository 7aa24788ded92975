"""Choose the rollouts that get a page, and the pairs to compare: the most instructive ones."""

from __future__ import annotations

import numpy as np

from turncredit.stats.rank_correlation import FEWEST
from turncredit.views.pages.agreement import disagreement_R
from turncredit.views.pages.data import Book


def choose(book: Book, pages: int) -> list[int]:
    """At most `pages` rollouts, the most instructive first: from groups of mixed outcome, with much disagreement
    between methods, in this order of importance.

    Where there is ground truth only rollouts of which it knows something get a page, and if need be fewer than `pages`:
    of the others a page could not say which turn mattered. Their siblings stand beside them (`pairs`).
    """
    truth_R = _truth_R(book)
    apart_R = disagreement_R(book)
    mixed_R = _mixed_R(book)
    candidates = np.flatnonzero(truth_R > 0) if truth_R.any() else np.arange(book.turns.rollouts)
    ranked = sorted(candidates, key=lambda r: (truth_R[r] < FEWEST, not mixed_R[r], -apart_R[r], book.ids_R[r]))
    return [int(rollout) for rollout in ranked[:pages]]


def pairs(book: Book, chosen: list[int]) -> list[tuple[int, int]]:
    """(failed, successful) for each chosen rollout with a sibling of the other outcome, which need not be chosen."""
    unique: dict[tuple[int, int], None] = {}
    truth_R = _truth_R(book)
    for rollout in chosen:
        partner = _partner(book, rollout, set(chosen), truth_R)
        if partner is not None:
            unique[(partner, rollout) if book.success_R[rollout] else (rollout, partner)] = None
    return list(unique)


def _mixed_R(book: Book) -> np.ndarray:
    """Whether a rollout's group has successes and failures."""
    share_G = book.turns.stats_G(book.success_R.astype(np.float64)).mean_C
    return ((share_G > 0) & (share_G < 1))[book.turns.group_R]


def _truth_R(book: Book) -> np.ndarray:
    """The number of turns with ground truth in each rollout."""
    return book.turns.sum_R(book.truth.branched_N) if book.truth else np.zeros(book.turns.rollouts)


def _partner(book: Book, rollout: int, chosen: set[int], truth_R: np.ndarray) -> int | None:
    """A sibling of the other outcome, if there is one: one that has a page rather than one without; for a failure the
    longest success, which SCPO takes as its reference; for a success the failure with the most ground truth."""
    others = [int(r) for r in book.siblings(rollout) if book.success_R[r] != book.success_R[rollout]]
    worth_R = truth_R if book.success_R[rollout] else book.turns.length_R
    return max(others, key=lambda r: (r in chosen, worth_R[r], -r), default=None)
