"""Parse the text of an ALFWorld PDDL problem into facts and names."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from turncredit.envs.household.profile import UnsupportedGame

_FACT = re.compile(r"\(([a-z]+) ([^()\s]+)(?: ([^()\s]+))?\s*\)")
_SPACE = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem's initial facts by (lower-case) predicate, the names of its things, and its goal text."""

    facts: dict[str, list[tuple[str, str]]]
    """Predicate to (first, second) arguments in file order; second is empty for one-place predicates."""
    names: dict[str, str]
    """Id to the name that the game prints, such as `cabinet 3`."""
    goal: str
    """The goal's PDDL in lower case with single spaces."""

    def of(self, predicate: str) -> Sequence[tuple[str, str]]:
        """The facts of one predicate."""
        return self.facts.get(predicate, ())


def parse(text: str) -> Problem:
    """Read a `pddl_problem`. Raises UnsupportedGame where there is no init or no goal."""
    lowered = text.lower()
    init, goal = lowered.find("(:init"), lowered.find("(:goal")
    if not 0 <= init < goal:
        raise UnsupportedGame("the game's PDDL problem has no (:init ...) followed by a (:goal ...)")
    facts: dict[str, list[tuple[str, str]]] = {}
    ids: set[str] = set()
    for predicate, first, second in _FACT.findall(lowered, init, goal):
        facts.setdefault(predicate, []).append((first, second))
        ids.add(first)
        ids.add(second)
    ids.discard("")
    return Problem(facts, _names(ids), _SPACE.sub(" ", lowered[goal:]))


def _names(ids: set[str]) -> dict[str, str]:
    """Printed names, as the reference's demangler makes them (unshuffled).

    Ids are taken in sorted order and numbers are handed out from the highest, so the first gets the
    largest. Basins are distinguished from the sinks that hold them. Ids without a position (the agent, the types)
    keep a trailing space; they are never printed, except for locations in the oldest edition.
    """
    left: Counter[str] = Counter()
    kinds: list[tuple[str, str]] = []
    names = {}
    for thing in sorted(ids):
        kind, mark, _ = thing.partition("_bar_")
        if not mark:
            names[thing] = thing + " "
            continue
        if "basin" in thing:
            kind += "basin"
        left[kind] += 1
        kinds.append((thing, kind))
    for thing, kind in kinds:
        names[thing] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names
