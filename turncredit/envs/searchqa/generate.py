"""Small fact bases of our own, each with one question: people who exist nowhere, and who is whose teacher or doctor.

Every task draws people of its own from one list of names, and their relations: what is true in one task says nothing
about another, so the documents have to be read. A question follows as many relations as it has hops (one to six), from
one document to the next. The hash of a fact decides the split that may state it: no two splits have a fact or a
document in common, whatever their seeds.
"""

from __future__ import annotations

import random
import zlib

from turncredit.data.counts import number_of
from turncredit.data.seeding import derive_seed
from turncredit.envs.searchqa.names import NAMES, RELATIONS
from turncredit.envs.searchqa.qa import Question
from turncredit.envs.searchqa.retrieve import Document
from turncredit.envs.searchqa.settings import Settings
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
_ATTEMPTS = 1000
"""Fact bases drawn for a task before giving up; small ones may have no path that is long enough."""

#: name of a person -> relation -> name of whom it leads to
FactBase = dict[str, dict[str, str]]


def generate(split: str, index: int, seed: int, settings: Settings) -> tuple[Question, tuple[Document, ...]]:
    """Task number `index` of a split: its question and all documents. Raises UserError for an unknown split."""
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated questions{nearest(split, SPLITS)}; choose one of {', '.join(SPLITS)}"
        )
    low, high = settings.hops
    hops = low + index % (high - low + 1)
    rng = random.Random(derive_seed(seed, "searchqa", split, index))
    for _ in range(_ATTEMPTS):
        base = _fact_base(split, settings, rng)
        if base is not None and (path := _path(base, hops, rng)) is not None:
            return _question(f"{seed}-{index}", *path), _documents(base)
    raise UserError(f"env.searchqa: {settings.documents} documents have no path of {hops} hops; allow more documents")


def split_of(person: str, relation: str, other: str) -> str:
    """The split that may state a fact."""
    return SPLITS[zlib.crc32(f"{person} {relation} {other}".encode()) % len(SPLITS)]


def _fact_base(split: str, settings: Settings, rng: random.Random) -> FactBase | None:
    """People and their facts, all of them this split's; None if somebody has too few such facts.

    Nobody is named twice in a document: so BM25 finds everybody's own document, which has the name twice, first.
    """
    people = rng.sample(NAMES, settings.documents)
    base: FactBase = {person: {} for person in people}
    for person, facts in base.items():
        for relation in rng.sample(RELATIONS, settings.facts):
            unnamed = [one for one in people if one != person and one not in facts.values()]
            others = [one for one in unnamed if split_of(person, relation, one) == split]
            if not others:
                return None
            facts[relation] = rng.choice(others)
    return base


def _path(base: FactBase, hops: int, rng: random.Random) -> tuple[list[str], list[str]] | None:
    """Relations, and the people that they lead through from the first to the last, nobody twice; None if not found.

    No document on the way names somebody before: a search for that name would find two of them at once.
    """
    for start in rng.sample(list(base), len(base)):
        relations: list[str] = []
        passed = [start]
        while len(relations) < hops:
            onward = [(relation, one) for relation, one in base[passed[-1]].items() if one not in passed]
            if not onward:
                break
            relation, one = rng.choice(onward)
            relations.append(relation)
            passed.append(one)
        else:
            way = passed[:-1]
            if not any(set(base[one].values()) & set(way[:place]) for place, one in enumerate(way)):
                return relations, passed
    return None


def _question(number: str, relations: list[str], passed: list[str]) -> Question:
    text = f"Who is the {' of the '.join(reversed(relations))} of {passed[0]}?"
    hops = len(relations)
    return Question(number, text, (passed[-1],), tuple(passed[:-1]), number_of(hops, "hop"))


def _documents(base: FactBase) -> tuple[Document, ...]:
    return tuple(
        Document(str(number), person, f"{person}: {', '.join(f'{key} {one}' for key, one in facts.items())}.")
        for number, (person, facts) in enumerate(base.items())
    )
