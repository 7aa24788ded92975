"""Small games with what the unpatched reference engine printed, and the search that checks the planner.

They are in `transcripts.json.gz` (record_transcripts.py). All were generated; some were then changed into what only
released games have: shared locations, objects listed twice, things already open, cold, lit or in hand, sinks apart from
their basins, things inside other things.
"""

from __future__ import annotations

import gzip
import json
import random
from collections import deque
from dataclasses import dataclass
from pathlib import Path

from turncredit.envs.household.game import Game
from turncredit.envs.household.generate import draw, to_pddl
from turncredit.envs.household.profile import PROFILES
from turncredit.envs.household.settings import Settings
from turncredit.envs.household.world import World

NEW, OLD, RELEASED, FIRST = "alfworld-0.4", "alfworld-0.3", "alfworld-games-2.1.1", "alfworld-games-2020"
WHERE = Path(__file__).with_name("transcripts.json.gz")


@dataclass(frozen=True)
class Scenario:
    """A game and its recorded rollout: (command, text, number of the list of admissible commands, won) of each step."""

    name: str
    profile: str
    problem: str
    admissible: list[list[str]]
    steps: list[tuple[str, str, int, bool]]

    @property
    def task(self) -> str:
        return f"Your task is to: {self.name}."

    def game(self) -> Game:
        return Game(PROFILES[self.profile], self.task, self.problem)


SCENARIOS = [Scenario(**recorded) for recorded in json.loads(gzip.decompress(WHERE.read_bytes()))]


def drawn(family: str, seed: int) -> str:
    """A small generated game."""
    return to_pddl(draw(random.Random(seed), family, Settings(receptacles=(5, 8), distractors=(3, 8))))


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
