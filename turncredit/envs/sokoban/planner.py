"""The exact distance to the goal of every position of a room, and optimal plans.

A table of all positions is filled backwards from the solved ones: whatever it does not reach is dead, that is, no
sequence of actions solves it. Distances count actions, walking included.
"""

from __future__ import annotations

from functools import lru_cache
from math import comb

import numpy as np

from turncredit.envs.sokoban.level import DIRECTIONS, OPPOSITE, Position, Room

DEAD = -1
"""The distance of a position that cannot be solved any more."""
MOST_POSITIONS = 20_000_000
"""In a table; a distance takes two bytes."""
_SMALL = 20_000
"""Tables with at most so many positions, at most 40 KB each, are kept for many rooms."""


def positions(squares: int, boxes: int) -> int:
    """How many entries a table has, those with the player on a box's square included."""
    return squares * comb(squares, boxes)


class Distances:
    """The table of a room. Boxes that are sorted, c_1 < c_2 < ..., have the number sum C(c_i, i)."""

    def __init__(self, room: Room):
        self._beside, self._squares, boxes = room.beside, len(room.squares), len(room.targets)
        self._binomial = np.array(
            [[comb(square, i) for square in range(self._squares)] for i in range(1, boxes + 1)], dtype=np.int64
        )
        self._rows = self._binomial.tolist()
        self._table = self._filled(room)

    def distance(self, position: Position) -> int:
        """The optimal number of further actions, or `DEAD`."""
        return int(self._table[self._index(position)])

    def action(self, position: Position) -> int | None:
        """The next direction of an optimal plan (the first one wins ties); None if solved or dead."""
        now = self.distance(position)
        if now <= 0:
            return None
        for direction in range(len(DIRECTIONS)):
            after = moved(self._beside, position, direction)
            if after is not None and self.distance(after) == now - 1:
                return direction
        raise AssertionError("no action leads closer to the goal")

    def plan(self, position: Position) -> list[str]:
        """An optimal plan, as directions; empty if solved or dead."""
        out = []
        while (direction := self.action(position)) is not None:
            out.append(DIRECTIONS[direction])
            after = moved(self._beside, position, direction)
            assert after is not None
            position = after
        return out

    def between(self, fewest: int, most: int) -> np.ndarray:
        """The numbers of all positions with a distance in this range, for `position_of`."""
        return np.flatnonzero((self._table >= max(fewest, 0)) & (self._table <= most))

    def position_of(self, number: int) -> Position:
        """The position that `between` calls `number`."""
        rank, player = divmod(number, self._squares)
        boxes = []
        for binomial in reversed(self._rows):
            boxes.append(max(square for square, count in enumerate(binomial) if count <= rank))
            rank -= binomial[boxes[-1]]
        return Position(player, tuple(reversed(boxes)))

    def _index(self, position: Position) -> int:
        rank = sum(binomial[box] for binomial, box in zip(self._rows, position.boxes, strict=True))
        return rank * self._squares + position.player

    def _filled(self, room: Room) -> np.ndarray:
        """Distances by breadth-first search from the solved positions, over actions taken back."""
        table = np.full(positions(self._squares, len(room.targets)), DEAD, dtype=np.int16)
        beside = np.array(room.beside)
        player_F = np.setdiff1d(np.arange(self._squares), room.targets)
        boxes_FB = np.tile(np.array(room.targets), (len(player_F), 1))
        number_F = self._number(player_F, boxes_FB)
        distance = 0
        while len(number_F):
            table[number_F] = distance
            distance += 1
            player_F, boxes_FB = self._before(beside, player_F, boxes_FB)
            number_F, first_F = np.unique(self._number(player_F, boxes_FB), return_index=True)
            new_F = table[number_F] == DEAD
            number_F, first_F = number_F[new_F], first_F[new_F]
            player_F, boxes_FB = player_F[first_F], boxes_FB[first_F]
        return table

    def _number(self, player_F: np.ndarray, boxes_FB: np.ndarray) -> np.ndarray:
        rank_F = sum(binomial[boxes_FB[:, i]] for i, binomial in enumerate(self._binomial))
        return rank_F * self._squares + player_F

    @staticmethod
    def _before(beside: np.ndarray, player_F: np.ndarray, boxes_FB: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The positions from which one action leads to these: the player steps back, with a box after it or not."""
        players, boxes = [], []
        for direction, back in enumerate(OPPOSITE):
            from_F, ahead_F = beside[back][player_F], beside[direction][player_F]
            free_F = (from_F >= 0) & ~(boxes_FB == from_F[:, None]).any(axis=1)
            box_FB = boxes_FB == ahead_F[:, None]
            pulled_F = free_F & box_FB.any(axis=1)
            pulled_FB = np.where(box_FB, player_F[:, None], boxes_FB)[pulled_F]
            players += [from_F[free_F], from_F[pulled_F]]
            boxes += [boxes_FB[free_F], np.sort(pulled_FB, axis=1)]
        return np.concatenate(players), np.concatenate(boxes)


def moved(beside: tuple[tuple[int, ...], ...], position: Position, direction: int) -> Position | None:
    """The position after a step, which pushes the box that is in the way; None where that is not possible."""
    player, boxes = position
    ahead = beside[direction][player]
    if ahead < 0:
        return None
    if ahead not in boxes:
        return Position(ahead, boxes)
    beyond = beside[direction][ahead]
    if beyond < 0 or beyond in boxes:
        return None
    return Position(ahead, tuple(sorted(beyond if box == ahead else box for box in boxes)))


def distances_of(room: Room) -> Distances:
    """The table of a room, shared by its rollouts."""
    return (_small if positions(len(room.squares), len(room.targets)) <= _SMALL else _large)(room)


_small = lru_cache(maxsize=4096)(Distances)
_large = lru_cache(maxsize=16)(Distances)


def forget() -> None:
    """Give up the tables kept in memory."""
    _small.cache_clear()
    _large.cache_clear()
