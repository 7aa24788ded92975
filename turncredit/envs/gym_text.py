"""An `Environment` of in-process text environments with Gymnasium's interface, such as those of gem and TextArena.

    ENVIRONMENT = gym_text("gem", {"guess": Game(lambda: gem.make("game:GuessTheNumber-v0-easy"), "guess the number.")})

What is wrapped has `reset(seed) -> (text, info)` and `step(text) -> (text, reward, terminated, truncated, info)`;
`Arena` gives a game of TextArena that form. Many such environments draw from Python's and NumPy's global generators,
also in `step`. Every rollout therefore has generators of its own, which replace the global ones during each call:
interleaved rollouts do not disturb each other, and a recorded rollout can be replayed. An environment with another
source of randomness must be declared `deterministic=False`.
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, NamedTuple

import numpy as np
from pydantic import Field

from turncredit.data.seeding import derive_seed
from turncredit.data.strict_model import Closed
from turncredit.envs.environment import Environment, Row
from turncredit.envs.protocol import Step
from turncredit.errors import UserError


class Result(NamedTuple):
    """What a step led to."""

    observation: str
    reward: float
    info: Mapping[str, Any]


Verdict = Callable[[Result], bool]
"""A question about a step, answered from its result."""


class Game(NamedTuple):
    """A kind of game: a function that opens one, and the goal that agents are told."""

    make: Callable[[], Any]
    goal: str


class Settings(Closed):
    """Settings of every environment that `gym_text` makes."""

    horizon: int = Field(50, ge=1, description="actions after which a rollout ends, if the game has not ended it")


def gym_text(
    name: str,
    games: Mapping[str, Game],
    *,
    success: Verdict = lambda last: last.reward >= 1,
    valid: Verdict = lambda _result: True,
    **fields: Any,
) -> Environment:
    """The environment `name` with these games, each of which is a family of its tasks, in rotation.

    `success` is called with the last step, unless the game was truncated; `valid` with every step. `fields` are
    further ones of `Environment`: words, expert, failures, deterministic. A task is a game's name and a seed.
    """
    fields = {"Settings": Settings, "make_tasks": partial(_make_tasks, name, games), **fields}
    open_task = partial(_open_task, name, games, success, valid)
    return Environment(name=name, open_task=open_task, env_class=GymText, **fields)


def _make_tasks(
    name: str, games: Mapping[str, Game], split: str, count: int, seed: int, _settings: Settings
) -> list[dict[str, Any]]:
    """`count` tasks of a split, the same for the same seed; a larger count adds tasks at the end."""
    kinds, rows, seen, draw = list(games), [], set(), 0
    while len(rows) < count:
        kind = kinds[len(rows) % len(kinds)]
        game_seed = derive_seed(seed, name, split, draw) % 2**32  # what numpy.random.seed takes
        draw += 1
        if game_seed not in seen:
            seen.add(game_seed)
            task = {"task_id": f"{kind}-{game_seed}", "goal": games[kind].goal, "family": kind}
            rows.append({**task, "game": f"{kind} {game_seed}"})
    return rows


def _open_task(
    name: str, games: Mapping[str, Game], success: Verdict, valid: Verdict, row: Row, settings: Settings
) -> GymText:
    kind, _, seed = row["game"].rpartition(" ")
    if kind not in games:
        raise UserError(
            f"task '{row['task_id']}' is of the game '{kind}', which the environment '{name}' does not have; it has "
            f"changed since the tasks were made: delete the table and run again"
        )
    return GymText(games[kind].make, int(seed), settings.horizon, success, valid)


class _Random(NamedTuple):
    """The states of the two global generators."""

    python: Any
    numpy: Any

    @classmethod
    def now(cls) -> _Random:
        return cls(random.getstate(), np.random.get_state())

    def restore(self) -> None:
        random.setstate(self.python)
        np.random.set_state(self.numpy)


class State(NamedTuple):
    """The actions so far and the last text; a copy of the environment and its generators, or None for one without."""

    actions: tuple[str, ...]
    last: str
    env: Any
    random: _Random | None


class GymText:
    """One rollout of a game."""

    def __init__(self, make: Callable[[], Any], seed: int, horizon: int, success: Verdict, valid: Verdict):
        self._seed, self._horizon, self._success, self._valid = seed, horizon, success, valid
        self._actions: tuple[str, ...] = ()
        self._last = ""
        self._copies = True
        with self._own_random(seeded=True):
            self._env = make()

    def reset(self) -> str:
        """Start again, with the task's seed; the game's first text, with its rules."""
        self._actions = ()
        with self._own_random(seeded=True):
            parameters = inspect.signature(self._env.reset).parameters
            # A wrapper passes on whatever it is given: reset(self, **kwargs).
            seeded = "seed" in parameters or any(one.kind is one.VAR_KEYWORD for one in parameters.values())
            observation, info = self._env.reset(seed=self._seed) if seeded else self._env.reset()
        self._last = _with_suffix(observation, info)
        return self._last

    def step(self, action: str) -> Step:
        """Carry out one action."""
        with self._own_random():
            observation, reward, terminated, truncated, info = self._env.step(action)
        self._actions = (*self._actions, action)
        result = Result(_with_suffix(observation, info), float(reward), info)
        self._last = result.observation
        won = bool(terminated) and not truncated and bool(self._success(result))
        done = bool(terminated or truncated) or len(self._actions) >= self._horizon
        return Step(result.observation, result.reward, done, won, bool(self._valid(result)))

    def close(self) -> None:
        """Close the game, if it can be closed."""
        close = getattr(self._env, "close", None)
        if close is not None:
            close()

    def snapshot(self) -> State:
        """A deep copy; where there can be none (an open file, a generator), the actions alone, to be replayed."""
        if self._copies:
            try:
                return State(self._actions, self._last, deepcopy(self._env), self._random)
            except Exception:  # third-party code may raise anything
                self._copies = False
        return State(self._actions, self._last, None, None)

    def restore(self, state: State) -> None:
        """Continue from a snapshot: with a copy of its copy, or by playing its actions again from the start.

        Raises UserError where they lead to another text than they did: the game is not deterministic.
        """
        if state.random is None:
            self.reset()
            for action in state.actions:
                self.step(action)
            if self._last != state.last:
                raise UserError(
                    f"the same {len(state.actions)} actions led to another text when they were played again, so the "
                    "game has a source of chance of its own; declare its environment deterministic=False"
                )
            return
        self._actions, self._last = state.actions, state.last
        self._env, self._random = deepcopy(state.env), state.random

    @contextmanager
    def _own_random(self, *, seeded: bool = False) -> Iterator[None]:
        """The rollout's generators in place of the global ones, as they were after its last call, or fresh."""
        outside = _Random.now()
        try:
            if seeded:
                random.seed(self._seed)
                np.random.seed(self._seed)
            else:
                self._random.restore()
            yield
            self._random = _Random.now()
        finally:
            outside.restore()


class Arena:
    """A game of TextArena for one player, in the form of Gymnasium: `Arena(textarena.make("FrozenLake-v0"))`.

    The reward is known once the game has ended; `info` then has TextArena's information on the player, such as
    `invalid_move`.
    """

    def __init__(self, env: Any):
        self.env = env

    def reset(self, seed: int | None = None) -> tuple[str, dict[str, Any]]:
        """Start the game."""
        self.env.reset(num_players=1, seed=seed)
        return self.env.get_observation()[1], {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry out one action."""
        ended, info = self.env.step(action)
        rewards, players = self.env.close() if ended else ({}, {})
        observation = self.env.get_observation()[1]
        return observation, float((rewards or {}).get(0, 0.0)), ended, False, {**info, **players.get(0, {})}


def _with_suffix(observation: str, info: Mapping[str, Any]) -> str:
    """An observation, with the `suffix` (such as the board) that gem returns separately."""
    suffix = info.get("suffix")
    return f"{observation.rstrip()}\n{suffix}" if suffix else observation
