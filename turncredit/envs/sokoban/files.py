"""Levels from files in the common text format (`turncredit.envs.sokoban.level`).

Levels are blocks of rows, with an empty line or any other text between them: titles, authors, comments.
"""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

from turncredit.envs.sokoban.level import FLOOR, SYMBOLS, BadLevel, Level, read
from turncredit.envs.sokoban.planner import DEAD, MOST_POSITIONS, distances_of, positions
from turncredit.errors import UserError


@lru_cache(maxsize=8)
def read_levels(path: Path) -> tuple[Level, ...]:
    """The levels of a file, in its order. Raises UserError, naming the level and its line."""
    if not path.is_file():
        raise UserError(f"{path}: no such file of levels (env.sokoban.levels)")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: not a UTF-8 text file (byte {error.start}): it cannot hold levels") from None
    levels = []
    for first, rows in _blocks(lines):
        where = f"{path}: level {len(levels) + 1} (line {first})"
        try:
            level = read(rows)
        except BadLevel as error:
            raise UserError(f"{where}: {error}") from None
        size = positions(len(level.room.squares), len(level.start.boxes))
        if size > MOST_POSITIONS:
            raise UserError(
                f"{where}: {len(level.start.boxes)} boxes on {len(level.room.squares)} squares have {size:.1e} "
                f"positions, more than the {MOST_POSITIONS:,} whose distances are computed; leave the level out"
            )
        levels.append(level)
    if not levels:
        raise UserError(f"{path}: no levels in this file (env.sokoban.levels); rows begin with #")
    return tuple(levels)


def solvable(level: Level, where: str) -> int:
    """The length of a level's optimal plan. Raises UserError where it has no solution or is solved as it stands."""
    length = distances_of(level.room).distance(level.start)
    if length == DEAD:
        raise UserError(f"{where}: this level has no solution; leave it out")
    if length == 0:
        raise UserError(f"{where}: this level is solved before the first action; leave it out")
    return length


def _blocks(lines: list[str]) -> list[tuple[int, list[str]]]:
    """Rows that follow one another, with the number of their first line."""
    out: list[tuple[int, list[str]]] = []
    inside = False
    for number, line in enumerate(lines, start=1):
        text = line.rstrip()
        is_row = bool(text) and (text.lstrip(FLOOR)[:1] == "#" or not set(text) - set(FLOOR + SYMBOLS))
        if is_row and not inside:
            out.append((number, []))
        if is_row:
            out[-1][1].append(text)
        inside = is_row
    return [(number, rows) for number, rows in out if any("#" in row for row in rows)]
