"""The history of a rollout in tokens, and what of it fits into a context.

    task; first observation; finished subgoals, folded; current subgoal; its actions, each with its observation

The last of these observations is the current one. What changes least comes first: within a subgoal a context continues
the one before, so that an engine reads only what is new.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import chain


@dataclass(frozen=True, slots=True)
class Part:
    """Tokens of one part of a context, and how many fewer they are than before the part was cut."""

    ids: tuple[int, ...] = ()
    cut: int = 0

    @property
    def whole(self) -> int:
        """Tokens of the part before it was cut."""
        return len(self.ids) + self.cut

    def shortened(self, size: int, end: Sequence[int]) -> Part:
        """At most `size` tokens of the part. If it has more, it is cut and closes with the tokens `end`."""
        size = max(size, 0)
        if len(self.ids) <= size:
            return self
        closing = tuple(end)[:size]
        return Part((*self.ids[: size - len(closing)], *closing), self.whole - size)

    def __add__(self, other: Part) -> Part:
        return Part(self.ids + other.ids, self.cut + other.cut)


@dataclass(frozen=True, slots=True)
class History:
    """The parts of a context, oldest first.

    folded       finished subgoals, each with its last observation
    steps        actions of the current subgoal, each with its observation
    lost_folded  tokens of folded subgoals that are gone because they did not fit
    lost_steps   the same for steps of the current subgoal
    """

    task: Part = Part()
    first: Part = Part()
    folded: tuple[Part, ...] = ()
    subgoal: Part = Part()
    steps: tuple[Part, ...] = ()
    lost_folded: int = 0
    lost_steps: int = 0

    @property
    def ids(self) -> list[int]:
        """The tokens of all parts, in the order of the context."""
        return list(chain.from_iterable(part.ids for part in self._parts()))

    @property
    def size(self) -> int:
        """The number of these tokens."""
        return _size(self._parts())

    @property
    def folded_size(self) -> int:
        """The number of tokens of the folded subgoals."""
        return _size(self.folded)

    @property
    def truncated(self) -> int:
        """Tokens that this context should hold and that did not fit."""
        return self.lost_steps + self.lost_folded + sum(part.cut for part in self._parts())

    def fold(self, record: Part, subgoal: Part) -> History:
        """The current subgoal's steps replaced by their `record`, and a new current subgoal."""
        return replace(self, folded=(*self.folded, record), subgoal=subgoal, steps=(), lost_steps=0)

    def then(self, step: Part) -> History:
        """One more step of the current subgoal."""
        return replace(self, steps=(*self.steps, step))

    def within(self, room: int, end: Sequence[int]) -> History:
        """The history in at most `room` tokens, if task, first observation and subgoal leave room for a step.

        What does not fit is given up in this order, and for good, so that a history never holds more than a context:
        the oldest steps, the current observation beyond half of the room, the oldest folded subgoals, the rest of the
        current observation. A part that is cut closes with the tokens `end`.
        """
        if not self.steps:  # the first observation is the current one
            return replace(self, first=self.first.shortened(len(self.first.ids) - (self.size - room), end))
        *older, last = self.steps
        folded = list(self.folded)
        over, lost_steps, lost_folded = self.size - room, self.lost_steps, self.lost_folded
        while over > 0 and older:
            gone = older.pop(0)
            over, lost_steps = over - len(gone.ids), lost_steps + gone.whole
        half = last.shortened(max(room // 2, len(last.ids) - max(over, 0)), end)
        over -= len(last.ids) - len(half.ids)
        while over > 0 and folded:
            gone = folded.pop(0)
            over, lost_folded = over - len(gone.ids), lost_folded + gone.whole
        last = half.shortened(len(half.ids) - max(over, 0), end)
        return replace(self, folded=tuple(folded), steps=(*older, last), lost_steps=lost_steps, lost_folded=lost_folded)

    def _parts(self) -> list[Part]:
        return [self.task, self.first, *self.folded, self.subgoal, *self.steps]


def _size(parts: Iterable[Part]) -> int:
    return sum(len(part.ids) for part in parts)
