"""Anchors: which turns of a group saw the same state, by equal or by nearly equal observations (GiGPO, HGPO)."""

from __future__ import annotations

from difflib import SequenceMatcher
from itertools import pairwise

import numpy as np

from turncredit.data.turns import Turns


def exact_anchors_N(turns: Turns, method: str) -> np.ndarray:
    """Anchor number of each turn: equal in the same group for the same observation text."""
    codes_N = turns.codes("observation", method)
    return np.unique(turns.group_N * (int(codes_N.max()) + 1) + codes_N, return_inverse=True)[1]


def similar_anchors_N(turns: Turns, threshold: float) -> np.ndarray:
    """Anchor numbers by first fit: a text joins the first cluster of its group whose first member is similar.

    Similar is difflib's ratio >= threshold, with the new text as its first sequence, as verl-agent has it: the other
    way round it is another number. Like the reference this depends on the order in which texts come; here that is
    rollout by rollout, turn by turn, in the order of their ids.
    """
    codes_N, texts = turns.texts("observation", "gigpo")
    alike = _Alike(texts, threshold)
    anchor_N = np.empty(turns.n, dtype=np.int64)
    anchors = 0
    for start, end in pairwise(np.append(turns.first_R[turns.first_G], turns.n)):
        codes, first_at, place = np.unique(codes_N[start:end], return_index=True, return_inverse=True)
        by_time = np.argsort(first_at)
        cluster = np.empty(len(codes), dtype=np.int64)
        cluster[by_time] = alike.first_fit(codes[by_time].tolist())
        anchor_N[start:end] = anchors + cluster[place]
        anchors += int(cluster.max()) + 1
    return anchor_N


class _Alike:
    """Which texts are similar, each pair compared once.

    difflib's ratio is 2 M / (both lengths), M the letters in the blocks that it matches. M is at most the length of
    the longest common subsequence, and that at most the number of letters the texts share; both bounds are cheap, so
    the ratio itself is only computed for pairs that they leave open.
    """

    def __init__(self, texts: list[str], threshold: float) -> None:
        self.texts, self.threshold = texts, threshold
        letters = {letter: place for place, letter in enumerate(sorted(set("".join(texts))))}
        self.count = np.zeros((len(texts), len(letters)), dtype=np.int32)
        for row, text in enumerate(texts):
            np.add.at(self.count[row], [letters[letter] for letter in text], 1)
        self.length = self.count.sum(axis=1)
        self.answers: dict[tuple[int, int], bool] = {}
        self.matcher = SequenceMatcher(None)

    def first_fit(self, codes: list[int]) -> list[int]:
        """The cluster of each of these texts, which come in this order."""
        clusters: list[int] = []
        firsts: list[int] = []
        for code in codes:
            shared = np.minimum(self.count[firsts], self.count[code]).sum(axis=1)
            possible = 2.0 * shared >= self.threshold * (self.length[firsts] + self.length[code]) - 1e-9
            candidates = np.flatnonzero(possible).tolist()
            cluster = next((c for c in candidates if self._similar(firsts[c], code)), len(firsts))
            if cluster == len(firsts):
                firsts.append(code)
            clusters.append(cluster)
        return clusters

    def _similar(self, first: int, code: int) -> bool:
        if (first, code) not in self.answers:
            one, two = self.texts[first], self.texts[code]
            answer = 2.0 * common_subsequence(one, two) >= self.threshold * (len(one) + len(two)) - 1e-9
            if answer:
                self.matcher.set_seqs(two, one)
                answer = self.matcher.ratio() >= self.threshold
            self.answers[first, code] = answer
        return self.answers[first, code]


def common_subsequence(one: str, two: str) -> int:
    """Length of the longest common subsequence, bit-parallel over `one` (Hyyro 2004)."""
    at: dict[str, int] = {}
    for place, letter in enumerate(one):
        at[letter] = at.get(letter, 0) | (1 << place)
    full = (1 << len(one)) - 1
    open_bits = full
    for letter in two:
        hit = open_bits & at.get(letter, 0)
        open_bits = ((open_bits + hit) | (open_bits - hit)) & full
    return len(one) - open_bits.bit_count()
