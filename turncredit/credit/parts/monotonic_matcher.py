"""SCPO's monotonic credit matcher (algorithm 2), over all failed rollouts at once.

For one failed rollout with l turns and a reference with m turns the paper's algorithm is, with j the place matched so
far (-1 for none) and f the furthest place credited:

    for v in the order of visits:
        while j >= 0 and M[j + 1, v] < theta:  j = next[j]
        if M[j + 1, v] >= theta:
            j += 1
            if j > f:  credit v at place j;  f = j
        if j == m - 1:  stop

`next` is Knuth, Morris and Pratt's table of the reference against itself, a match being M*[u, w] >= theta. Here step
k of every rollout is done together with step k of all others, so the loop runs over the longest rollout only.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


def next_table(self_similarity: np.ndarray, theta: float) -> np.ndarray:
    """next[i]: where the longest proper prefix of the reference that also ends at place i ends itself, or -1."""
    alike = (self_similarity >= theta).tolist()
    table = [-1] * len(alike)
    for i in range(1, len(alike)):
        k = table[i - 1]
        while k >= 0 and not alike[k + 1][i]:
            k = table[k]
        table[i] = k + 1 if alike[k + 1][i] else k
    return np.array(table, dtype=np.int64)


class Case(NamedTuple):
    """One group: its failed turns and how alike they are to the reference of m places.

    row_V       the failed turns' rows (V of them)
    rollout_V   the rollout of each
    rank_V      they are visited by rising rank within a rollout
    own_MM      the reference's similarity to itself
    score_MV    its similarity to each failed turn
    """

    row_V: np.ndarray
    rollout_V: np.ndarray
    rank_V: np.ndarray
    own_MM: np.ndarray
    score_MV: np.ndarray


class Matches(NamedTuple):
    """For each visited turn: its row, its place in the order of visits, the credited place or -1, the similarity."""

    row_L: np.ndarray
    visit_L: np.ndarray
    place_L: np.ndarray
    similarity_L: np.ndarray


def match(cases: Sequence[Case], theta: float, repeat: bool) -> Matches:
    """Run the matcher on every failed rollout of every group.

    With `repeat` every match is credited, at whatever place (the ablation without monotonicity): the walk then does
    not stop at the end of the reference but goes on from next[m - 1], as in a search for all occurrences.
    """
    flat = _flatten(cases, theta)
    rollouts = len(flat.start_F)
    j_F = np.full(rollouts, -1)
    furthest_F = np.full(rollouts, -1)
    place_L = np.full(len(flat.row_L), -1)
    similarity_L = np.zeros(len(flat.row_L))
    on_F = np.arange(rollouts)
    for step in range(int(flat.length_F.max())):
        on_F = on_F[flat.length_F[on_F] > step]
        if not len(on_F):
            break
        here_L = flat.start_F[on_F] + step
        cell = flat.cell_L[here_L]
        j = j_F[on_F]
        similarity = flat.score[cell + (j + 1) * flat.stride_F[on_F]]
        back = np.flatnonzero((j >= 0) & (similarity < theta))
        while len(back):
            j[back] = flat.next_T[flat.table_F[on_F[back]] + j[back]]
            similarity[back] = flat.score[cell[back] + (j[back] + 1) * flat.stride_F[on_F[back]]]
            back = back[(j[back] >= 0) & (similarity[back] < theta)]
        hit = similarity >= theta
        j = j + hit
        credit = hit & (repeat | (j > furthest_F[on_F]))
        place_L[here_L[credit]] = j[credit]
        similarity_L[here_L[credit]] = similarity[credit]
        furthest_F[on_F] = np.maximum(furthest_F[on_F], j)
        end = j == flat.places_F[on_F] - 1
        if repeat:
            j[end] = flat.next_T[flat.table_F[on_F[end]] + j[end]]
        j_F[on_F] = j
        on_F = on_F if repeat else on_F[~end]
    visit_L = np.arange(len(flat.row_L)) - np.repeat(flat.start_F, flat.length_F)
    return Matches(flat.row_L, visit_L, place_L, similarity_L)


class _Flat(NamedTuple):
    """All failed rollouts (F) one after the other; `score` holds the groups' matrices, row by row.

    The similarity of reference place u and visit x is score[cell_L[x] + u * stride_F]; `next` of a rollout's reference
    begins at table_F in next_T.
    """

    row_L: np.ndarray
    start_F: np.ndarray
    length_F: np.ndarray
    cell_L: np.ndarray
    stride_F: np.ndarray
    places_F: np.ndarray
    table_F: np.ndarray
    score: np.ndarray
    next_T: np.ndarray


def _flatten(cases: Sequence[Case], theta: float) -> _Flat:
    rows, cells, lengths, per_rollout = [], [], [], []
    score_at = table_at = 0
    for case in cases:
        places, width = case.score_MV.shape
        visits = np.lexsort((case.rank_V, case.rollout_V))
        rows.append(case.row_V[visits])
        cells.append(score_at + visits)
        counts = np.unique(case.rollout_V, return_counts=True)[1]
        lengths.append(counts)
        per_rollout.append(np.tile([width, places, table_at], (len(counts), 1)))
        score_at += places * width
        table_at += places
    length_F = np.concatenate(lengths)
    stride_F, places_F, table_F = np.concatenate(per_rollout).T
    return _Flat(
        row_L=np.concatenate(rows),
        start_F=np.concatenate([[0], np.cumsum(length_F)[:-1]]),
        length_F=length_F,
        cell_L=np.concatenate(cells),
        stride_F=stride_F,
        places_F=places_F,
        table_F=table_F,
        score=np.concatenate([case.score_MV.ravel() for case in cases]),
        next_T=np.concatenate([next_table(case.own_MM, theta) for case in cases]),
    )
