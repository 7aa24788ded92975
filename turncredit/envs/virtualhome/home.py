"""One rollout in a household: names, actions, what the agent sees, progress."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any

from turncredit.envs.protocol import Step
from turncredit.envs.virtualhome import engine
from turncredit.envs.virtualhome.actions import parse, write
from turncredit.envs.virtualhome.goals import Goal
from turncredit.envs.virtualhome.planner import planner_of
from turncredit.envs.virtualhome.scene import Household, Moment
from turncredit.envs.virtualhome.settings import Settings

REFUSED = "You cannot do that: "
_SCENERY = frozenset({"Walls", "Ceiling", "Floor", "Characters", "Rooms"})
"""Categories of nodes that a room's list leaves out; they can be named."""
_SHOWN = {"CLOSED": "closed", "OPEN": "open", "ON": "on", "OFF": "off", "DIRTY": "dirty", "PLUGGED_OUT": "unplugged"}
_NODE = re.compile(r"<([^<>]+)> \((\d+)\)")
_SEATED = ("SITTING", "LYING")
_NEEDS = {
    "GRAB": "GRABBABLE",
    "OPEN": "CAN_OPEN",
    "CLOSE": "CAN_OPEN",
    "SWITCHON": "HAS_SWITCH",
    "SWITCHOFF": "HAS_SWITCH",
    "PLUGIN": "HAS_PLUG",
    "PLUGOUT": "HAS_PLUG",
    "SIT": "SITTABLE",
    "LIE": "LIEABLE",
}
"""The property without which the package refuses an action (it knows a few more that it allows)."""


