"""An environment of one's own: count from a number to another in words. `env.name: examples/counting_env.py`.

Only `reset`, `step` and `close` are needed. `progress`, `snapshot`/`restore`, `admissible` and the expert are what
this one offers beyond that; a method that needs the exact `distance` is refused before any job.
"""

from __future__ import annotations

import random

from pydantic import BaseModel, Field

from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step
from turncredit.words import Words

NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]


class Settings(BaseModel):
    """`env.settings` of the configuration."""

    longest: int = Field(4, ge=1, le=9, description="how far to count")
    horizon: int = Field(8, ge=1, description="actions until a rollout ends")


class Counting:
    """One rollout. The right action is always the next number; any other is refused."""

    def __init__(self, row: dict, settings: Settings):
        self.first, self.last = (NUMBERS.index(word) for word in row["game"].split())
        self.horizon = settings.horizon

    def reset(self) -> str:
        self.at, self.turn = self.first, 0
        return f"you are at {NUMBERS[self.at]}"

    def step(self, action: str) -> Step:
        self.turn += 1
        valid = action in NUMBERS and NUMBERS.index(action) == self.at + 1
        self.at += valid
        won = self.at == self.last
        seen = f"you are at {NUMBERS[self.at]}" if valid else "that is not the next number"
        return Step(seen, float(won), won or self.turn == self.horizon, success=won, valid=valid)

    def close(self) -> None: ...

    def progress(self) -> float:
        return (self.at - self.first) / (self.last - self.first)

    def snapshot(self) -> tuple[int, int]:
        return self.at, self.turn

    def restore(self, state: tuple[int, int]) -> None:
        self.at, self.turn = state

    def admissible(self) -> list[str]:
        return NUMBERS


class Expert:
    """Says the next number after the last one that it has seen."""

    def __init__(self, env: Counting, rng: object):
        self.at = 0

    def observe(self, observation: str, action: str | None = None) -> None:
        word = observation.rsplit(maxsplit=1)[-1]
        self.at = NUMBERS.index(word) if word in NUMBERS else self.at

    def act(self) -> str:
        return NUMBERS[min(self.at + 1, 9)]


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict]:
    """`count` games; the same for the same seed, and the first ones of a larger count."""
    rng, rows = random.Random(f"{split} {seed}"), []
    for number in range(count):
        first = rng.randrange(0, 10 - settings.longest)
        last = first + rng.randint(1, settings.longest)
        goal = f"count to {NUMBERS[last]}."
        rows.append({"task_id": f"{split}-{number}", "goal": goal, "game": f"{NUMBERS[first]} {NUMBERS[last]}"})
    return rows


ENVIRONMENT = Environment(
    name="counting",
    summary="count upwards in words",
    Settings=Settings,
    open_task=Counting,
    make_tasks=make_tasks,
    expert=Expert,
    words=Words(setting="You count upwards.", game="a counting game", examples=("one", "two")),
)
