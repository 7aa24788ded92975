"""Your own environment: count upwards in words.   snakemake --cores 1 --configfile examples/counting.yaml"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from turncredit.data.env_wording import Words
from turncredit.data.strict_model import Closed
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Settings(Closed):
    """`env.counting`: how far to count, and after how many actions a rollout ends."""

    longest: int = 4
    horizon: int = 8


class Counting:
    """One rollout: the right action is the next number. Only `reset`, `step` and `close` must be there."""

    def __init__(self, row: Mapping[str, Any], settings: Settings):
        self.first, self.last = (NUMBERS.index(word) for word in row["game"].split())
        self.horizon = settings.horizon

    def reset(self) -> str:
        self.at, self.turn = self.first, 0
        return f"you are at {NUMBERS[self.at]}"

    def step(self, action: str) -> Step:
        right = action == NUMBERS[self.at + 1]
        self.at, self.turn = self.at + right, self.turn + 1
        won = self.at == self.last
        seen = f"you are at {NUMBERS[self.at]}" if right else "that is not the next number"
        return Step(seen, float(won), won or self.turn == self.horizon, success=won, valid=action in NUMBERS)

    def close(self) -> None: ...

    def progress(self) -> float:  # for has_progressive
        return (self.at - self.first) / (self.last - self.first)

    def snapshot(self) -> tuple[int, int]:  # for audits
        return self.at, self.turn

    def restore(self, state: tuple[int, int]) -> None:
        self.at, self.turn = state

    def admissible(self) -> list[str]:  # for agents that list actions, and for noise
        return NUMBERS


class Expert:
    """Says the number after the last one that it has seen."""

    def __init__(self, env: Counting, rng: random.Random):
        self.at = 0

    def observe(self, observation: str, action: str | None = None) -> None:
        word = observation.rsplit(maxsplit=1)[-1]
        self.at = NUMBERS.index(word) if word in NUMBERS else self.at

    def act(self) -> str:
        return NUMBERS[self.at + 1]


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict]:
    """`count` games, the same for the same seed; a larger count adds games at the end. No game is in two splits."""
    pairs = [
        (first, first + steps) for first in range(10 - settings.longest) for steps in range(1, settings.longest + 1)
    ]
    own = [pair for number, pair in enumerate(pairs) if (number % 3 == 0) == (split == "eval")]
    rng, rows = random.Random(f"{split} {seed}"), []
    for number in range(count):
        first, last = rng.choice(own)
        goal, game = f"count to {NUMBERS[last]}.", f"{NUMBERS[first]} {NUMBERS[last]}"
        rows.append({"task_id": f"{split}-{number}", "goal": goal, "game": game})
    return rows


ENVIRONMENT = Environment(
    name="counting",
    Settings=Settings,
    open_task=Counting,
    make_tasks=make_tasks,
    expert=Expert,
    words=Words(setting="You count upwards.", game="a counting game", examples=("one", "two")),
)
