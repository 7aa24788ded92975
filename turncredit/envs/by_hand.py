"""One rollout played by a person at the terminal, with an expert's hints."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from turncredit.envs.protocol import Expert, Step


class Playable(Protocol):
    """An environment whose methods are plain functions, as those of all built-in environments are."""

    def reset(self) -> str:
        """Start again and return the first observation."""
        ...

    def step(self, action: str) -> Step:
        """Carry out one action."""
        ...


def play(
    env: Playable,
    expert: Expert | None,
    heading: str,
    ending: Callable[[Step], str],
    listing: Callable[[], Sequence[str]] | None = None,
) -> None:
    """Print observations and carry out what is typed, until the rollout ends or an empty line is typed.

    `heading` is printed first: the task, and what can be typed. `!` prints the expert's next action; `?` prints what
    `listing` returns. Without an expert or a listing these are actions like any other. `ending` says how the rollout
    ended, from its last step.
    """
    observation = env.reset()
    if expert is not None:
        expert.observe(observation)
    print(heading)
    while True:
        print(f"\n{observation}")
        action = input("\n> ").strip() if sys.stdin.isatty() else sys.stdin.readline().strip()
        if not action:
            return
        if action == "!" and expert is not None:
            print(expert.act())
        elif action == "?" and listing is not None:
            print("\n".join(listing()))
        else:
            step = env.step(action)
            observation = step.observation
            if step.done:
                print(f"\n{observation}\n{ending(step)}")
                return
            if expert is not None:
                expert.observe(observation, action)
