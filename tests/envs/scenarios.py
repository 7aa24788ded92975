"""Twenty small games for the recorded transcripts, and the search that the planner is checked against.

All are generated; some are then changed into what only released games have: shared locations, objects listed
twice, things already open, cold, lit or in hand, sinks apart from their basins, things inside other things.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

from turncredit.envs.household.game import Game
from turncredit.envs.household.generate import Draft, draw, to_pddl
from turncredit.envs.household.goals import FAMILIES
from turncredit.envs.household.profile import PROFILES
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.world import World

NEW, OLD, RELEASED = "alfworld-0.4", "alfworld-0.3", "alfworld-games-2.1.1"


@dataclass(frozen=True)
class Scenario:
    name: str
    profile: str
    task: str
    problem: str

    def game(self) -> Game:
        return Game(PROFILES[self.profile], self.task, self.problem)


def kitchen(family: str, target: str = "CounterTop", thing: str = "Apple") -> str:
    """A small kitchen with everything for heating, cooling, cleaning and slicing."""
    receptacles = (
        ("Cabinet", "Cabinet_bar_01"),
        ("Cabinet", "Cabinet_bar_02"),
        ("CounterTop", "CounterTop_bar_01"),
        ("Fridge", "Fridge_bar_01"),
        ("Microwave", "Microwave_bar_01"),
        ("SinkBasin", "Sink_bar_01_bar_SinkBasin"),
    )
    objects = (
        ("Apple", "Apple_bar_01", "SinkBasin"),
        ("Apple", "Apple_bar_02", "Fridge_bar_01"),
        ("Knife", "Knife_bar_01", "CounterTop_bar_01"),
        ("Mug", "Mug_bar_01", "Cabinet_bar_01"),
        ("Mug", "Mug_bar_02", "Microwave_bar_01"),
        ("Plate", "Plate_bar_01", "CounterTop_bar_01"),
    )
    placed = tuple((kind, o, "Sink_bar_01_bar_SinkBasin" if r == "SinkBasin" else r) for kind, o, r in objects)
    return to_pddl(Draft(family, thing, target, receptacles, placed))


def drawn(family: str, seed: int) -> str:
    """A small generated game."""
    return to_pddl(draw(random.Random(seed), family, Settings(receptacles=(5, 8), distractors=(3, 8))))


def at_one_place(problem: str, *receptacles: str) -> str:
    """The problem with all these receptacles, and what is in them, at the first one's location."""
    lines = problem.split("\n")
    places = {line.split()[1]: line.split()[2].rstrip(")") for line in lines if line.startswith("(receptacleAt")}
    shared = places[receptacles[0]]
    for r in receptacles[1:]:
        problem = problem.replace(f" {places[r]})", f" {shared})")
    return problem


def stating(problem: str, *facts: str) -> str:
    """The problem with further initial facts."""
    return problem.replace("\n(:init\n", "\n(:init\n" + "".join(f"({fact})\n" for fact in facts))


def in_hand(problem: str, thing: str) -> str:
    """The problem with a thing in the agent's hand."""
    lines = [
        line
        for line in problem.split("\n")
        if not line.startswith((f"(inReceptacle {thing}", f"(objectAtLocation {thing}"))
    ]
    return stating("\n".join(lines), f"holds agent1 {thing}", "holdsAny agent1")


def wide_sink(problem: str) -> str:
    """The problem with the basin's type changed to the one that only the released domain cleans with."""
    basin = "Sink_bar_01_bar_SinkBasin"
    problem = problem.replace(f"receptacleType {basin} SinkBasinType", f"receptacleType {basin} SinkType")
    return problem.replace("SinkBasinType - rtype", "SinkBasinType - rtype\nSinkType - rtype")


def scenarios() -> list[Scenario]:
    """The twenty games."""
    sink = "Sink_bar_01_bar_SinkBasin"
    shared = at_one_place(kitchen("heat"), "CounterTop_bar_01", "Microwave_bar_01", sink, "Fridge_bar_01")
    twice = stating(kitchen("clean", "Cabinet", "Mug"), "inReceptacle Mug_bar_01 CounterTop_bar_01")
    lit = stating(drawn("look", 5), "isToggled DeskLamp_bar_01", "isToggled FloorLamp_bar_01")
    nested = stating(
        at_one_place(kitchen("pick", "Fridge", "Plate"), "CounterTop_bar_01", "Fridge_bar_01"),
        "inReceptacleObject Apple_bar_01 Plate_bar_01",
        "inReceptacleObject Knife_bar_01 Plate_bar_01",
    )
    # the reference cannot load a goal that is out of reach from the start, so the new domain gets another one
    unclean, unclean_goal = wide_sink(kitchen("clean")), wide_sink(kitchen("pick", "Fridge", "Plate"))
    started = stating(
        at_one_place(kitchen("cool", "Cabinet", "Mug"), sink, "Microwave_bar_01", "Fridge_bar_01"),
        *("isCool Mug_bar_01", "isSliced Apple_bar_01", "isSliced Apple_bar_02", "isClean Apple_bar_02"),
        *("opened Fridge_bar_01", "opened Cabinet_bar_01"),
    )
    knife = in_hand(kitchen("pick2", "CounterTop"), "Knife_bar_01")
    knife = stating(knife, "toggleable Knife_bar_01", "isToggled Knife_bar_01")
    found = [
        ("shared locations, new grammar", NEW, shared),
        ("shared locations, old grammar", OLD, shared),
        ("shared locations, released grammar", RELEASED, shared),
        ("an object listed twice", NEW, twice),
        ("an object listed twice at one place", NEW, at_one_place(twice, "Cabinet_bar_01", "CounterTop_bar_01")),
        ("a lamp that is already lit", NEW, _only_known(lit)),
        ("things inside a plate", NEW, nested),
        ("a sink without a basin type, new domain", NEW, unclean_goal),
        ("a sink without a basin type, released domain", RELEASED, unclean),
        ("cold, sliced and open from the start", NEW, started),
        ("an electric knife in hand from the start", NEW, knife),
        *((f"a small game, {family}", NEW, drawn(family, 11)) for family in FAMILIES),
        *((f"an old game, {family}", OLD, drawn(family, 31)) for family in ("pick2", "look")),
        ("a released game, heat", RELEASED, drawn("heat", 41)),
    ]
    return [Scenario(name, profile, f"Your task is to: {name}.", problem) for name, profile, problem in found]


def _only_known(problem: str) -> str:
    """The problem without stated facts about lamps that it does not have."""
    lines = problem.split("\n")
    declared = {line.split(" - ")[0] for line in lines if " - object" in line}
    return "\n".join(
        line for line in lines if not line.startswith("(isToggled") or line[len("(isToggled ") : -1] in declared
    )


def shortest(game: Game, world: World, limit: int = 60_000) -> int | None:
    """The true optimal distance by breadth-first search over every command; None when the limit is reached."""
    if game.goal.won(world):
        return 0
    seen = {world[:4] + world[6:10]}
    queue = deque([(world, 0)])
    while queue:
        here, depth = queue.popleft()
        for command in game.local(here).admissible:
            if command.startswith(("examine", "look", "inventory", "help", "slice")):
                continue
            after, _ = game.apply(here, command)
            key = after[:4] + after[6:10]
            if key in seen:
                continue
            if game.goal.won(after):
                return depth + 1
            seen.add(key)
            if len(seen) > limit:
                return None
            queue.append((after, depth + 1))
    return -1
