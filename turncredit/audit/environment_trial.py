"""Playing an environment for its check: at random, with its expert, and with odd actions."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from turncredit.config import DemosConfig, EnvSlice
from turncredit.data.seeding import generator
from turncredit.envs.protocol import Step, tell
from turncredit.errors import UserError
from turncredit.rollouts.tasks import Games, make_tasks

#: How many times as many tasks are compared between splits as are played.
MANY = 16
#: Actions that no grammar expects. Each must give a step, whatever it says.
ODD_ACTIONS = (
    "",
    "   ",
    "\n",
    "go to\nthe kitchen",
    "\x00\x07",
    "Ünïcödé 日本語 🧪",
    "[" * 200,
    '{"name": "go", "arguments": {',
    "a" * 20_000,
    "'; DROP TABLE turns; --",
    "-1 1e309 NaN",
)


class NotTried(Exception):
    """A check does not apply to the environment, or could not be made."""


class Turn(NamedTuple):
    """A turn that was played: the action, its step, and the state's measures after it (None: not available)."""

    action: str
    step: Step
    progress: float | None
    distance: int | None


class Rollout(NamedTuple):
    """A rollout that was played: its environment, the first observation, and its turns."""

    running: Any
    first: str
    turns: list[Turn]


@dataclass
class Tried:
    """The environment and how much of it is tried.

    tasks       how many tasks of each split
    turns       after how many turns a rollout that does not end is cut
    timeout     seconds that a call may take
    noise       share of the expert's turns that are random, as in demonstrations (`demos.noise`)
    """

    env: EnvSlice
    train_split: str = "train"
    eval_split: str = "eval"
    tasks: int = 16
    turns: int = 60
    seed: int = 0
    timeout: float = 60.0
    noise: float = DemosConfig().noise
    _rows: dict[tuple[str, int], list[dict[str, Any]]] = field(default_factory=dict)

    def rows(self, split: str, count: int | None = None) -> list[dict[str, Any]]:
        """Rows of the tasks table."""
        asked = split, count or self.tasks
        if asked not in self._rows:
            self._rows[asked] = make_tasks(self.env, *asked, self.seed, key="--tasks").to_pylist()
        return self._rows[asked]

    def many_rows(self, split: str) -> list[dict[str, Any]]:
        """Up to `MANY` times `tasks` rows, if there are so many; fewer where making them takes long."""
        rows, took = self.rows(split), 0.0
        while len(rows) < MANY * self.tasks and took < self.timeout / 8:  # the next ones may take four times as long
            began = time.perf_counter()
            try:
                rows = self.rows(split, min(2 * len(rows), MANY * self.tasks))
            except UserError:  # a split that is read from files may have fewer
                break
            took = time.perf_counter() - began
        return rows

    @cached_property
    def games(self) -> Games:
        """The training tasks, ready to be opened."""
        table = make_tasks(self.env, self.train_split, self.tasks, self.seed, key="--tasks")
        return Games(self.env, table, timeout=self.timeout)

    def rng(self, *words: str | int) -> np.random.Generator:
        """A random state that depends on the words alone."""
        return generator(self.seed, "environment check", *words)

    def can(self, capability: str) -> None:
        """Raise NotTried where the environment does not have the capability."""
        if not self.games.can(capability):
            raise NotTried(f"the environment has no capability '{capability}'")

    def turn(self, running: Any, action: str) -> Turn:
        """Carry out an action and measure the state after it."""
        step = running.step(action)
        progress = running.progress() if self.games.can("progress") else None
        return Turn(action, step, progress, running.distance() if self.games.can("distance") else None)

    @property
    def actions(self) -> str:
        """What the actions are that rollouts are tried with."""
        if self.games.env.acts_at_random:
            return "random"
        return "the expert's" if self.games.can("expert") else "the examples of the environment's words, and odd ones"

    def actor(self, running: Any, rng: np.random.Generator) -> Callable[[str], str]:
        """The next action after an observation: a random one, or else the expert's, or else a text."""
        if self.games.env.acts_at_random:
            return lambda _observation: self.games.random_action(running, rng)
        if not self.games.can("expert"):
            texts = (*self.games.env.words.examples, "look", *ODD_ACTIONS[:4])
            return lambda _observation: texts[rng.integers(len(texts))]
        expert = self.games.expert(running, rng, skip=False)

        def act(observation: str) -> str:
            expert.observe(observation)
            return expert.act()

        return act

    def rollout(self, row: Mapping[str, Any], choice: int = 0, *, most: int = 0, seconds: float = math.inf) -> Rollout:
        """A rollout of such actions, of at most `most` turns (else `turns`), whose environment is still open."""
        running, rng = self.games.open(row), self.rng(row["task_id"], choice)
        first = running.reset()
        played = Rollout(running, first, [])
        act, observation, began = self.actor(running, rng), first, time.perf_counter()
        while len(played.turns) < (most or self.turns) and time.perf_counter() - began < seconds:
            played.turns.append(turn := self.turn(running, act(observation)))
            if turn.step.done:
                break
            observation = turn.step.observation
        return played

    def by_expert(self, row: Mapping[str, Any], noise: float = 0.0) -> list[Turn]:
        """A rollout of the expert; in a share of turns, `noise`, a random action takes the place of its own."""
        running, rng = self.games.open(row), self.rng("expert", row["task_id"])
        expert = self.games.expert(running, rng, skip=False)
        expert.observe(running.reset())
        turns: list[Turn] = []
        while len(turns) < 10 * self.turns and not (turns and turns[-1].step.done):
            action = chosen = expert.act()
            if noise and rng.random() < noise:
                action = self.games.random_action(running, rng)
            turns.append(self.turn(running, action))
            if not turns[-1].step.done:
                tell(expert, turns[-1].step.observation, action, chosen)
        running.close()
        return turns
