"""Choose the rollouts that get a page, and the pairs to compare: the most instructive ones."""

from __future__ import annotations

import numpy as np

from turncredit.pages.agreement import disagreement_R
from turncredit.pages.data import Book
from turncredit.stats.ranks import FEWEST


def choose(book: Book, pages: int) -> list[int]:
    """At most `pages` rollouts, in an arbitrary but fixed order.

    Two thirds are the most instructive: with ground truth, in groups of mixed outcome, with much disagreement between
    methods, in this order of importance. The rest are their siblings with the other outcome, those of failures first,
    for comparison; if there are too few, the next most instructive.
    """
    truth_R = book.turns.sum_R(book.truth.there_N) if book.truth else np.zeros(book.turns.rollouts)
    apart_R = disagreement_R(book)
    mixed_R = _mixed_R(book)
    by_worth = sorted(
        range(book.turns.rollouts),
        key=lambda r: (truth_R[r] < FEWEST, not mixed_R[r], -apart_R[r], book.ids_R[r]),
    )
    best = by_worth[: -(-2 * pages // 3)]
    paired = [r for r in best if mixed_R[r]]
    paired.sort(key=lambda r: bool(book.success_R[r]))
    partners = [_partner(book, rollout, truth_R) for rollout in paired]
    return list(dict.fromkeys([*best, *partners, *by_worth]))[:pages]


def pairs(book: Book, chosen: list[int]) -> list[tuple[int, int]]:
    """(failed, successful) for each chosen failed rollout with a chosen successful sibling; the longest of them, which
    is the one that SCPO takes as its reference, if that is chosen."""
    found = []
    for rollout in chosen:
        if book.success_R[rollout]:
            continue
        won = [int(other) for other in book.siblings(rollout) if book.success_R[other] and int(other) in chosen]
        if won:
            found.append((rollout, max(won, key=lambda r: (book.turns.length_R[r], -r))))
    return found


def _mixed_R(book: Book) -> np.ndarray:
    """Whether a rollout's group has successes and failures."""
    share_G = book.turns.stats_G(book.success_R.astype(np.float64)).mean_C
    return ((share_G > 0) & (share_G < 1))[book.turns.group_R]


def _partner(book: Book, rollout: int, truth_R: np.ndarray) -> int:
    """A sibling of the other outcome: for a failure the longest success, SCPO's reference; for a success the failure
    with the most ground truth."""
    others = [int(r) for r in book.siblings(rollout) if book.success_R[r] != book.success_R[rollout]]
    if not book.success_R[rollout]:
        return max(others, key=lambda r: (book.turns.length_R[r], -r))
    return max(others, key=lambda r: (truth_R[r], -r))
