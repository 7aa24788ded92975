"""WebShop's search: which words it sees, and BM25 against the formula, document by document."""

from __future__ import annotations

import math
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.envs.webshop import search

#: org.apache.lucene.analysis.en.EnglishAnalyzer.ENGLISH_STOP_WORDS_SET, Lucene 9
STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Men's shoes, the dog’s bed", ["men", "shoes", "dog", "bed"]),
        ("don't rock'n'roll", ["don't", "rock'n'roll"]),
        ("3.5 oz. bottle.", ["3.5", "oz", "bottle"]),
        ("usb_c-cable", ["usb", "c", "cable"]),
        ("BLUE Ärmel 蓝色", ["blue", "ärmel", "蓝色"]),
        ("4k/60hz (pack-of-2)", ["4k", "60hz", "pack", "2"]),
        ("'quoted' ...", ["quoted"]),
        (STOP_WORDS, []),
        (STOP_WORDS.upper(), []),
        ("i you he we from all", ["i", "you", "he", "we", "from", "all"]),
    ],
)
def test_a_text_is_cut_into_words_as_lucenes_english_analyser_does(text, words):
    assert search._words(text) == words


def test_a_word_finds_its_other_forms_but_no_word_that_only_begins_alike():
    index = search.index(["running shoes", "shoe rack", "the shoemaker", "run"])
    assert index.search("Shoes") == (0, 1)
    assert index.search("runs") == (3, 0)
    assert index.search("shoemaker's") == (2,)
    # Porter's older stemmer cuts all three to "gener".
    assert search.index(["generous", "generic", "generously"]).search("generous") == (0, 2)


def test_a_search_finds_fifty_products_at_most_and_equally_good_ones_in_their_order():
    texts = ["red cup", "red lamp lamp"] * 200
    index = search.index(texts)
    assert index.search("red") == tuple(range(0, 100, 2))
    assert index.search("lamp") == tuple(range(1, 101, 2))


def bm25(texts: list[list[str]], query: list[str]) -> list[float]:
    """Each text's score by Lucene's formula (BM25Similarity) with Pyserini's k1 = .9 and b = .4, term by term."""
    k1, b = 0.9, 0.4
    mean = sum(map(len, texts)) / len(texts)
    scores = []
    for text in texts:
        count, score = Counter(text), 0.0
        for word in query:
            having = sum(word in other for other in texts)
            idf = math.log(1 + (len(texts) - having + 0.5) / (having + 0.5))
            score += idf * count[word] / (count[word] + k1 * (1 - b + b * len(text) / mean))
        scores.append(score)
    return scores


#: words that are their own stems
WORD = st.sampled_from(["red", "cup", "lamp", "oak", "tin"])


@given(
    st.lists(st.lists(WORD, min_size=1, max_size=12), min_size=1, max_size=9), st.lists(WORD, min_size=1, max_size=4)
)
def test_products_have_lucenes_scores_and_come_in_their_order(texts, query):
    index = search.index([" ".join(text) for text in texts])
    expected = bm25(texts, query)
    known = [word for word in query if any(word in text for text in texts)]
    scores = index._engine.get_scores(known) if known else [0.0] * len(texts)  # it refuses a query without known words
    assert scores == pytest.approx(expected, rel=1e-5)  # bm25s computes in float32
    found = index.search(" ".join(query))
    assert sorted(found) == [n for n, score in enumerate(expected) if score > 0]
    assert all(expected[better] >= expected[worse] - 1e-5 for better, worse in pairwise(found))
