"""One ALFWorld game: its static data, and a pure step from world and command to world and text.

`Game.apply` prints, letter for letter, what the reference engine (alfworld 0.4.2 on TextWorld 1.7.0) prints;
`turncredit env household conformance` compares the two. The reference's own oddities are kept and marked as such.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from turncredit.envs.household.goals import Goal, match_goal
from turncredit.envs.household.parse import Problem, parse
from turncredit.envs.household.profile import BANNER, COOL_TOOLS, HEAT_TOOLS, KNIVES, Profile, UnsupportedGame
from turncredit.envs.household.world import World

NOTHING = "Nothing happens."


def as_typed(action: str) -> str:
    """An action in lower case with single spaces: verl-agent's projection lower-cases, users write `Go to drawer 1`.

    The reference engine itself takes nothing else (`Game.apply`).
    """
    return " ".join(action.lower().split())


_CACHE_LIMIT = 2_000
"""Local situations and texts kept per game, about 1.6 KB each. A hundred random rollouts meet about 150."""

Handler = Callable[[World, int, int], tuple[World, str]]
Action = tuple[Handler, int, int]


class Local(NamedTuple):
    """The commands that are possible in one local situation: those other than `go to`, and the sorted list of all."""

    actions: dict[str, Action]
    admissible: tuple[str, ...]


@dataclass(slots=True)
class Things:
    """Objects, receptacles and locations of a game, numbered, with what is fixed about them."""

    objects: dict[str, int]
    receptacles: dict[str, int]
    locations: dict[str, int]
    receptacle_location: list[int]
    here: tuple[tuple[int, ...], ...]
    """Receptacles at each location."""
    object_types: dict[str, int]
    """Type to the mask of its objects."""
    receptacle_types: dict[str, list[int]]
    can_hold: list[int]
    """Per receptacle, the mask of objects that may be put into it."""


def bits(mask: int) -> Iterator[int]:
    """The set bits of a mask, lowest first."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def listing(items: list[str]) -> str:
    """`a, b, and c`; with a comma before `and` even for two, as the reference prints it."""
    if not items:
        return "nothing"
    if len(items) == 1:
        return items[0]
    return ", ".join(items[:-1]) + ", and " + items[-1]


def number_things(problem: Problem) -> Things:
    """Number everything by sorted id. Raises UnsupportedGame where the texts would be ambiguous."""
    at = sorted(set(problem.of("receptacleatlocation")))
    receptacles = {r: n for n, (r, _) in enumerate(at)}
    if len(receptacles) != len(at):
        raise UnsupportedGame("the game has a receptacle at two locations")
    typed = set(problem.of("objecttype"))
    types = dict(typed)
    if len(types) != len(typed):
        raise UnsupportedGame("the game has an object of two types")
    ids = set(types)
    for predicate in ("inreceptacle", "objectatlocation", "pickupable", "toggleable", "sliceable"):
        ids.update(o for o, _ in problem.of(predicate))
    objects = {o: n for n, o in enumerate(sorted(ids))}
    starts = problem.of("atlocation")
    if len(starts) != 1:
        raise UnsupportedGame("the game's agent must start at exactly one location")
    locations: dict[str, int] = {}
    for place in [starts[0][1], *(where for _, where in at), *(p for _, p in problem.of("objectatlocation"))]:
        locations.setdefault(place, len(locations))
    receptacle_location = [locations[place] for _, place in at]
    here: list[list[int]] = [[] for _ in locations]
    for r, place in enumerate(receptacle_location):
        here[place].append(r)

    object_types: dict[str, int] = {}
    for o, kind in types.items():
        object_types[kind] = object_types.get(kind, 0) | 1 << objects[o]
    receptacle_types: dict[str, list[int]] = {}
    for r, kind in problem.of("receptacletype"):
        if r in receptacles:
            receptacle_types.setdefault(kind, []).append(receptacles[r])
    can_hold = [0] * len(receptacles)
    for kind, held in problem.of("cancontain"):
        for r in receptacle_types.get(kind, ()):
            can_hold[r] |= object_types.get(held, 0)
    return Things(
        objects=objects,
        receptacles=receptacles,
        locations=locations,
        receptacle_location=receptacle_location,
        here=tuple(map(tuple, here)),
        object_types=object_types,
        receptacle_types=receptacle_types,
        can_hold=can_hold,
    )


