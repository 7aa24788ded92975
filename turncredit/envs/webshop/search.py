"""Search as the original's: BM25 over the products' texts, by `bm25s` in Lucene's variant.

Of the analysers and libraries that were compared on the 1,000 products, this one (words without Lucene's 33 stop words,
Snowball's English stemmer) is closest to the original's Lucene index: nine or ten of the first ten products are the
same. k1 and b are those of Pyserini, which the original uses.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

import numpy as np

HITS = 50
"""How many products a search finds at most."""

_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")
_STOP = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "  # noqa: SIM905
    "to was will with".split()
)
_K1, _B = 0.9, 0.4


class Index:
    """A searchable list of texts."""

    def __init__(self, texts: Sequence[str]):
        import bm25s  # half a second, which only playing needs
        import Stemmer

        self._stem = Stemmer.Stemmer("english").stemWord
        self._engine = bm25s.BM25(k1=_K1, b=_B, method="lucene")
        self._engine.index([self._tokens(text) for text in texts], show_progress=False)
        self._known = self._engine.vocab_dict

    def search(self, query: str) -> tuple[int, ...]:
        """The positions of at most `HITS` texts that have a word of the query, the best first; ties in their order."""
        tokens = [token for token in self._tokens(query) if token in self._known]
        if not tokens:
            return ()
        scores = self._engine.get_scores(tokens)
        order = np.argsort(-scores, kind="stable")[:HITS]
        return tuple(int(n) for n in order if scores[n] > 0)

    def _tokens(self, text: str) -> list[str]:
        words = (word.removesuffix("'s").removesuffix("’s") for word in _WORD.findall(text.lower()))
        return [self._stem(word) for word in words if word not in _STOP]
