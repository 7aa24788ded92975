"""Search as the original's: BM25 over the products' texts, with the numbers of Lucene's index.

    score = sum over the query's words of idf * (1 - 1 / (1 + tf / (k1 * (1 - b + b * length / mean length))))

Lengths are rounded to one byte, as Lucene keeps them; numbers are of 32 bits; products with equal scores come in the
order of their names. Source: org.apache.lucene.search.similarities.BM25Similarity and org.apache.lucene.util.SmallFloat
(Lucene 9); k1, b and the order of ties are those of Anserini's SimpleSearcher, which the original uses.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from turncredit.envs.webshop.analysis import terms

HITS = 50
"""How many products a search finds at most."""
_K1, _B = np.float32(0.9), np.float32(0.4)
_EXACT = 24
"""Lengths below are kept as they are (SmallFloat.NUM_FREE_VALUES)."""


class Postings(NamedTuple):
    """Where a word occurs: positions of products, ascending, and how often it occurs in each."""

    products: npt.NDArray[np.int32]
    counts: npt.NDArray[np.int32]


class Words(Protocol):
    """A lookup of postings."""

    def get(self, word: str) -> Postings | None:
        """Where a word occurs; None: nowhere."""
        ...


class Index:
    """A searchable list of texts.

    `lengths` are the texts' numbers of words, `ranks` the order of their names, which decides between equal scores.
    """

    def __init__(self, words: Words, lengths: npt.NDArray[np.int64], ranks: npt.NDArray[np.int32]):
        self._words, self._ranks = words, ranks
        self._count = np.count_nonzero(lengths)
        mean = np.float32(lengths.sum() / self._count) if self._count else np.float32(1)
        kept = np.array([rounded_length(length) for length in range(int(lengths.max(initial=0)) + 1)], np.float32)
        #: for each text, what a word's count is multiplied with
        self._inverse = (np.float32(1) / (_K1 * ((np.float32(1) - _B) + _B * kept / mean)))[lengths]

    def search(self, query: str) -> tuple[int, ...]:
        """The positions of at most `HITS` texts that have a word of the query, the best first."""
        scores = np.zeros(len(self._inverse))
        for word, times in Counter(terms(query)).items():
            found = self._words.get(word)
            if found is not None:
                weight = np.float32(times) * np.float32(self._idf(len(found.products)))
                inverse = self._inverse[found.products]
                scores[found.products] += weight - weight / (np.float32(1) + found.counts * inverse)
        (hits,) = np.nonzero(scores)
        best = scores[hits].astype(np.float32)
        if len(hits) > HITS:  # all that can be among the first, ties included
            least = np.partition(best, -HITS)[-HITS]
            hits, best = hits[best >= least], best[best >= least]
        order = np.lexsort((self._ranks[hits], -best))[:HITS]
        return tuple(int(n) for n in hits[order])

    def _idf(self, having: int) -> float:
        return math.log(1 + (self._count - having + 0.5) / (having + 0.5))


def index(texts: Sequence[str], names: Sequence[str]) -> Index:
    """The search index of products' texts and names, in memory."""
    found: dict[str, list[tuple[int, int]]] = {}
    lengths = []
    for position, text in enumerate(texts):
        counts = Counter(terms(text))
        lengths.append(counts.total())
        for word, count in counts.items():
            found.setdefault(word, []).append((position, count))
    words = {}
    for word, pairs in found.items():
        products, counted = np.array(pairs, np.int32).T
        words[word] = Postings(products, counted)
    return Index(words, np.array(lengths, np.int64), ranks_of(names))


def ranks_of(names: Sequence[str]) -> npt.NDArray[np.int32]:
    """The rank of each name in their order."""
    ranks = np.empty(len(names), np.int32)
    ranks[np.argsort(np.array(names, dtype=str), kind="stable")] = np.arange(len(names), dtype=np.int32)
    return ranks


def rounded_length(length: int) -> int:
    """A text's length as Lucene keeps it: four bits of it from 40 on (SmallFloat.intToByte4 and back)."""
    rest = length - _EXACT
    if rest < 16:
        return length
    shift = rest.bit_length() - 4
    return _EXACT + (rest >> shift << shift)
