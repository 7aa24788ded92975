"""Small households of our own, and tasks in them, from a seed.

The hash of a task decides the split that it belongs to, so that no task is in two splits, whatever their seeds. The
order in which a household was drawn is no part of a task, so the hash does not see it.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from turncredit.data.seeding import derive_seed
from turncredit.envs.virtualhome.goals import Condition, Goal, to_text
from turncredit.envs.virtualhome.settings import Settings
from turncredit.envs.virtualhome.things import (
    DEVICES,
    FURNITURE,
    MACHINES,
    SEATS,
    THINGS,
    preposition,
    relation,
)
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
_ATTEMPTS = 400
"""Draws for one task before giving up; a draw falls into the wanted split one time in four."""
_TWICE = 0.35
"""How often there are two of a small object."""
_UNPLUGGED = 0.5
_DIRTY = 0.4


class Draft(NamedTuple):
    """A household as it is drawn.

    nodes (class, states); edges between their numbers; `at`: things to furniture; `by_class`: class to its nodes;
    `room_of`: furniture to the node of its room
    """

    nodes: list[tuple[str, list[str]]]
    edges: list[tuple[int, str, int]]
    at: dict[int, str]
    by_class: dict[str, tuple[int, ...]]
    room_of: dict[str, int]

    def add(self, name: str, states: Sequence[str] = ()) -> int:
        """A new node's number."""
        number = len(self.nodes)
        self.nodes.append((name, list(states)))
        self.by_class[name] = (*self.by_class.get(name, ()), number)
        return number

    def all(self, name: str) -> tuple[int, ...]:
        """The nodes of a class."""
        return self.by_class[name]

    def has(self, name: str) -> bool:
        """Whether there is one of a class."""
        return name in self.by_class

    def things(self) -> list[str]:
        """The classes of small objects, each once."""
        return sorted({self.nodes[number][0] for number in self.at})


def generate(split: str, index: int, seed: int, settings: Settings, seen: set[str]) -> tuple[str, str, Goal, str]:
    """The task number `index` of a split: (content hash, family, goal, the row's `game`).

    Tasks whose hash is in `seen` are left out; the new one is added to it. Raises UserError for an unknown split, and
    where the settings allow too few tasks.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated households{nearest(split, SPLITS)}; choose "
            f"one of {', '.join(SPLITS)}"
        )
    family = settings.families[index % len(settings.families)]
    rng = random.Random(derive_seed(seed, "virtualhome", split, index))
    for _ in range(_ATTEMPTS):
        draft = _household(rng, settings)
        goal = _GOALS[family](rng, draft)
        if goal is None:
            continue
        content = hashlib.sha256(canonical(draft.nodes, draft.edges, goal.text).encode()).hexdigest()
        if int(content[:8], 16) % len(SPLITS) == SPLITS.index(split) and content not in seen:
            seen.add(content)
            return content, family, goal, to_text({"nodes": draft.nodes, "edges": draft.edges}, goal)
    raise UserError(
        f"found no new task of the family '{family}' for the split '{split}' in {_ATTEMPTS} draws; allow more of "
        "env.virtualhome.rooms or things, or leave the family out"
    )


def canonical(nodes: Sequence[tuple[str, Sequence[str]]], edges: Sequence[tuple[int, str, int]], goal: str) -> str:
    """A drawn household and its goal's sentence as a text that is the same in whatever order things were drawn.

    Every node is its class, its states, and where it is, by class: furniture and rooms are there once each. The
    sentence names the goal's objects by class, too, so it says all of the goal.
    """
    where: dict[int, list[tuple[str, str]]] = {}
    for at, kind, to in edges:
        where.setdefault(at, []).append((kind, nodes[to][0]))
    described = [(name, sorted(states), sorted(where.get(n, ()))) for n, (name, states) in enumerate(nodes)]
    return json.dumps([sorted(described), goal])


def graph_of(nodes: Sequence[tuple[str, Sequence[str]]], edges: Sequence[tuple[int, str, int]]) -> dict[str, Any]:
    """A drawn household in the package's form."""
    return {
        "nodes": [_node(number, name, states) for number, (name, states) in enumerate(nodes)],
        "edges": [{"from_id": a, "relation_type": kind, "to_id": b} for a, kind, b in edges],
    }


def read(text: str) -> Mapping[str, Any]:
    """The household and goal of a row's `game`. Raises UserError."""
    try:
        data = json.loads(text)
        return {"graph": graph_of(data["nodes"], data["edges"]), "goal": data["goal"]}
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"a household in the tasks table is damaged ({type(error).__name__}: {error}); delete the table and run "
            "again"
        ) from error


def _node(number: int, name: str, states: Sequence[str]) -> dict[str, Any]:
    if name == "character":
        category, properties = "Characters", ()
    elif name in FURNITURE:
        category, properties = FURNITURE[name].category, FURNITURE[name].properties
    elif name in THINGS:
        category, properties = "Props", ("GRABBABLE", "MOVABLE", *THINGS[name].properties)
    else:
        category, properties = "Rooms", ()
    return {
        "id": number,
        "class_name": name,
        "category": category,
        "properties": list(properties),
        "states": list(states),
    }


