"""Household games from a seed, in ALFWorld's own domain, for either engine.

A drawn room is written as a PDDL problem in one canonical form, and the hash of that text decides the split
it belongs to. A game can therefore never occur in two splits, whatever the seeds.

Every goal can be reached, and no action leads into a dead end: whatever can be picked up can be put back
where it was found.
"""

from __future__ import annotations

import hashlib
import json
import random
from collections import Counter
from dataclasses import dataclass

from turncredit.data.seeding import derive_seed
from turncredit.envs.household import domain
from turncredit.envs.household.goals import goal_pddl
from turncredit.envs.household.profile import PACKAGE_PROFILE, TASK_PREFIX
from turncredit.envs.household.settings import Settings
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
_ATTEMPTS = 2_000
"""Draws for one game before giving up; a draw falls into the wanted split one time in four."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A drawn room and goal. Receptacles are (type, id), objects (type, id, id of its receptacle)."""

    family: str
    object_type: str
    target_type: str
    """The receptacle's type, or the lamp's for `look`."""
    receptacles: tuple[tuple[str, str], ...]
    objects: tuple[tuple[str, str, str], ...]


def generate(split: str, index: int, seed: int, settings: Settings, seen: set[str]) -> tuple[str, str]:
    """The game number `index` of a split: (content hash, game as a JSON string).

    Families take turns. Games whose hash is in `seen` are left out; the new one is added to it. Raises
    UserError for an unknown split, and where the settings allow too few different games.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated household games{nearest(split, SPLITS)}; choose "
            f"one of {', '.join(SPLITS)}"
        )
    family = settings.families[index % len(settings.families)]
    rng = random.Random(derive_seed(seed, "household", split, index))
    for _ in range(_ATTEMPTS):
        draft = draw(rng, family, settings)
        problem = to_pddl(draft)
        content = hashlib.sha256(problem.encode()).hexdigest()
        if int(content[:8], 16) % len(SPLITS) != SPLITS.index(split) or content in seen:
            continue
        seen.add(content)
        sentence = rng.choice(domain.SENTENCES[family]).format(o=draft.object_type.lower(), r=draft.target_type.lower())
        game = {"profile": PACKAGE_PROFILE, "task": TASK_PREFIX + sentence, "pddl_problem": problem}
        return content, json.dumps(game)
    raise UserError(
        f"found no new household game of the family '{family}' for the split '{split}' in {_ATTEMPTS} draws; "
        "allow more rooms, receptacles or distractors, or ask for fewer games"
    )


def draw(rng: random.Random, family: str, settings: Settings) -> Draft:
    """Draw a room, a goal and the positions of objects."""
    rooms = [room for room in settings.rooms if room in domain.FAMILY_ROOMS[family]]
    room = rng.choice(rooms)
    object_type, target_type, needed = _draw_goal(rng, family, room)
    receptacles = _draw_receptacles(rng, room, needed, rng.randint(*settings.receptacles))
    goal_at = "" if family == "look" else target_type
    counts: Counter[str] = Counter()
    objects: list[tuple[str, str, str]] = []

    def place(kind: str, spots: list[str]) -> None:
        counts[kind] += 1
        objects.append((kind, f"{kind}_bar_{counts[kind]:02d}", rng.choice(spots)))

    for _ in range(2 if family == "pick2" else 1):
        place(object_type, [r for t, r in receptacles if t != goal_at and object_type in domain.CONTAINS[t]])
    if family == "look":
        place(target_type, [r for t, r in receptacles if t in domain.LAMP_STANDS])
    others = [kind for kind in domain.ROOM_OBJECTS[room] if kind != object_type]
    for _ in range(rng.randint(*settings.distractors)):
        kind = rng.choice(others)
        spots = [r for t, r in receptacles if kind in domain.CONTAINS[t]]
        if spots:
            place(kind, spots)
    return Draft(family, object_type, target_type, tuple(receptacles), tuple(sorted(objects)))


def _draw_goal(rng: random.Random, family: str, room: str) -> tuple[str, str, list[str]]:
    """Object type, target type (or lamp) and the receptacle types that the room must have for it."""
    kinds = domain.ROOM_RECEPTACLES[room]
    objects = [
        kind
        for kind in domain.ROOM_OBJECTS[room]
        if family not in domain.FAMILY_AFFORDANCE or kind in domain.AFFORDANCES[domain.FAMILY_AFFORDANCE[family]]
    ]
    appliance = domain.FAMILY_APPLIANCE.get(family)
    while True:
        object_type = rng.choice(objects)
        holders = [kind for kind in kinds if object_type in domain.CONTAINS[kind]]
        if family == "look" and holders:
            stand = rng.choice([kind for kind in domain.LAMP_STANDS if kind in kinds])
            return object_type, rng.choice(domain.LAMPS), [rng.choice(holders), stand]
        targets = [kind for kind in holders if kind != appliance]
        if not targets:
            continue
        target = rng.choice(targets)
        sources = [kind for kind in holders if kind != target]
        if sources:
            return object_type, target, [target, rng.choice(sources), *([appliance] if appliance else [])]


def _draw_receptacles(rng: random.Random, room: str, needed: list[str], count: int) -> list[tuple[str, str]]:
    """`count` receptacles, the needed types among them, as (type, id) sorted by type."""
    counts = Counter(set(needed))
    pool = [kind for kind, most in domain.ROOM_RECEPTACLES[room].items() for _ in range(most - counts[kind])]
    rng.shuffle(pool)
    counts.update(pool[: count - counts.total()])
    return [(kind, _receptacle_id(kind, n)) for kind in sorted(counts) for n in range(1, counts[kind] + 1)]


def _receptacle_id(kind: str, number: int) -> str:
    """An id from which the reference derives the name; basins are parts of a sink or bathtub."""
    if kind.endswith("Basin"):
        return f"{kind.removesuffix('Basin')}_bar_{number:02d}_bar_{kind}"
    return f"{kind}_bar_{number:02d}"


def to_pddl(draft: Draft) -> str:
    """The canonical problem text of a draft; its hash identifies the game."""
    locations = {r: f"loc_bar_{n}" for n, (_, r) in enumerate(draft.receptacles, 1)}
    receptacle_types = {kind for kind, _ in draft.receptacles}
    object_types = {kind for kind, _, _ in draft.objects}
    facts = ["atLocation agent1 loc_bar_0"]
    for kind, r in draft.receptacles:
        facts += [f"receptacleType {r} {kind}Type", f"receptacleAtLocation {r} {locations[r]}"]
        if kind in domain.OPENABLE:
            facts.append(f"openable {r}")
    for kind, o, r in draft.objects:
        facts += [f"objectType {o} {kind}Type", f"inReceptacle {o} {r}", f"objectAtLocation {o} {locations[r]}"]
        if kind not in domain.LAMPS:
            facts.append(f"pickupable {o}")
        facts += [f"{predicate} {o}" for predicate, kinds in domain.AFFORDANCES.items() if kind in kinds]
    for kind in sorted(receptacle_types):
        held = sorted(domain.CONTAINS[kind] & object_types)
        facts += [f"canContain {kind}Type {object_type}Type" for object_type in held]

    # the domain names these types, so a problem must declare them
    receptacle_types |= {"SinkBasin", "Microwave", "Fridge"}
    object_types |= {"Knife", "ButterKnife"}
    things = [
        ("agent", ["agent1"]),
        ("location", ["loc_bar_0", *locations.values()]),
        ("receptacle", [r for _, r in draft.receptacles]),
        ("object", [o for _, o, _ in draft.objects]),
        ("rtype", [f"{kind}Type" for kind in sorted(receptacle_types)]),
        ("otype", [f"{kind}Type" for kind in sorted(object_types)]),
    ]
    declared = "\n".join(f"{thing} - {sort}" for sort, ids in things for thing in ids)
    stated = "\n".join(f"({fact})" for fact in facts)
    goal = goal_pddl(draft.family, f"{draft.object_type}Type", f"{draft.target_type}Type")
    return (
        f"(define (problem household)\n(:domain alfred)\n(:objects\n{declared}\n)\n"
        f"(:init\n{stated}\n)\n(:goal {goal}\n)\n)\n"
    )
