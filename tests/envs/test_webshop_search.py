"""WebShop's search: which words it sees, and BM25 against the formula, document by document."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections import Counter
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.envs.conftest import DATA
from turncredit.envs.webshop import search
from turncredit.envs.webshop.analysis import terms

#: org.apache.lucene.analysis.en.EnglishAnalyzer.ENGLISH_STOP_WORDS_SET, Lucene 9
STOP_WORDS = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these they this "
    "to was will with"
)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Men's shoes, the dog’s bed", ["men", "shoe", "dog", "bed"]),
        ("don't rock'n'roll", ["don't", "rock'n'rol"]),
        ("3.5 oz. bottle, 1,000", ["3.5", "oz", "bottl", "1,000"]),
        ("usb_c-cable ___", ["usb_c", "cabl"]),
        ("Material:wood, x.5 5'6 a.b", ["material:wood", "x", "5", "5'6", "a.b"]),
        ("BLUE Ärmel 蓝色", ["blue", "ärmel", "蓝", "色"]),
        ("10½ \u2764\ufe0f\u2605 \u00ae", ["10", "\u2764\ufe0f", "\u2605", "\u00ae"]),
        ("possibly assemblies technology biology us", ["possibl", "assembl", "technolog", "biologi", "us"]),
        ("4k/60hz (pack-of-2)", ["4k", "60hz", "pack", "2"]),
        ("'quoted' ...", ["quot"]),
        (STOP_WORDS, []),
        (STOP_WORDS.upper(), []),
        ("i you he we from all", ["i", "you", "he", "we", "from", "all"]),
    ],
)
def test_a_text_is_cut_into_words_as_lucenes_english_analyser_does(text, words):
    assert terms(text) == words


def index_of(texts: list[str]) -> search.Index:
    return search.index(texts, [f"{n:04d}" for n in range(len(texts))])


def test_a_word_finds_its_other_forms_but_no_word_that_only_begins_alike():
    index = index_of(["running shoes", "shoe rack", "the shoemaker", "run"])
    assert index.search("Shoes") == (0, 1)
    assert index.search("runs") == (3, 0)
    assert index.search("shoemaker's") == (2,)
    # Porter's stemmer cuts all three to "gener".
    assert index_of(["generous", "generic", "generously"]).search("generous") == (0, 1, 2)


def test_a_search_finds_fifty_products_at_most_and_equally_good_ones_in_their_order():
    texts = ["red cup", "red lamp lamp"] * 200
    index = index_of(texts)
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
    index = index_of([" ".join(text) for text in texts])
    expected = bm25(texts, query)
    found = index.search(" ".join(query))
    assert sorted(found) == [n for n, score in enumerate(expected) if score > 0]
    ranked = [(-round(expected[one], 5), one) for one in found]
    assert ranked == sorted(ranked)


def test_of_equally_good_products_the_one_with_the_first_name_comes_first():
    assert search.index(["red cup", "red cup", "red cup"], ["B", "C", "A"]).search("cup") == (2, 0, 1)


@pytest.mark.parametrize(
    ("length", "kept"), [(0, 0), (23, 23), (39, 39), (40, 40), (41, 40), (42, 42), (100, 96), (1000, 984)]
)
def test_lengths_are_kept_in_one_byte_as_lucenes_small_floats(length, kept):
    """SmallFloat.intToByte4 and byte4ToInt of Lucene 9."""
    assert search.rounded_length(length) == kept


#: sha256 of the names of the hits, a line a query, that Anserini 0.14.3 (pyserini 0.17, Lucene 9) gives for the 1,000
#: products: their titles in lower case, then the queries of goal_query_map.json
LUCENE_HITS = "2bb65af9e0cc4b9ace3431832d099c43eca5201d7144485d37bb94246ca43629"
#: the same of the terms of all contents, separated by tabs
LUCENE_TERMS = "64fc5417919296b8df19750f307745080989812f66804c32902343f79fb25def"


def test_the_thousand_products_have_lucene_s_terms_and_every_search_its_fifty_hits():
    folder = DATA / "webshop"
    if not (folder / "documents_1k.jsonl").exists():
        pytest.skip("no webshop/documents_1k.jsonl: the original's data are not part of the project")
    documents = [json.loads(line) for line in (folder / "documents_1k.jsonl").open()]
    contents = [" ".join(one["contents"].split()) for one in documents]
    assert digest("\t".join(terms(text)) for text in contents) == LUCENE_TERMS
    names = [one["id"] for one in documents]
    index = search.index(contents, names)
    titles = [one["product"]["name"] for one in documents]
    asked = [*titles, *itertools.chain(*json.loads((folder / "goal_query_map.json").read_text()).values())]
    queries = [" ".join(text.lower().split()) for text in asked]
    assert digest(" ".join(names[n] for n in index.search(query)) for query in queries) == LUCENE_HITS


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()
