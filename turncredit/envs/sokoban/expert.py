"""An expert that plays an optimal plan, and noise. Everything is in view, so a policy can learn what it does."""

from __future__ import annotations

from typing import Protocol

from turncredit.envs.protocol import Rng
from turncredit.envs.sokoban.level import DIRECTIONS


class Run(Protocol):
    """What the expert and noise know of a rollout."""

    def best_action(self) -> str | None:
        """The first action of an optimal plan; None when the level is solved or cannot be solved any more."""
        ...

    def admissible(self) -> tuple[str, ...]:
        """The directions in which the player can walk or push."""
        ...


class Expert:
    """The optimal plan from wherever the rollout is. In a dead position it walks about at random."""

    def __init__(self, env: Run, rng: Rng) -> None:
        self._env, self._rng = env, rng

    def observe(self, observation: str, action: str | None = None) -> None:
        """Nothing to remember."""

    def act(self) -> str:
        """The next action."""
        return self._env.best_action() or slip_command(self._env, self._rng)


def slip_command(env: Run, rng: Rng) -> str:
    """A random direction in which the player can walk or push; a push may leave a level that cannot be solved."""
    return _pick(env.admissible() or DIRECTIONS, rng)


def random_command(env: Run, rng: Rng) -> str:
    """A random action: in half the cases one that is possible, in the others one that is mostly refused."""
    action = slip_command(env, rng)
    if rng.random() < 0.5:
        return action
    return _pick((*DIRECTIONS, f"move {action}", "still"), rng)


def _pick(options: tuple[str, ...], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
