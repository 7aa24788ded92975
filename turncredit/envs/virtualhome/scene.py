"""A household at its start with the names of its objects, and the state of a rollout in it."""

from __future__ import annotations

import random
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from turncredit.data.seeding import derive_seed
from turncredit.envs.virtualhome import engine
from turncredit.envs.virtualhome.actions import Mention


class Household:
    """A household at its start, with its names. Shared by the rollouts of a task; no rollout changes it.

    An object's name is its class (`fridge`), with a number where there are several (`light 2`). The numbers of a class
    are drawn from `seed`, but for the objects in `numbered`, which are the first, in their order: those of a recorded
    program, by the program's own numbers. `hides`: an object can only be named once it has been seen.
    """

    def __init__(self, graph: Mapping[str, Any], seed: int, *, numbered: Sequence[int] = (), hides: bool):
        self.start, self.hides = engine.start(graph), hides
        by_class: dict[str, list[int]] = {}
        for node in self.start.get_nodes():
            by_class.setdefault(node.class_name, []).append(node.id)
        self._ids: dict[str, list[int]] = {}
        self.names: dict[int, str] = {}
        """Node to name."""
        for name, numbers in by_class.items():
            first = [number for number in dict.fromkeys(numbered) if number in numbers]
            rest = sorted(set(numbers) - set(first))
            random.Random(derive_seed(seed, "virtualhome", "numbers", name)).shuffle(rest)
            self._ids[name] = [*first, *rest]
            for place, number in enumerate(self._ids[name], start=1):
                self.names[number] = f"{name} {place}" if len(numbers) > 1 else name
        nodes = self.start.get_nodes()
        self.rooms = sorted((n.id for n in nodes if n.category == "Rooms"), key=self.names.__getitem__)

    def node(self, named: Mention) -> int | None:
        """The node that an action names; None where there is none of that name and number."""
        if named.is_node:
            return named.number if named.number in self.names else None
        numbers = self._ids.get(named.name, [])
        return numbers[named.number - 1] if 0 < named.number <= len(numbers) else None

    def written(self, numbers: Collection[int]) -> str:
        """Names in alphabetical order, or `nothing`."""
        return ", ".join(sorted(self.names[number] for number in numbers)) or "nothing"


class Moment(NamedTuple):
    """The state of a rollout: the graph's, the nodes seen, the verbs carried out, whether it is won, its turns."""

    graph: engine.State
    seen: frozenset[int]
    done: frozenset[str]
    won: bool
    turns: int
