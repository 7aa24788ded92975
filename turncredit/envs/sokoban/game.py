"""One rollout of Sokoban: steps, what is shown, progress, distance."""

from __future__ import annotations

from typing import NamedTuple

from turncredit.envs.protocol import Step
from turncredit.envs.sokoban.actions import parse
from turncredit.envs.sokoban.level import DIRECTIONS, Level, Position
from turncredit.envs.sokoban.planner import Distances, distances_of, moved
from turncredit.envs.sokoban.settings import Settings
from turncredit.envs.sokoban.view import grid, relations

NO_ACTION = "Not an action; there are up, down, left and right."
REFUSED = "You cannot go"
"""How the reply to an action that is blocked begins."""


class State(NamedTuple):
    """A rollout's state: the position, and how many actions were played."""

    position: Position
    turns: int


class Sokoban:
    """One rollout. `step` takes a direction (`turncredit.envs.sokoban.actions`)."""

    def __init__(self, level: Level, settings: Settings):
        self._room, self._start, self._settings = level.room, level.start, settings
        self._state = State(level.start, 0)

    def reset(self) -> str:
        """Start again."""
        self._state = State(self._start, 0)
        return self._shown()

    def step(self, action: str) -> Step:
        """Carry out one action. One that is unknown or blocked changes nothing and costs a turn; `valid` is false."""
        if self._ended:
            raise RuntimeError("the rollout has ended; call reset or restore")
        position, turns = self._state
        after, reason = self._carried_out(action)
        self._state = State(after or position, turns + 1)
        won = self.won
        observation = f"{reason}\n{self._shown()}" if reason else self._shown()
        return Step(observation, self._settings.success_reward * won, self._ended, won, after is not None)

    def close(self) -> None:
        """Nothing to release."""

    @property
    def won(self) -> bool:
        """Whether all boxes are on targets."""
        return self._state.position.boxes == self._room.targets

    def progress(self) -> float:
        """The share of boxes that are on targets now, also in a dead position."""
        boxes = self._state.position.boxes
        return sum(box in self._room.targets for box in boxes) / len(boxes)

    def distance(self) -> int:
        """The optimal number of further actions, however many turns are left; -1 in a dead position."""
        return self._distances.distance(self._state.position)

    def oracle(self) -> list[str]:
        """An optimal plan from here; empty when won or dead."""
        return self._distances.plan(self._state.position)

    def best_action(self) -> str | None:
        """The first action of `oracle`; None when won or dead."""
        direction = self._distances.action(self._state.position)
        return None if direction is None else DIRECTIONS[direction]

    def admissible(self) -> tuple[str, ...]:
        """The directions in which the player can walk or push."""
        if self._ended:
            return ()
        position, beside = self._state.position, self._room.beside
        return tuple(name for number, name in enumerate(DIRECTIONS) if moved(beside, position, number) is not None)

    def snapshot(self) -> State:
        """The state, which is immutable."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    @property
    def _ended(self) -> bool:
        return self.won or self._state.turns >= self._settings.horizon

    @property
    def _distances(self) -> Distances:
        return distances_of(self._room)

    def _carried_out(self, action: str) -> tuple[Position | None, str]:
        """The position after an action, or why there is none."""
        parsed = parse(action)
        if parsed is None:
            return None, NO_ACTION
        position = self._state.position
        ahead = self._room.beside[parsed.direction][position.player]
        where = f"{REFUSED} {DIRECTIONS[parsed.direction]}"
        if ahead < 0:
            return None, f"{where}: there is a wall."
        if ahead in position.boxes and not parsed.pushes:
            return None, f"{where}: there is a box."
        after = moved(self._room.beside, position, parsed.direction)
        return after, "" if after is not None else f"{where}: the box is blocked."

    def _shown(self) -> str:
        view, position = self._settings.view, self._state.position
        if view == "grid":
            return grid(self._room, position)
        seen = relations(self._room, position)
        return seen if view == "relations" else f"{grid(self._room, position)}\n{seen}"
