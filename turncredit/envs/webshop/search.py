"""Search as the original's: BM25 over the products' texts, by `bm25s` in Lucene's variant.

Of the analysers and libraries that were compared on the 1,000 products, this one (words without Lucene's 33 stop words,
Snowball's English stemmer) is closest to the original's Lucene index: nine or ten of the first ten products are the
same.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from turncredit.envs.bm25 import Index

HITS = 50
"""How many products a search finds at most."""

_WORD = re.compile(r"[^\W_]+(?:['’.][^\W_]+)*")
_STOP = frozenset(
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "  # noqa: SIM905
    "to was will with".split()
)


def index(texts: Sequence[str]) -> Index:
    """The search index of products' texts."""
    return Index(texts, _words, HITS)


def _words(text: str) -> list[str]:
    words = (word.removesuffix("'s").removesuffix("’s") for word in _WORD.findall(text.lower()))
    return [word for word in words if word not in _STOP]
