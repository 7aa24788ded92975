"""The rule judge's grammar of search and answer (Search-R1's tags, or `search[...]` and `answer[...]`).

Nothing here knows the right answer: an answer that a retrieved passage contains is D, one that no passage in the
window contains is R. A query in other words is E even where it finds the same passages (TRIAGE, appendix I); a query
that shares no word with the question or with any passage has left the subject. Where a query or an answer is made of
stop words alone (the band The Who), it is looked for as it stands.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.bag_of_words import words
from turncredit.envs.judging import Turn
from turncredit.envs.searchqa.actions import parse

_WORD = re.compile(r"[^\W_]+")
_YES_NO = {frozenset({"yes"}), frozenset({"no"})}


class Text(NamedTuple):
    """A text and its words."""

    text: str
    words: frozenset[str]

    def has(self, other: Text) -> bool:
        """Whether it has all words of another text; one after the other, where that has stop words alone."""
        if other.words:
            return other.words <= self.words
        said = _in_order(other.text)
        return bool(said.strip()) and said in _in_order(self.text)


class Act(NamedTuple):
    """`kind` is search, answer or nothing; what is searched or answered; the reply, empty unless to a search."""

    kind: str
    said: Text
    reply: Text


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Text:
    """The question."""
    return _text(text)


@lru_cache(maxsize=1 << 16)
def read_turn(turn: Turn) -> Act:
    """A turn, read; the first tag counts, as in the environment."""
    kind, text = parse(turn.action)
    return Act(kind, _text(text.lower()), _text(turn.observation if kind == "search" else ""))


def _text(text: str) -> Text:
    return Text(text, words(text))


def _in_order(text: str) -> str:
    return f" {' '.join(_WORD.findall(text.lower()))} "


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).kind)


def judge(goal: Text, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what a query or an answer was
    if now.kind == "search":
        return _search(goal, before, now)
    if now.kind == "answer":
        return _answer(before, now)
    if any(act.kind == "" and act.said.text == now.said.text for act in before):
        return "R", "repeats something that is neither a search nor an answer"
    return "N", "neither a search nor an answer"


def _search(goal: Text, before: Sequence[Act], now: Act) -> tuple[str, str]:
    if any(act.kind == "answer" for act in before):
        return "N", "a search after the answer"
    searches = [act for act in before if act.kind == "search"]
    query = now.said
    if any(act.said.text == query.text or (query.words and act.said.words == query.words) for act in searches):
        return "R", "repeats a query that was made before"
    known = [goal, *(act.reply for act in searches)]
    if not any(query.words & one.words if query.words else one.has(query) for one in known):
        return "R", "the query has no word of the question or of what was found"
    return "E", "first query" if not searches else "a new query"


def _answer(before: Sequence[Act], now: Act) -> tuple[str, str]:
    if any(act.kind == "answer" for act in before):
        return "N", "an answer after the first one"
    searches = [act for act in before if act.kind == "search"]
    if not searches:
        return "R", "an answer without any search"
    if now.said.words in _YES_NO:
        return "D", "answers yes or no after a search"
    if any(act.reply.has(now.said) for act in searches):
        return "D", "a passage that was found contains the answer"
    return "R", "no passage that was found contains the answer"
