"""Optimal plans for the six families.

Every optimal plan is one of a few sequences of essential operations (drop what is in the way, take, treat,
put, switch on), with `go to` and `open` added only where they are needed. The planner prices all of them and
keeps the cheapest. That this is optimal is checked against breadth-first search in the tests.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from turncredit.envs.household.game import Game, bits
from turncredit.envs.household.world import World


class Operation(NamedTuple):
    """`take`, `put`, `clean`, `heat`, `cool`, `use` or `visit`, of an object, at a receptacle."""

    kind: str
    thing: int
    at: int


Operations = tuple[Operation, ...]


def plan(game: Game, world: World) -> list[str] | None:
    """The commands of a shortest plan; empty when won, None when the goal cannot be reached."""
    best = _best(game, world)
    return None if best is None else _commands(game, world, best)


def distance(game: Game, world: World) -> int:
    """The length of a shortest plan, -1 when the goal cannot be reached."""
    best = _best(game, world)
    return -1 if best is None else _cost(game, world, best)


def _best(game: Game, world: World) -> Operations | None:
    if game.goal.won(world):
        return ()
    best: Operations | None = None
    lowest = 10**9
    drops: list[int] = []
    if world.held >= 0:
        drops = [r for r in range(len(game.receptacle_names)) if game.things.can_hold[r] >> world.held & 1]
    for sequence, hand_free in _candidates(game, world):
        options = [sequence]
        if hand_free and world.held >= 0:
            options = [(Operation("put", world.held, r), *sequence) for r in _near(game, world, drops, sequence)]
        for option in options:
            cost = _cost(game, world, option)
            if cost < lowest:
                best, lowest = option, cost
    return best


def _near(game: Game, world: World, drops: list[int], sequence: Operations) -> list[int]:
    """Where to put down what is in the way: here or at the first stop, if at all possible there."""
    place_of = game.things.receptacle_location
    stops = (world.location, place_of[sequence[0].at])
    return [r for r in drops if place_of[r] in stops] or drops


def _candidates(game: Game, world: World) -> Iterator[tuple[Operations, bool]]:
    """Sequences of operations that reach the goal, and whether each needs an empty hand to begin with."""
    goal = game.goal
    sources = [(o, r) for r, inside in enumerate(world.contents) for o in bits(inside & goal.objects & game.portable)]
    held = world.held if world.held >= 0 and goal.objects >> world.held & 1 else -1
    if goal.family == "look":
        yield from _look_candidates(game, world, sources, held)
    elif goal.family == "pick2":
        yield from _pair_candidates(game, world, sources, held)
    else:
        yield from _single_candidates(game, world, sources, held)


def _look_candidates(
    game: Game, world: World, sources: list[tuple[int, int]], held: int
) -> Iterator[tuple[Operations, bool]]:
    place_of = game.things.receptacle_location
    for lamp_at, inside in enumerate(world.contents):
        for lamp in bits(inside & game.goal.lamps):
            light = Operation("visit" if world.toggled >> lamp & 1 else "use", lamp, lamp_at)
            if held >= 0:
                yield (light,), False
            for o, r in sources:
                if o == held:
                    continue
                take = Operation("take", o, r)
                yield (take, light), True
                if place_of[r] == place_of[lamp_at]:
                    yield (light, take), True


def _pair_candidates(
    game: Game, world: World, sources: list[tuple[int, int]], held: int
) -> Iterator[tuple[Operations, bool]]:
    can_hold = game.things.can_hold
    for target in game.goal.targets:
        present = world.contents[target] & game.goal.objects
        fetch = [
            (o, (Operation("take", o, r), Operation("put", o, target)))
            for o, r in sources
            if not present >> o & 1 and can_hold[target] >> o & 1 and o != held
        ]
        put_held = held >= 0 and can_hold[target] >> held & 1 and not present >> held & 1
        first_put = Operation("put", held, target)
        if present:
            if put_held:
                yield (first_put,), False
            for _, one in fetch:
                yield one, True
            continue
        if put_held:
            for _, one in fetch:
                yield (first_put, *one), False
        for o, one in fetch:
            for other, two in fetch:
                if other != o:
                    yield (*one, *two), True


def _single_candidates(
    game: Game, world: World, sources: list[tuple[int, int]], held: int
) -> Iterator[tuple[Operations, bool]]:
    goal = game.goal
    tools = {"clean": game.clean_tools, "heat": game.heat_tools, "cool": game.cool_tools}.get(goal.family, ())
    treated = goal.treated(world)
    ways: list[tuple[int, int, Operations]] = [(o, r, (Operation("take", o, r),)) for o, r in sources if o != held]
    if held >= 0:
        ways.append((held, -1, ()))
    for target in goal.targets:
        for o, r, take in ways:
            hand_free = bool(take)
            listed_twice = world.contents[target] >> o & 1 and r != target
            if listed_twice and not treated >> o & 1:
                # Some released games list an object in two receptacles: taken out of the one, it stays in the
                # other, so that it need only be treated.
                for tool in tools:
                    yield (*take, Operation(goal.family, o, tool)), hand_free
            elif not listed_twice and game.things.can_hold[target] >> o & 1:
                put = Operation("put", o, target)
                if treated >> o & 1:
                    yield (*take, put), hand_free
                else:
                    for tool in tools:
                        yield (*take, Operation(goal.family, o, tool), put), hand_free


def _cost(game: Game, world: World, sequence: Operations) -> int:
    """The number of commands, `go to` and `open` included."""
    place, opened, count = world.location, world.opened, 0
    place_of, openable = game.things.receptacle_location, game.openable
    for kind, _, r in sequence:
        if place_of[r] != place:
            place = place_of[r]
            count += 1
        if kind in ("take", "put") and openable >> r & 1 and not opened >> r & 1:
            opened |= 1 << r
            count += 1
        count += kind != "visit"
    return count


def _commands(game: Game, world: World, sequence: Operations) -> list[str]:
    """The sequence as commands; as many as `_cost` counts."""
    place, opened = world.location, world.opened
    place_of, openable = game.things.receptacle_location, game.openable
    commands = []
    for kind, o, r in sequence:
        name, thing = game.receptacle_names[r], game.object_names[o]
        if place_of[r] != place:
            place = place_of[r]
            commands.append(f"go to {name}")
        if kind in ("take", "put") and openable >> r & 1 and not opened >> r & 1:
            opened |= 1 << r
            commands.append(f"open {name}")
        if kind == "take":
            commands.append(f"take {thing} from {name}")
        elif kind == "put":
            commands.append(game.profile.put_command.format(o=thing, r=name))
        elif kind == "use":
            commands.append(f"use {thing}")
        elif kind != "visit":
            commands.append(f"{kind} {thing} with {name}")
    return commands
