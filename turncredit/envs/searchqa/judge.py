"""The rule judge's grammar of search and answer (Search-R1's tags, or `search[...]` and `answer[...]`).

Nothing here knows the right answer: an answer that a retrieved passage contains is D, one that no passage in the
window contains is R. A query in other words is E even where it finds the same passages (TRIAGE, appendix I); a query
that shares no word with the question or with any passage has left the subject.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.bag_of_words import words
from turncredit.envs.judging import Turn
from turncredit.envs.searchqa.actions import parse

_YES_NO = {frozenset({"yes"}), frozenset({"no"})}


class Act(NamedTuple):
    """`kind` is search, answer or nothing; `words` of what is searched or answered; `reply_words` of the reply."""

    kind: str
    text: str
    words: frozenset[str]
    reply_words: frozenset[str]


@lru_cache(maxsize=4096)
def read_goal(text: str) -> frozenset[str]:
    """The question's words."""
    return words(text)


@lru_cache(maxsize=1 << 16)
def read_turn(turn: Turn) -> Act:
    """A turn, read; the last tag counts, as in the environment."""
    kind, text = parse(turn.action)
    text = text.lower()
    return Act(kind, text, words(text), words(turn.observation) if kind == "search" else frozenset())


def judge(goal: frozenset[str], before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what a query or an answer was
    if now.kind == "search":
        return _search(goal, before, now)
    if now.kind == "answer":
        return _answer(before, now)
    if any(act.kind == "" and act.text == now.text for act in before):
        return "R", "repeats something that is neither a search nor an answer"
    return "N", "neither a search nor an answer"


def _search(goal: frozenset[str], before: Sequence[Act], now: Act) -> tuple[str, str]:
    if any(act.kind == "answer" for act in before):
        return "N", "a search after the answer"
    searches = [act for act in before if act.kind == "search"]
    if any(act.text == now.text or (now.words and act.words == now.words) for act in searches):
        return "R", "repeats a query that was made before"
    vocabulary = goal.union(*(act.reply_words for act in searches))
    if not now.words & vocabulary:
        return "R", "the query has no word of the question or of what was found"
    return "E", "first query" if not searches else "a new query"


def _answer(before: Sequence[Act], now: Act) -> tuple[str, str]:
    if any(act.kind == "answer" for act in before):
        return "N", "an answer after the first one"
    searches = [act for act in before if act.kind == "search"]
    if not searches:
        return "R", "an answer without any search"
    if now.words in _YES_NO:
        return "D", "answers yes or no after a search"
    if now.words and any(now.words <= act.reply_words for act in searches):
        return "D", "a passage that was found contains the answer"
    return "R", "no passage that was found contains the answer"