class VirtualHome:
    """One rollout. `step` takes plain text (`grab milk`) and VirtualHome's own form (`[GRAB] <milk> (1)`)."""

    def __init__(self, household: Household, goal: Goal, settings: Settings, program: Sequence[str] = ()):
        self.household, self.task, self.program, self._settings = household, goal, tuple(program), settings
        self.goal = goal.text
        self._moment = self._first()

    def _first(self) -> Moment:
        home = self.household
        room = engine.package().room_of(home.start, engine.character(home.start))
        return Moment(home.start, frozenset(home.rooms) | self._visible(home.start, room.id), frozenset(), False, 0)

    def reset(self) -> str:
        """Start again: the room, what is in it, and the other rooms."""
        self._moment = self._first()
        home, graph = self.household, self._moment.graph
        room = engine.package().room_of(graph, engine.character(graph)).id
        return (
            f"You are in {home.names[room]}. You see {home.written(self._visible(graph, room))}. "
            f"Rooms: {home.written(home.rooms)}."
        )

    def step(self, action: str) -> Step:
        """Carry out one action. One that is not understood or not possible changes nothing, and `valid` is false."""
        if self._ended:
            raise RuntimeError("the rollout has ended; call reset or restore")
        before = self._moment
        turns = before.turns + 1
        verb, ids, reason = self._read(action)
        after = None
        if not reason:
            after, reason = engine.execute(before.graph, verb, ids)
        if after is None:
            self._moment = before._replace(turns=turns)
            return Step(f"{REFUSED}{self._named(reason)}.", 0.0, self._ended, False, False)
        text, shown = self._report(after, verb, ids)
        done = before.done | {verb}
        won = self.task.progress(after, done) == 1.0
        self._moment = Moment(after, before.seen | shown, done, won, turns)
        return Step(text, self._settings.success_reward * won, self._ended, won, True)

    def close(self) -> None:
        """Nothing to release."""

    def progress(self) -> float:
        """The fraction of the goal's conditions that hold."""
        return self.task.progress(self._moment.graph, self._moment.done)

    def distance(self) -> int:
        """The optimal number of further actions, however many turns are left; -1 when the goal is out of reach.

        Only in generated households.
        """
        return planner_of(self.household, self.task).distance(self._moment)

    def oracle(self) -> list[str]:
        """An optimal plan from here, found with full knowledge of the household. Empty when won or out of reach."""
        return planner_of(self.household, self.task).plan(self._moment)

    def admissible(self) -> tuple[str, ...]:
        """What can be done with what is near or in hand, and where to walk; other verbs may be allowed as well."""
        if self._ended:
            return ()
        actions = (self._checked(verb, ids) for verb, ids in self._candidates())
        return tuple(action for action in actions if action)

    def snapshot(self) -> Moment:
        """The state. No action changes it, so it can be handed out."""
        return self._moment

    def restore(self, state: Moment) -> None:
        """Continue from a snapshot of this task."""
        self._moment = state

    @property
    def _ended(self) -> bool:
        return self._moment.won or self._moment.turns >= self._settings.horizon

    # -- actions --

    def _read(self, action: str) -> tuple[str, list[int], str]:
        """Verb and nodes of an action, or the reason why it is not understood."""
        parsed = parse(action)
        if parsed is None:
            return "", [], "the action is not understood"
        verb, mentions = parsed
        ids = []
        for named in mentions:
            number = self.household.node(named)
            if number is None or (self.household.hides and number not in self._moment.seen):
                return verb, [], f"you have seen no {named.name}{f' {named.number}' if named.number > 1 else ''}"
            ids.append(number)
        return verb, ids, ""

    def _named(self, reason: str) -> str:
        """The package's reason with our names."""
        text = _NODE.sub(lambda match: self._name_of(int(match[2]), match[1]), reason)
        return text.replace("you is ", "you are ").replace("you does ", "you do ")

    def _name_of(self, number: int, name: str) -> str:
        return "you" if name == "character" else self.household.names.get(number, name)

    # -- what is seen --

    def _report(self, graph: engine.State, verb: str, ids: list[int]) -> tuple[str, frozenset[int]]:
        """The text after an action, and the nodes that it shows."""
        names = self.household.names
        parts = [f"You {write(verb, *(names[number] for number in ids))}."]
        shown: frozenset[int] = frozenset()
        if verb in ("WALK", "RUN", "FIND"):
            if ids[0] in self.household.rooms:
                shown = self._visible(graph, ids[0])
                parts.append(f"You see {self.household.written(shown)}.")
            else:
                text, shown = self._described(graph, ids[0])
                parts += text
        elif verb == "OPEN":
            shown = self._related(graph, ids[0], "INSIDE")
            parts.append(f"In it: {self.household.written(shown)}.")
        if held := engine.held(graph):
            parts.append(f"You hold {self.household.written(held)}.")
        return " ".join(parts), shown

    def _described(self, graph: engine.State, number: int) -> tuple[list[str], frozenset[int]]:
        """An object that the agent has walked to: its states, what is on it and, unless it is closed, in it."""
        node = graph.get_node(number)
        names = {state.name for state in node.states}
        parts, shown = [], set()
        if states := [text for name, text in _SHOWN.items() if name in names]:
            parts.append(f"It is {' and '.join(states)}.")
        if on := self._related(graph, number, "ON"):
            parts.append(f"On it: {self.household.written(on)}.")
            shown |= on
        inside = self._related(graph, number, "INSIDE") if "CLOSED" not in names else frozenset()
        if inside or "OPEN" in names:
            parts.append(f"In it: {self.household.written(inside)}.")
            shown |= inside
        return parts, frozenset(shown)

    def _related(self, graph: engine.State, number: int, relation: str) -> frozenset[int]:
        """The nodes, but for the character, with an edge to a node."""
        kind, me = engine.package().Relation[relation], engine.character(graph).id
        return frozenset(n for n in self.household.names if n != me and number in graph.get_node_ids_from(n, kind))

    def _visible(self, graph: engine.State, room: int) -> frozenset[int]:
        """The objects in a room that are neither held nor in something closed."""
        api = engine.package()
        held, closed, rooms = engine.held(graph), api.NodeState.CLOSED, set(self.household.rooms)
        out = set()
        for number in self.household.names:
            node = graph.get_node(number)
            if node.category in _SCENERY or number in held:
                continue
            around = graph.get_node_ids_from(number, api.Relation.INSIDE)
            here = room in around or (not around & rooms and _room(graph, node) == room)
            if here and not any(closed in graph.get_node(n).states for n in around):
                out.add(number)
        return frozenset(out)

    # -- what is admissible --

    def _checked(self, verb: str, ids: tuple[int, ...]) -> str | None:
        if verb != "WALK" and engine.execute(self._moment.graph, verb, ids)[0] is None:
            return None  # whoever stands can walk wherever something is
        return write(verb, *(self.household.names[number] for number in ids))

    def _candidates(self) -> list[tuple[str, tuple[int, ...]]]:
        """Actions that may be admissible, in an order that depends on the state alone."""
        api, graph = engine.package(), self._moment.graph
        me = engine.character(graph)
        if any(state.name in _SEATED for state in me.states):
            return [("STANDUP", ()), *(("SWITCHON", (n,)) for n in self._near(graph))]
        held = engine.held(graph)
        here = self._visible(graph, api.room_of(graph, me).id)
        nodes = (self._moment.seen if self.household.hides else here) - {me.id, *held, *self.household.rooms}
        out: list[tuple[str, tuple[int, ...]]] = [("WALK", (n,)) for n in [*self.household.rooms, *self._sorted(nodes)]]
        near = [n for n in self._near(graph) if n in nodes]
        out += [(verb, (n,)) for verb, needed in _NEEDS.items() for n in near if self._can(n, needed)]
        out += [("WASH", (n,)) for n in self._sorted({*near, *held}) if self._can(n, "GRABBABLE")]
        for thing in self._sorted(held):
            out += [("PUTBACK", (thing, n)) for n in near if self._can(n, "SURFACES")]
            out += [("PUTIN", (thing, n)) for n in near if self._can(n, "CONTAINERS")]
            out += [(verb, (thing,)) for verb in ("DROP", "DRINK", "READ")]
        return out

    def _near(self, graph: engine.State) -> list[int]:
        """What the agent is close to: by an edge, or on something to which it is."""
        api = engine.package()
        close = set(graph.get_node_ids_from(engine.character(graph).id, api.Relation.CLOSE))
        on = {n for n in self.household.names if graph.get_node_ids_from(n, api.Relation.ON) & close}
        return self._sorted((close | on) - {engine.character(graph).id})

    def _sorted(self, numbers: Collection[int]) -> list[int]:
        return sorted(numbers, key=self.household.names.__getitem__)

    def _can(self, number: int, name: str) -> bool:
        return any(of.name == name for of in self.household.start.get_node(number).properties)


def _room(graph: engine.State, node: Any) -> int | None:
    room = engine.package().room_of(graph, node)
    return None if room is None else room.id