def _household(rng: random.Random, settings: Settings) -> Draft:
    draft = Draft([], [], {}, {}, {})
    rooms: dict[str, int] = {name: draft.add(name) for name in sorted(settings.rooms)}
    me = draft.add("character")
    draft.edges.append((me, "INSIDE", rooms[rng.choice(sorted(rooms))]))
    for name, piece in FURNITURE.items():
        possible = [room for room in piece.rooms if room in rooms]
        if not possible or not (piece.always or rng.random() < 0.5):
            continue
        room = draft.room_of[name] = rooms[rng.choice(possible)]
        plugged = "PLUGGED_OUT" if rng.random() < _UNPLUGGED else "PLUGGED_IN"
        states = [plugged if state == "PLUGGED_IN" else state for state in piece.states]
        draft.edges.append((draft.add(name, states), "INSIDE", room))
    known = [name for name, thing in THINGS.items() if any(draft.has(place) for place in thing.places)]
    names = rng.sample(known, min(rng.randint(*settings.things), len(known)))
    for name in names:
        places = [place for place in THINGS[name].places if draft.has(place)]
        for _ in range(2 if rng.random() < _TWICE else 1):
            _put(draft, rng, name, rng.choice(places))
    return draft


def _put(draft: Draft, rng: random.Random, name: str, place: str) -> None:
    dirty = THINGS[name].washable and rng.random() < _DIRTY
    number = draft.add(name, ["DIRTY"] if dirty else ["CLEAN"])
    at = draft.all(place)[0]
    draft.edges.extend(((number, relation(place), at), (number, "INSIDE", draft.room_of[place])))
    draft.at[number] = place


# ---------------------------------------------------------------- goals; None: not in this household


def _free_places(draft: Draft, *names: str) -> list[str]:
    """The furniture on or in which all of these may be put, and none of them is."""
    places = [place for place in THINGS[names[0]].places if draft.has(place)]
    taken = {draft.at[number] for name in names for number in draft.all(name)}
    return [p for p in places if p not in taken and all(p in THINGS[name].places for name in names)]


def _placement(place: str, thing: int, at: int) -> Condition:
    return Condition(relation(place), thing, at)


def _device(rng: random.Random, draft: Draft) -> Goal | None:
    devices = _some_devices(rng, draft, 3)
    if not devices:
        return None
    slots = tuple(draft.all(name) for name in devices)
    conditions = tuple(Condition("ON", slot) for slot in range(len(devices)))
    return Goal(f"switch on {' and '.join(devices)}", slots, conditions)


def _some_devices(rng: random.Random, draft: Draft, most: int) -> list[str]:
    """That many devices of a household, or all where it has fewer."""
    devices = [name for name in DEVICES if draft.has(name)]
    return rng.sample(devices, min(most, len(devices)))


def _place(rng: random.Random, draft: Draft) -> Goal | None:
    options = [(name, place) for name in draft.things() for place in _free_places(draft, name) if place not in MACHINES]
    if not options:
        return None
    name, place = rng.choice(options)
    text = f"put {name} {preposition(place)} {place}"
    return Goal(text, (draft.all(name), draft.all(place)), (_placement(place, 0, 1),))


def _wash(rng: random.Random, draft: Draft) -> Goal | None:
    options = [
        (name, place)
        for name in draft.things()
        if all("DIRTY" in draft.nodes[number][1] for number in draft.all(name))
        for place in _free_places(draft, name)
        if place not in MACHINES
    ]
    if not options:
        return None
    name, place = rng.choice(options)
    text = f"wash {name} and put it {preposition(place)} {place}"
    return Goal(text, (draft.all(name), draft.all(place)), (Condition("CLEAN", 0), _placement(place, 0, 1)))


def _two(rng: random.Random, draft: Draft) -> Goal | None:
    things = draft.things()
    options = [
        (one, other, place)
        for one in things
        for other in things
        if one != other
        for place in _free_places(draft, one, other)
        if place not in MACHINES
    ]
    if not options:
        return None
    one, other, place = rng.choice(options)
    text = f"put {one} and {other} {preposition(place)} {place}"
    slots = (draft.all(one), draft.all(other), draft.all(place))
    return Goal(text, slots, (_placement(place, 0, 2), _placement(place, 1, 2)))


def _watch(rng: random.Random, draft: Draft) -> Goal | None:
    # The package lets nobody sit where too many things lie.
    seats = [name for name in SEATS if draft.has(name) and name not in draft.at.values()]
    devices = _some_devices(rng, draft, 2)
    if not seats or not devices:
        return None
    seat, me, last = rng.choice(seats), len(devices), len(devices) + 1
    slots = (*(draft.all(name) for name in devices), draft.all("character"), draft.all(seat))
    on = tuple(Condition("ON", slot) for slot in range(len(devices)))
    conditions = (*on, Condition("SITTING", me), Condition("ON", me, last))
    return Goal(f"switch on {' and '.join(devices)} and sit on {seat}", slots, conditions)


def _machine(rng: random.Random, draft: Draft) -> Goal | None:
    options = [(name, place) for name in draft.things() for place in _free_places(draft, name) if place in MACHINES]
    if not options:
        return None
    name, place = rng.choice(options)
    slots = (draft.all(name), draft.all(place))
    return Goal(f"put {name} in {place} and switch on {place}", slots, (_placement(place, 0, 1), Condition("ON", 1)))


_GOALS = {"device": _device, "place": _place, "wash": _wash, "two": _two, "watch": _watch, "machine": _machine}
