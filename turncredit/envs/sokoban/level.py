"""Rooms and levels: geometry, the common text format, and forms that are equal for equal layouts.

A room is walls and targets; a level is a room with a player and boxes. Squares are the floor that the player could walk
to if there were no boxes, numbered in reading order.

The text format is that of http://www.sokobano.de/wiki/index.php?title=Level_format: `#` wall, `@` player, `+` player on
a target, `$` box, `*` box on a target, `.` target; a space, `-` or `_` is floor.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

#: Direction to its step in rows and columns. Numbers of directions are places in this order.
STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}
DIRECTIONS = tuple(STEPS)
OPPOSITE = (1, 0, 3, 2)
FLOOR = " -_"
SYMBOLS = "#@+$*."

Square = tuple[int, int]

#: The eight rotations and reflections of a square.
_SYMMETRIES: tuple[Callable[[int, int], Square], ...] = (
    lambda r, c: (r, c),
    lambda r, c: (r, -c),
    lambda r, c: (-r, c),
    lambda r, c: (-r, -c),
    lambda r, c: (c, r),
    lambda r, c: (c, -r),
    lambda r, c: (-c, r),
    lambda r, c: (-c, -r),
)


class BadLevel(ValueError):
    """Rows that are no level; the message says what is wrong with it."""


class Position(NamedTuple):
    """What changes in a level: the player's square, and those of the boxes, sorted."""

    player: int
    boxes: tuple[int, ...]


@dataclass(frozen=True)
class Room:
    """Walls and targets. `squares` are (row, column) in reading order; `targets` are numbers of squares, sorted."""

    squares: tuple[Square, ...]
    targets: tuple[int, ...]

    @cached_property
    def beside(self) -> tuple[tuple[int, ...], ...]:
        """For each direction and square, the next square, -1 where there is a wall."""
        number = {square: n for n, square in enumerate(self.squares)}
        return tuple(tuple(number.get((r + dr, c + dc), -1) for r, c in self.squares) for dr, dc in STEPS.values())

    def draw(self, position: Position) -> tuple[str, ...]:
        """A level's rows in the text format, with walls around the squares."""
        grid, at = [row.copy() for row in self._empty], self._place
        for box in position.boxes:
            row, column = at[box]
            grid[row][column] = "*" if box in self.targets else "$"
        row, column = at[position.player]
        grid[row][column] = "+" if position.player in self.targets else "@"
        return tuple("".join(row) for row in grid)

    @cached_property
    def _place(self) -> tuple[Square, ...]:
        """Where `draw` has each square: one row and column of walls come first."""
        top, left = (min(square[axis] for square in self.squares) - 1 for axis in (0, 1))
        return tuple((row - top, column - left) for row, column in self.squares)

    @cached_property
    def _empty(self) -> list[list[str]]:
        """The symbols of the room without player and boxes."""
        bottom, right = (max(square[axis] for square in self._place) + 1 for axis in (0, 1))
        grid = [["#"] * (right + 1) for _ in range(bottom + 1)]
        for number, (row, column) in enumerate(self._place):
            grid[row][column] = "." if number in self.targets else " "
        return grid

    @cached_property
    def digest(self) -> str:
        """The same for rooms that are equal after moving, turning or reflecting one of them."""
        return self._digest(self.targets)

    def digest_of(self, position: Position) -> str:
        """The same for levels that are equal after moving, turning or reflecting one of them."""
        return self._digest(self.targets, position.boxes, (position.player,))

    def _digest(self, *marked: Sequence[int]) -> str:
        """Of the squares, and of which of them are marked with what."""
        marks = [[number in one for one in marked] for number in range(len(self.squares))]
        return hashlib.sha256(json.dumps(min(self._turned(marks))).encode()).hexdigest()

    def _turned(self, marks: Sequence[Sequence[bool]]) -> Iterable[list[tuple[Square, Sequence[bool]]]]:
        """The squares with their marks in all eight orientations, each moved into the corner."""
        for turn in _SYMMETRIES:
            turned = [turn(*square) for square in self.squares]
            top, left = (min(square[axis] for square in turned) for axis in (0, 1))
            yield sorted(((r - top, c - left), mark) for (r, c), mark in zip(turned, marks, strict=True))


class Level(NamedTuple):
    """A room and where a rollout begins."""

    room: Room
    start: Position


def read(rows: Sequence[str]) -> Level:
    """The level of these rows. Raises BadLevel."""
    marks = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row) if symbol not in FLOOR}
    if unknown := set(marks.values()) - set(SYMBOLS):
        raise BadLevel(f"unknown symbol {min(unknown)!r}; known are {' '.join(SYMBOLS)}, and for floor a space, - or _")
    player, boxes, targets = (
        [square for square, symbol in marks.items() if symbol in symbols] for symbols in ("@+", "$*", ".+*")
    )
    if len(player) != 1:
        raise BadLevel(f"{len(player)} players, not 1")
    if len(boxes) != len(targets) or not boxes:
        raise BadLevel(f"{len(boxes)} boxes and {len(targets)} targets; there must be as many of both, and at least 1")
    squares = _walkable(player[0], {square for square, symbol in marks.items() if symbol == "#"}, rows)
    number = {square: n for n, square in enumerate(squares)}
    for what, those in (("box", boxes), ("target", targets)):
        if cut_off := [square for square in those if square not in number]:
            row, column = cut_off[0]
            raise BadLevel(f"the {what} in row {row + 1}, column {column + 1} is walled off from the player")
    room = Room(squares, tuple(sorted(number[square] for square in targets)))
    return Level(room, Position(number[player[0]], tuple(sorted(number[square] for square in boxes))))


def _walkable(start: Square, walls: set[Square], rows: Sequence[str]) -> tuple[Square, ...]:
    """The squares that can be walked to from `start` if no box is in the way. Raises BadLevel for a gap in the wall."""
    height, width = len(rows), max(map(len, rows))
    found, waiting = {start}, [start]
    while waiting:
        r, c = waiting.pop()
        if not (0 < r < height - 1 and 0 < c < width - 1):
            raise BadLevel(f"the outer wall has a gap in row {r + 1}, column {c + 1}")
        for dr, dc in STEPS.values():
            after = r + dr, c + dc
            if after not in walls and after not in found:
                found.add(after)
                waiting.append(after)
    return tuple(sorted(found))
