"""A fact base of our own: people, books, companies and towns that exist nowhere, and questions about them.

Every document is about one entity and states up to three relations, each to another kind of entity; a question follows
as many of them as it has hops (one to six), from one document to the next. A name is two words: the first from a short
list of its kind's, as names of towns sound like towns, the second from one that all share. So a small policy with a
small vocabulary can learn to choose and to copy a name, and a search for one also finds others that share a word with
it. Each entity belongs to a split, and its facts lead to entities of the same one: no two splits ask for a common fact,
or for what a common document states, whatever their seeds. Searches find documents of all splits.
"""

from __future__ import annotations

import hashlib
import random
from functools import lru_cache
from itertools import chain, cycle, islice, zip_longest
from math import ceil, sqrt
from typing import NamedTuple

from turncredit.data.seeding import derive_seed
from turncredit.envs.searchqa.qa import Question
from turncredit.envs.searchqa.retrieve import Document
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")

#: kind of entity -> its relations, each with the kind that it leads to; with fewer facts a document has the first ones
RELATIONS: dict[str, dict[str, str]] = {
    "book": {"author": "person", "publisher": "company", "setting": "town"},
    "person": {"birthplace": "town", "employer": "company", "masterpiece": "book"},
    "company": {"founder": "person", "seat": "town", "bestseller": "book"},
    "town": {"mayor": "person", "chronicle": "book", "newspaper": "company"},
}

_ATTEMPTS = 2_000
"""Draws of a document's facts before giving up."""
_FEWEST_WORDS = 10
"""In a list of words for names: fewer could leave no name that shares no word with the others of its document."""
_CONSONANTS, _VOWELS, _ENDS = "bdfgklmnprstvz", "aeiou", "klmnrst"


class Entity(NamedTuple):
    """An entity: `facts` are its relations and the names, of the same split, that they lead to."""

    name: str
    kind: str
    split: str
    facts: dict[str, str]

    def document(self, number: int) -> Document:
        """The document about it."""
        facts = "; ".join(f"{relation} {name}" for relation, name in self.facts.items())
        return Document(str(number), self.name, f"{self.name} is a {self.kind}; {facts}.")


@lru_cache(maxsize=4)
def fact_base(count: int, seed: int, most: int) -> dict[str, Entity]:
    """`count` entities by name, with `most` facts each; the kinds take turns, and so do the splits within a kind."""
    rng = random.Random(derive_seed(seed, "searchqa", "facts"))
    of_kind = _names(count, rng)
    kind_of = {
        name: kind for names in zip_longest(*of_kind.values()) for kind, name in zip(RELATIONS, names, strict=True)
    }
    kind_of.pop(None, None)
    split_of = {name: split for names in of_kind.values() for name, split in _dealt(names).items()}
    there = {
        (kind, split): [n for n in of_kind[kind] if split_of[n] == split] for kind in RELATIONS for split in SPLITS
    }

    def facts(name: str) -> dict[str, str]:
        kinds = dict(islice(RELATIONS[kind_of[name]].items(), most))
        candidates = [there[kind, split_of[name]] for kind in kinds.values()]
        return dict(zip(kinds, _apart(name, candidates, rng), strict=True))

    return {name: Entity(name, kind, split_of[name], facts(name)) for name, kind in kind_of.items()}


def _dealt(names: list[str]) -> dict[str, str]:
    """The split of each name; names with the same second word go to different splits, as far as there are enough."""
    return dict(zip(sorted(names, key=lambda name: name.split()[::-1]), cycle(SPLITS), strict=False))


def _apart(name: str, candidates: list[list[str]], rng: random.Random) -> list[str]:
    """One name of each list, such that no two names of a document share a word: BM25 finds it first by its own name."""
    for _ in range(_ATTEMPTS):
        chosen = [rng.choice(names) for names in candidates]
        words = [word for one in (name, *chosen) for word in one.split()]
        if len(set(words)) == len(words):
            return chosen
    raise UserError(
        "env.searchqa: found no facts with names that share no word; allow more documents, or change base_seed"
    )


def _names(count: int, rng: random.Random) -> dict[str, list[str]]:
    """Different names of two words for each kind; of a large base about half of all pairs are used."""
    kinds = len(RELATIONS)
    each = max(_FEWEST_WORDS, ceil(sqrt(2 * count / kinds)))
    words: dict[str, None] = {}
    while len(words) < (kinds + 1) * each:
        parts = (rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(2))
        words["".join(parts).capitalize() + rng.choice(_ENDS)] = None
    lists = [list(words)[start : start + each] for start in range(0, len(words), each)]
    out = {}
    for number, kind in enumerate(RELATIONS):
        pairs = [f"{one} {two}" for one in lists[number] for two in lists[-1]]
        out[kind] = rng.sample(pairs, (count + kinds - 1 - number) // kinds)
    return out


@lru_cache(maxsize=4)
def documents(count: int, seed: int, most: int) -> tuple[Document, ...]:
    """The documents of the fact base."""
    return tuple(entity.document(number) for number, entity in enumerate(fact_base(count, seed, most).values()))


@lru_cache(maxsize=32)
def _all(base_of: tuple[int, int, int], hops: int, split: str) -> tuple[Question, ...]:
    """All questions of a split that take this many documents. None comes back to an entity that it passed."""
    base = fact_base(*base_of)
    paths = [(name, (), (name,)) for name in base if base[name].split == split]
    for _ in range(hops):
        paths = [
            (name, (*relations, relation), (*passed, base[name].facts[relation]))
            for start, relations, passed in paths
            for name in (passed[-1],)
            for relation in base[name].facts
            if base[name].facts[relation] not in passed
        ]
    return tuple(_question(relations, passed) for _, relations, passed in paths)


def _question(relations: tuple[str, ...], passed: tuple[str, ...]) -> Question:
    asked = " of the ".join(reversed(relations))
    text = f"What is the {asked} of {passed[0]}?"
    number = hashlib.sha256(text.encode()).hexdigest()[:16]
    hops = len(relations)
    return Question(number, text, (passed[-1],), passed[:-1], f"{hops} hop{'s' * (hops > 1)}")


def questions(split: str, seed: int, base_of: tuple[int, int, int], hops: tuple[int, int]) -> list[Question]:
    """All questions of a split in the seed's order; numbers of hops take turns as long as there are questions of each.

    `base_of` are the arguments of `fact_base`. Raises UserError for an unknown split.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated questions{nearest(split, SPLITS)}; choose one of {', '.join(SPLITS)}"
        )
    families = []
    for number in range(hops[0], hops[1] + 1):
        family = list(_all(base_of, number, split))
        random.Random(derive_seed(seed, "searchqa", split, number)).shuffle(family)
        families.append(family)
    return [one for one in chain.from_iterable(zip_longest(*families)) if one is not None]
