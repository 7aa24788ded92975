"""The slots of an engine and the rollouts in them; those that something outside ends are played again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Generic, Protocol, TypeVar

from turncredit.errors import OutsideFault
from turncredit.rollouts.tasks import Games

#: Seconds to wait before a rollout is played for the second, and for the third and last time.
PAUSES = (1.0, 10.0)


class Start(Protocol):
    """What is read of the start of a rollout (`turncredit.rollouts.play.Start`)."""

    @property
    def rollout_id(self) -> str:
        """Its name, for messages."""
        ...


class Rollout(Protocol):
    """What is read of a rollout (`turncredit.rollouts.play.ActiveRollout`)."""

    slot: int
    env: Any
    redone: int

    def close(self) -> None:
        """Release the environment."""
        ...


S = TypeVar("S", bound=Start)
R = TypeVar("R", bound=Rollout)


class Seats(Generic[S, R]):
    """Numbered starts that wait, and the rollouts that are played.

    A rollout that an OutsideFault ends waits again, unless its environment does rollouts again itself (`Redone`). It is
    played from its start with the same random numbers, in an environment that is opened anew. So where steps are
    deterministic it is the rollout that it would have been.
    """

    def __init__(self, games: Games, seat: Callable[[int, S], R], starts: Sequence[tuple[int, S]], slots: int):
        """`seat` opens a rollout in a slot."""
        self._games, self._seat = games, seat
        self._waiting = list(starts)[::-1]
        self._free = list(range(slots))[::-1]
        self._taken: dict[int, tuple[int, S, R]] = {}
        self._pauses = () if games.env.counts_redone else PAUSES
        self._paused = [-float("inf")] * len(self._pauses)  # when each pause was last made
        self._redone: Counter[int] = Counter()  # by number

    def __bool__(self) -> bool:
        """Whether a rollout is played or waits."""
        return bool(self._waiting or self._taken)

    def __getitem__(self, slot: int) -> R:
        """The rollout in a slot."""
        return self._taken[slot][2]

    @property
    def can_fill(self) -> bool:
        """Whether a start waits and a slot is free."""
        return bool(self._waiting and self._free)

    def playing(self) -> list[R]:
        """The rollouts that are played, by slot."""
        return [self[slot] for slot in sorted(self._taken)]

    def fill(self) -> list[R]:
        """Open rollouts in the free slots; they have yet to begin or to continue from their checkpoints."""
        opened = []
        while self.can_fill:
            slot, (number, start) = self._free.pop(), self._waiting.pop()
            try:
                rollout = self._seat(slot, start)
            except OutsideFault as fault:
                self._again(slot, number, start, fault)
                continue
            rollout.redone = self._redone[number]
            self._taken[slot] = number, start, rollout
            opened.append(rollout)
        return opened

    @contextmanager
    def going_on(self, rollout: R) -> Iterator[None]:
        """In the block a rollout goes on. An OutsideFault there ends the block, and the rollout waits again."""
        number, start, _ = self._taken[rollout.slot]
        try:
            yield
        except OutsideFault as fault:
            if self._taken.pop(rollout.slot, None) is not None:
                self._games.close_each([rollout.env])
            self._again(rollout.slot, number, start, fault)

    def end(self, rollout: R) -> tuple[int, R]:
        """Close a rollout that has ended, and free its slot; returns it with its number."""
        number, *_ = self._taken.pop(rollout.slot)
        rollout.close()
        self._free.append(rollout.slot)
        return number, rollout

    def close(self) -> None:
        """Release the environments of rollouts that are still played."""
        self._games.close_each([rollout.env for rollout in self.playing()])

    def _again(self, slot: int, number: int, start: S, fault: OutsideFault) -> None:
        """Have a rollout wait again, after a pause that rollouts share which end together; or raise the fault."""
        times = self._redone[number]
        if times == len(self._pauses):
            raise fault
        print(f"{fault}; rollout {start.rollout_id} is played again from its start", file=sys.stderr, flush=True)
        if time.monotonic() - self._paused[times] > self._pauses[times]:
            time.sleep(self._pauses[times])
            self._paused[times] = time.monotonic()
        self._redone[number] += 1
        self._free.append(slot)
        self._waiting.append((number, start))


def given(outcome: Any) -> Any:
    """The result of an environment's call; raises the OutsideFault that is in its place (`Games.each`)."""
    if isinstance(outcome, OutsideFault):
        raise outcome
    return outcome
