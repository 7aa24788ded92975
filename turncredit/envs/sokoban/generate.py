"""Levels from a seed: a room is drawn, and the start is a position from which an optimal plan has the length asked for.

The hash of the room (walls and targets, whatever its orientation) decides the split that a level belongs to: no two
splits share a room, whatever their seeds. Levels are solvable by construction, since the table of distances says so.
"""

from __future__ import annotations

import random
from collections.abc import Sequence

from turncredit.data.seeding import derive_seed
from turncredit.envs.sokoban.level import STEPS, Level, Position, Room, Square
from turncredit.envs.sokoban.planner import Distances, distances_of
from turncredit.envs.sokoban.settings import Settings
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
_ATTEMPTS = 1000
"""Rooms drawn for one level before giving up; one in four is in the wanted split."""
_STARTS = 20
"""Positions drawn in a room, to find one with no box on a target."""


def family_of(boxes: int, rows: int, columns: int) -> str:
    """`2 boxes 6x6`."""
    return f"{boxes} box{'es' * (boxes > 1)} {rows}x{columns}"


def generate(split: str, index: int, seed: int, settings: Settings, seen: set[str]) -> tuple[str, str, Level]:
    """The level number `index` of a split: (content hash, family, level).

    Levels whose hash is in `seen` are left out; the new one is added to it. Raises UserError for an unknown split, and
    where the settings allow too few levels.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated levels{nearest(split, SPLITS)}; choose one of {', '.join(SPLITS)}"
        )
    families = [(boxes, size) for size in settings.sizes for boxes in settings.boxes]
    boxes, size = families[index % len(families)]
    family = family_of(boxes, size, size)
    rng = random.Random(derive_seed(seed, "sokoban", split, index))
    for _ in range(_ATTEMPTS):
        room = _room(rng, boxes, size, settings.walls)
        if room is None or part_of(room, len(SPLITS)) != SPLITS.index(split):
            continue
        start = _start(rng, room, settings.length)
        if start is not None and (content := room.digest_of(start)) not in seen:
            seen.add(content)
            return content, family, Level(room, start)
    low, high = settings.length
    raise UserError(
        f"found no new level of the family '{family}' for the split '{split}' in {_ATTEMPTS} rooms; ask for fewer "
        f"tasks, a wider env.sokoban.length than [{low}, {high}], or leave the family out (env.sokoban.boxes, sizes)"
    )


def part_of(room: Room, parts: int) -> int:
    """Which of so many equal parts a room belongs to."""
    return int(room.digest[:8], 16) % parts


def _room(rng: random.Random, boxes: int, size: int, walls: float) -> Room | None:
    """A room of one piece; None where too few squares are left for boxes, targets and the player."""
    inner = range(1, size - 1)
    squares = _largest_piece([(row, column) for row in inner for column in inner if rng.random() >= walls])
    if len(squares) < 2 * boxes + 1:
        return None
    return Room(squares, tuple(sorted(rng.sample(range(len(squares)), boxes))))


def _largest_piece(squares: Sequence[Square]) -> tuple[Square, ...]:
    """The largest set of connected squares; the first one wins ties."""
    left, best = dict.fromkeys(squares), []
    while left:
        piece = [next(iter(left))]
        del left[piece[0]]
        for r, c in piece:
            for dr, dc in STEPS.values():
                if (after := (r + dr, c + dc)) in left:
                    del left[after]
                    piece.append(after)
        best = max(best, piece, key=len)
    return tuple(sorted(best))


def _start(rng: random.Random, room: Room, length: tuple[int, int]) -> Position | None:
    """A position whose optimal plan has a length in this range, with no box on a target; None if none is found."""
    distances: Distances = distances_of(room)
    numbers = distances.between(*length)
    for _ in range(_STARTS if len(numbers) else 0):
        start = distances.position_of(int(numbers[int(rng.random() * len(numbers))]))
        if not set(start.boxes) & set(room.targets):
            return start
    return None
