"""What every environment offers to the rest of the pipeline."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

State = tuple[Any, ...]
"""An immutable snapshot. Opaque: hand it back to `restore` of an environment on the same task."""


class Step(NamedTuple):
    """What one command led to.

    `reward` is the environment's own (1.0 on the winning step, else 0.0); `done` is true once the goal is
    reached or the horizon is; `valid` says whether the command was understood and allowed.
    """

    observation: str
    reward: float
    done: bool
    success: bool
    valid: bool


class Env(Protocol):
    """One running task. Not thread-safe; many may share one task's static data."""

    goal: str
    """The task in words, such as `put a clean mug in cabinet.`"""
    family: str
    """The kind of task, for reports by family."""
    horizon: int
    """The number of commands after which a rollout ends."""
    intro: str
    """Everything the original environment prints at a reset: banner, first observation and task."""

    def reset(self) -> str:
        """Start again and return the first observation, without banner and task."""
        ...

    def step(self, action: str) -> Step:
        """Carry out one command. Raises RuntimeError when the rollout has ended or was never reset."""
        ...

    def admissible(self) -> tuple[str, ...]:
        """The commands that are allowed now, sorted."""
        ...

    def progress(self) -> float:
        """The fraction of the goal's conditions that hold now; 1.0 if and only if the goal is reached."""
        ...

    def distance(self) -> int:
        """The optimal number of further commands, -1 when the goal can no longer be reached."""
        ...

    def oracle(self) -> list[str]:
        """An optimal plan from here, made with full knowledge. Empty when won or out of reach."""
        ...

    def snapshot(self) -> State:
        """The whole state, the turn counter included; costs about as much as a tuple."""
        ...

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        ...
