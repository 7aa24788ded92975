"""Goals: conditions on the states of objects and on the edges between them, and how many of them hold."""

from __future__ import annotations

import itertools
import json
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from turncredit.envs.virtualhome import engine
from turncredit.errors import UserError


class Condition(NamedTuple):
    """A state of an object (`CLEAN`), or an edge from it to another one (`INSIDE`); objects are slots of the goal."""

    name: str
    slot: int
    other: int | None = None


class Goal(NamedTuple):
    """What has to hold at the same time.

    text         the task's sentence
    slots        for each object of the goal, the nodes that may be it
    conditions   on the slots
    actions      further conditions: verbs of which one (`LOOKAT|WATCH`) has been carried out
    """

    text: str
    slots: tuple[tuple[int, ...], ...]
    conditions: tuple[Condition, ...]
    actions: tuple[str, ...] = ()

    def choices(self) -> Iterator[tuple[int, ...]]:
        """Every choice of a node for each slot."""
        return itertools.product(*self.slots)

    def progress(self, state: engine.State, done: Collection[str]) -> float:
        """The largest fraction of conditions that any choice of objects satisfies. `done`: the verbs carried out."""
        acted = sum(any(verb in done for verb in verbs.split("|")) for verbs in self.actions)
        best = max(sum(holds(state, condition, chosen) for condition in self.conditions) for chosen in self.choices())
        return (best + acted) / (len(self.conditions) + len(self.actions))


def holds(state: engine.State, condition: Condition, chosen: tuple[int, ...]) -> bool:
    """Whether a condition holds for the chosen nodes."""
    api = engine.package()
    node = state.get_node(chosen[condition.slot])
    if node is None:
        return False
    if condition.other is None:
        return api.NodeState[condition.name] in node.states
    other = state.get_node(chosen[condition.other])
    return other is not None and state.has_edge(node, api.Relation[condition.name], other)


def to_json(goal: Goal) -> dict[str, Any]:
    """A goal for the tasks table."""
    return goal._asdict()


def from_json(data: Any) -> Goal:
    """The goal of a row. Raises UserError."""
    try:
        return Goal(
            str(data["text"]),
            tuple(tuple(int(number) for number in slot) for slot in data["slots"]),
            tuple(Condition(*condition) for condition in data["conditions"]),
            tuple(data["actions"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise UserError(
            f"a VirtualHome goal in the tasks table is damaged ({type(error).__name__}: {error}); delete the table and "
            "run again"
        ) from error


def to_text(household: dict[str, Any], goal: Goal) -> str:
    """A household and its goal as JSON, for the tasks table."""
    return json.dumps({**household, "goal": to_json(goal)}, separators=(",", ":"))
