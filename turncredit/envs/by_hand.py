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
    how: str = "",
) -> None:
    """Print observations and carry out what is typed, until the rollout ends or an empty line is typed.

    `heading`, the task, is printed first, and then what can be typed (or `how`, in place of that). `!` prints the
    expert's next action; `?` prints what `listing` returns. Without an expert or a listing these are actions like any
    other. `ending` says how the rollout ended, from its last step.
    """
    typed = ["? lists admissible actions"] * (listing is not None) + ["! shows the expert's next one"] * (
        expert is not None
    )
    observation = env.reset()
    if expert is not None:
        expert.observe(observation)
    print(f"{heading}\n\n({how or ', '.join([*typed, 'an empty line quits'])})")
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
