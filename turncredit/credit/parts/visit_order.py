"""The order in which SCPO's matcher visits a rollout's turns, including token balancing by Karmarkar and Karp."""

from __future__ import annotations

import heapq
from typing import Literal

import numpy as np

from turncredit.data.turns import Turns

Order = Literal["balanced", "chronological", "longest_first"]

#: one part of a partition: (total, number of items, an item to break ties, tree of items)
_Part = tuple[int, int, int, object]


def balanced_partition(length_M: np.ndarray, parts: int) -> list[np.ndarray]:
    """The items split into `parts` of equal number and nearly equal total length; indices rise within a part.

    Karmarkar and Karp's differencing (1982) in the balanced form that verl uses to spread a batch over ranks: items
    are sorted and dealt into tuples of `parts`; the two tuples with the largest spread are merged, largest part with
    smallest, until one is left. Ties are broken as there (larger total, more items, then the first item's number).
    The parts come with the largest total first. Where `parts` does not divide the number of items, items of length 0
    are added and left out of the result; verl copies rows instead.
    """
    count = len(length_M)
    padded = np.concatenate([length_M, np.zeros(-count % parts, dtype=np.int64)]).astype(np.int64)
    by_length = np.lexsort((np.arange(len(padded)), padded)).tolist()
    lengths = padded.tolist()
    heap: list[tuple[int, int, int, int, list[_Part]]] = []
    for start in range(0, len(by_length), parts):
        state: list[_Part] = [(lengths[item], 1, item, item) for item in by_length[start : start + parts]]
        heap.append(_keyed(sorted(state, reverse=True)))
    heapq.heapify(heap)
    while len(heap) > 1:
        one, two = heapq.heappop(heap)[-1], heap[0][-1]
        merged: list[_Part] = [
            (a[0] + b[0], a[1] + b[1], a[2], (a[3], b[3])) for a, b in zip(one, two[::-1], strict=True)
        ]
        merged.sort(reverse=True)  # the third entries differ, so the trees are never compared
        heapq.heapreplace(heap, _keyed(merged))
    partition = [np.sort(np.array(_flat(part[3]), dtype=np.int64)) for part in heap[0][-1]]
    return [items[items < count] for items in partition]


def visit_rank_N(turns: Turns, order: Order, ranks: int) -> np.ndarray:
    """A number for each turn; a rollout's turns are visited in rising order.

    balanced        all turns of the table are split over `ranks` by length, the parts are put one after the other
    chronological   turn by turn
    longest_first   longer turns first, earlier ones first among equals
    """
    if order == "chronological":
        return turns.turn_N
    length_N = turn_lengths_N(turns)
    if order == "longest_first":
        by_length = np.lexsort((turns.turn_N, -length_N))
    else:
        by_length = np.concatenate(balanced_partition(length_N, min(ranks, turns.n)))
    rank_N = np.empty(turns.n, dtype=np.int64)
    rank_N[by_length] = np.arange(turns.n)
    return rank_N


def turn_lengths_N(turns: Turns) -> np.ndarray:
    """Tokens of prompt and response of each turn; in a table without tokens, characters of action and observation.

    `prompt_ids` hold what entered the context since the last response, so a prompt is everything since the context
    was last reset.
    """
    if turns.has("prompt_ids") and turns.has("response_ids"):
        new_N = turns.list_lengths("prompt_ids", "scpo") + turns.list_lengths("response_ids", "scpo")
        total_N = np.cumsum(new_N)
        reset_N = turns.turn_N == 0
        if turns.has("context_reset"):
            reset_N = reset_N | turns.truths("context_reset", "scpo")
        start_N = np.maximum.accumulate(np.where(reset_N, np.arange(turns.n), 0))
        length_N: np.ndarray = total_N - (total_N - new_N)[start_N]
        return length_N
    total_N = np.zeros(turns.n, dtype=np.int64)
    for name in ("action", "next_observation"):
        code_N, texts = turns.texts(name, "scpo")
        total_N += np.array([len(text) for text in texts])[code_N]
    return total_N


def _keyed(state: list[_Part]) -> tuple[int, int, int, int, list[_Part]]:
    """Largest spread first, then the larger first part; the keys differ, so the heap never compares the parts."""
    first = state[0]
    return (state[-1][0] - first[0], -first[0], -first[1], -first[2], state)


def _flat(tree: object) -> list[int]:
    items: list[int] = []
    stack = [tree]
    while stack:
        node = stack.pop()
        if isinstance(node, tuple):
            stack += node
        else:
            assert isinstance(node, int)
            items.append(node)
    return items