class Game:
    """A game's static data and caches; shared by all rollouts of a task."""

    def __init__(self, profile: Profile, task: str, problem_text: str) -> None:
        """Parse a problem. `task` is the grammar's sentence. Raises UnsupportedGame."""
        problem = parse(problem_text)
        things = number_things(problem)
        self.profile = profile
        self.task = task
        self.things = things
        self.object_names = [problem.names[o] for o in things.objects]
        self.receptacle_names = [problem.names[r] for r in things.receptacles]
        self._a_object = [f"a {name}" for name in self.object_names]
        self.location_names = [problem.names[place] for place in things.locations]

        self.openable = self._receptacle_mask(problem, "openable")
        self.portable = self._object_mask(problem, "pickupable")
        self.cleanable = self._object_mask(problem, "cleanable")
        self.heatable = self._object_mask(problem, "heatable")
        self.coolable = self._object_mask(problem, "coolable")
        self.toggleable = self._object_mask(problem, "toggleable")
        self.sliceable = self._object_mask(problem, "sliceable")
        self._vessels = self._object_mask(problem, "isreceptacleobject")
        self._inside: dict[int, list[str]] = {}
        for inner, outer in sorted(set(problem.of("inreceptacleobject"))):
            self._inside.setdefault(things.objects[outer], []).append("a " + problem.names[inner])
        self.clean_tools = self._of_types(profile.clean_tools)
        self.heat_tools = self._of_types(HEAT_TOOLS)
        self.cool_tools = self._of_types(COOL_TOOLS)
        self.knives = 0
        for kind in KNIVES:
            self.knives |= things.object_types.get(kind, 0)

        self.goal = self._bind_goal(problem)
        self.start = self._first_world(problem)
        self._prepare_texts()
        self._locals: dict[tuple, Local] = {}
        self._contents_texts: dict[tuple[int, int, int], str] = {}

    # -- set-up --

    def _object_mask(self, problem: Problem, predicate: str) -> int:
        index = self.things.objects
        return sum(1 << index[o] for o in {o for o, _ in problem.of(predicate)} if o in index)

    def _receptacle_mask(self, problem: Problem, predicate: str) -> int:
        index = self.things.receptacles
        return sum(1 << index[r] for r in {r for r, _ in problem.of(predicate)} if r in index)

    def _of_types(self, kinds: Iterable[str]) -> frozenset[int]:
        return frozenset(r for kind in kinds for r in self.things.receptacle_types.get(kind, ()))

    def _bind_goal(self, problem: Problem) -> Goal:
        family, object_type, target_type = match_goal(problem.goal)
        able = {"clean": self.cleanable, "heat": self.heatable, "cool": self.coolable}.get(family, -1)
        lamps = 0
        targets: tuple[int, ...] = ()
        if family == "look":
            lamps = self.things.object_types.get(target_type, 0) & self.toggleable
        else:
            targets = tuple(self.things.receptacle_types.get(target_type, ()))
        objects = self.things.object_types.get(object_type, 0) & able
        return Goal(family, objects, targets, lamps, self.things.here)

    def _first_world(self, problem: Problem) -> World:
        things = self.things
        contents = [0] * len(things.receptacles)
        for o, r in problem.of("inreceptacle"):
            if r not in things.receptacles:
                raise UnsupportedGame("the game has an object in a receptacle that is nowhere")
            contents[things.receptacles[r]] |= 1 << things.objects[o]
        beside = [0] * len(things.locations)
        for o, place in problem.of("objectatlocation"):
            beside[things.locations[place]] |= 1 << things.objects[o]
        held = problem.of("holds")
        return World(
            location=0,
            held=things.objects[held[-1][1]] if held else -1,
            opened=self._receptacle_mask(problem, "opened"),
            contents=tuple(contents),
            beside=tuple(beside),
            taken=(0,) * len(contents),
            clean=self._object_mask(problem, "isclean"),
            hot=self._object_mask(problem, "ishot"),
            cool=self._object_mask(problem, "iscool"),
            toggled=self._object_mask(problem, "istoggled"),
            sliced=self._object_mask(problem, "issliced"),
        )

    def _prepare_texts(self) -> None:
        names, place_of = self.receptacle_names, self.things.receptacle_location
        self._goto = {f"go to {name}": r for r, name in enumerate(names)}
        goto_sorted = sorted(self._goto)
        self._goto_from = [
            tuple(c for c in goto_sorted if place_of[self._goto[c]] != place)
            for place in range(len(self.location_names))
        ]
        self._arrive = [
            self.profile.arrive.format(r=name, l=self.location_names[place_of[r]]) for r, name in enumerate(names)
        ]
        self._put_text = self.profile.put_text.format
        self._put_command = self.profile.put_command.format
        self._here_mask = [sum(1 << r for r in here) for here in self.things.here]
        self._facing = [
            f"You are facing the {listing([names[r] for r in here])}. Next to it, you see " if here else None
            for here in self.things.here
        ]
        facing = self._facing[self.start.location]
        self.room = (
            facing + "nothing."
            if facing
            else "You are in the middle of a room. Looking quickly around you, you see "
            + listing([f"a {name}" for name in names])
            + "."
        )
        self.intro = f"{BANNER}\n\n{self.room}\n\n{self.task}"

    # -- what can be done --

    def local(self, world: World) -> Local:
        """The commands of a world; the same object for the same local situation."""
        place, held = world.location, world.held
        contents = world.contents
        here = self.things.here[place]
        knife_at = world.beside[place] if held >= 0 and self.knives >> held & 1 else 0
        key = (
            place,
            held,
            world.opened & self._here_mask[place],
            contents[here[0]] if len(here) == 1 else tuple([contents[r] for r in here]),
            knife_at,
        )
        local = self._locals.get(key)
        if local is None:
            if len(self._locals) >= _CACHE_LIMIT:
                self._locals.clear()
            local = self._locals[key] = self._build_local(world, knife_at)
        return local

    def _build_local(self, world: World, knife_at: int) -> Local:
        held = world.held
        names, objects = self.receptacle_names, self.object_names
        actions: dict[str, Action] = {}
        for r in self.things.here[world.location]:
            name, inside = names[r], world.contents[r]
            actions[f"examine {name}"] = (self._examine_receptacle, r, 0)
            is_open = True
            if self.openable >> r & 1:
                is_open = bool(world.opened >> r & 1)
                if is_open:
                    actions[f"close {name}"] = (self._close, r, 0)
                else:
                    actions[f"open {name}"] = (self._open, r, 0)
            # switching, cleaning, heating, cooling and slicing need no open door; only take and put do
            for o in bits(inside & self.toggleable):
                actions[f"use {objects[o]}"] = (self._use, o, r)
            if held >= 0:
                self._add_held_actions(actions, held, r, is_open)
            elif is_open:
                for o in bits(inside & self.portable):
                    actions[f"take {objects[o]} from {name}"] = (self._take, o, r)
        if held >= 0:
            # Objects in sight cannot be examined: the domain writes "?l - location,", which the reference
            # reads as a type that nothing has.
            actions[f"examine {objects[held]}"] = (self._examine_object, held, 0)
            for o in bits(knife_at & self.sliceable):
                actions[f"slice {objects[o]} with {objects[held]}"] = (self._slice, o, held)
        actions["look"] = (self._look, 0, 0)
        actions["inventory"] = (self._inventory, 0, 0)
        if self.profile.help is not None:
            actions["help"] = (self._help, 0, 0)
        return Local(actions, tuple(sorted([*self._goto_from[world.location], *actions])))

    def _add_held_actions(self, actions: dict[str, Action], held: int, r: int, is_open: bool) -> None:
        name, thing = self.receptacle_names[r], self.object_names[held]
        if is_open and self.things.can_hold[r] >> held & 1:
            actions[self._put_command(o=thing, r=name)] = (self._put, held, r)
        if r in self.clean_tools and self.cleanable >> held & 1:
            actions[f"clean {thing} with {name}"] = (self._clean, held, r)
        if r in self.heat_tools and self.heatable >> held & 1:
            actions[f"heat {thing} with {name}"] = (self._heat, held, r)
        if r in self.cool_tools and self.coolable >> held & 1:
            actions[f"cool {thing} with {name}"] = (self._cool, held, r)

    def apply(self, world: World, command: str) -> tuple[World, str]:
        """The world after a command and the text printed; the same world and NOTHING for any other input.

        White space around a command does not count; everything else must match exactly.
        """
        command = command.strip()
        action = self.local(world).actions.get(command)
        if action is not None:
            handler, first, second = action
            return handler(world, first, second)
        r = self._goto.get(command)
        if r is None:
            return world, NOTHING
        place = self.things.receptacle_location[r]
        if place == world.location:  # also for another receptacle at the same location
            return world, NOTHING
        return World(place, *world[1:]), self._arrive[r] + self._contents_text(world, r)

    # -- the commands: (world, first, second) -> (world, text) --

    def _take(self, world: World, o: int, r: int) -> tuple[World, str]:
        place, _, opened, contents, beside, taken, *states = world
        bit = 1 << o
        contents = (*contents[:r], contents[r] & ~bit, *contents[r + 1 :])
        beside = (*beside[:place], beside[place] & ~bit, *beside[place + 1 :])
        taken = (*taken[:r], taken[r] | bit, *taken[r + 1 :])
        text = f"You pick up the {self.object_names[o]} from the {self.receptacle_names[r]}."
        return World(place, o, opened, contents, beside, taken, *states), text

    def _put(self, world: World, o: int, r: int) -> tuple[World, str]:
        place, _, opened, contents, beside, taken, *states = world
        bit = 1 << o
        contents = (*contents[:r], contents[r] | bit, *contents[r + 1 :])
        beside = (*beside[:place], beside[place] | bit, *beside[place + 1 :])
        taken = (*taken[:r], taken[r] & ~bit, *taken[r + 1 :])
        text = self._put_text(o=self.object_names[o], r=self.receptacle_names[r])
        return World(place, -1, opened, contents, beside, taken, *states), text

    def _open(self, world: World, r: int, _: int) -> tuple[World, str]:
        after = World(world.location, world.held, world.opened | 1 << r, *world[3:])
        return after, f"You open the {self.receptacle_names[r]}. {self._contents_text(after, r)}"

    def _close(self, world: World, r: int, _: int) -> tuple[World, str]:
        after = World(world.location, world.held, world.opened & ~(1 << r), *world[3:])
        return after, f"You close the {self.receptacle_names[r]}."

    def _clean(self, world: World, o: int, r: int) -> tuple[World, str]:
        after = world._replace(clean=world.clean | 1 << o)
        return after, f"You clean the {self.object_names[o]} using the {self.receptacle_names[r]}."

    def _heat(self, world: World, o: int, r: int) -> tuple[World, str]:
        after = world._replace(hot=world.hot | 1 << o, cool=world.cool & ~(1 << o))
        return after, f"You heat the {self.object_names[o]} using the {self.receptacle_names[r]}."

    def _cool(self, world: World, o: int, r: int) -> tuple[World, str]:
        after = world._replace(cool=world.cool | 1 << o, hot=world.hot & ~(1 << o))
        return after, f"You cool the {self.object_names[o]} using the {self.receptacle_names[r]}."

    def _use(self, world: World, o: int, _: int) -> tuple[World, str]:
        # a lamp never goes off: the domain only ever sets `isToggled`
        return world._replace(toggled=world.toggled | 1 << o), f"You turn on the {self.object_names[o]}."

    def _slice(self, world: World, o: int, knife: int) -> tuple[World, str]:
        text = f"You sliced the {self.object_names[o]} with the {self.object_names[knife]}."
        return world._replace(sliced=world.sliced | 1 << o), text

    def _examine_receptacle(self, world: World, r: int, _: int) -> tuple[World, str]:
        return world, self._contents_text(world, r)

    def _examine_object(self, world: World, o: int, _: int) -> tuple[World, str]:
        name = self.object_names[o]
        if self._vessels >> o & 1:
            return world, f"This is a normal {name}. In it, you see {listing(self._inside.get(o, []))}."
        clean, hot, cool, toggled, sliced = (bool(mask >> o & 1) for mask in world[6:])
        if hot or clean or cool:
            warmth = "hot" if hot else "cool" if cool else ""
            if not clean and not sliced and warmth == "cool":
                warmth = "cold"
            words = [warmth + " and clean" if warmth and clean else warmth or "clean"]
            words += ["sliced"] if sliced else []
            return world, f"This is a {' '.join(words)} {name}."
        if toggled and self.toggleable >> o & 1:
            return world, f"This {name} is on."
        if sliced and self.sliceable >> o & 1:
            return world, f"This is a sliced {name}."
        return world, f"There's nothing special about {name}."

    def _look(self, world: World, _first: int, _second: int) -> tuple[World, str]:
        facing = self._facing[world.location]
        if facing is None:
            # the list of the first observation is not printed again: the command binds the location
            return world, "You are in the middle of a room. Looking quickly around you, you see nothing."
        # an object is listed once for each receptacle here that it was taken from
        beside = [
            self._a_object[o]
            for o in bits(world.beside[world.location])
            for r in self.things.here[world.location]
            if world.taken[r] >> o & 1
        ]
        return world, facing + listing(beside) + "."

    def _inventory(self, world: World, _first: int, _second: int) -> tuple[World, str]:
        if world.held < 0:
            return world, "You are not carrying anything."
        return world, f"You are carrying: {self._a_object[world.held]}."

    def _help(self, world: World, _first: int, _second: int) -> tuple[World, str]:
        return world, self.profile.help or NOTHING

    def _contents_text(self, world: World, r: int) -> str:
        is_open, inside = world.opened >> r & 1, world.contents[r]
        key = (r, is_open, inside)
        text = self._contents_texts.get(key)
        if text is None:
            name = self.receptacle_names[r]
            if not self.openable >> r & 1:
                text = f"On the {name}, you see {listing([self._a_object[o] for o in bits(inside)])}."
            elif is_open:
                text = f"The {name} is open. In it, you see {listing([self._a_object[o] for o in bits(inside)])}."
            else:
                text = f"The {name} is closed."
            if len(self._contents_texts) >= _CACHE_LIMIT:
                self._contents_texts.clear()
            self._contents_texts[key] = text
        return text
