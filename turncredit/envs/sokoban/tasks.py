"""Make rows of the tasks table, and open a row as a rollout."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from functools import lru_cache
from itertools import combinations
from pathlib import Path
from typing import Any

from turncredit.data.seeding import derive_seed
from turncredit.envs.sokoban.files import read_levels, solvable
from turncredit.envs.sokoban.game import Sokoban
from turncredit.envs.sokoban.generate import family_of, generate, part_of
from turncredit.envs.sokoban.level import BadLevel, Level, read
from turncredit.envs.sokoban.planner import distances_of
from turncredit.envs.sokoban.settings import Settings
from turncredit.errors import UserError, nearest

NAME = "sokoban"


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """`count` different levels of a split, the same for the same seed and settings; a larger count only adds tasks.

    Raises UserError for an unknown or too small split, and for levels of a file that cannot be played.
    """
    if settings.levels:
        return _from_files(split, count, seed, settings)
    seen: set[str] = set()
    rows = []
    for index in range(count):
        content, family, level = generate(split, index, seed, settings, seen)
        length = distances_of(level.room).distance(level.start)
        rows.append(_row(f"{split}-{content[:16]}", split, seed, "generated", family, level, length))
    return rows


def _from_files(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    numbered = file_levels(split, settings)
    random.Random(derive_seed(seed, NAME, split)).shuffle(numbered)
    path = settings.levels[split]
    if len(numbered) < count:
        raise UserError(
            f"the split '{split}' of the levels in {path} has {len(numbered)} levels, not {count}; ask for fewer"
        )
    rows = []
    for number, level in numbered[:count]:
        where = f"{path}: level {number}"
        length = solvable(level, where)
        if length > settings.horizon:
            raise UserError(
                f"{where}: its optimal plan takes {length} actions, which do not fit into env.sokoban.horizon "
                f"({settings.horizon}); raise it or leave the level out"
            )
        height, width = len(level.room.draw(level.start)), len(level.room.draw(level.start)[0])
        family = family_of(len(level.start.boxes), height, width)
        rows.append(_row(f"{split}-{number}", split, seed, "files", family, level, length))
    return rows


def file_levels(split: str, settings: Settings) -> list[tuple[int, Level]]:
    """The levels of a split with their numbers in its file; of levels that are equal but for their orientation one.

    Raises UserError.
    """
    if split not in settings.levels:
        raise UserError(
            f"unknown split '{split}' of levels from files{nearest(split, settings.levels)}; env.sokoban.levels has "
            f"{', '.join(settings.levels)}"
        )
    check_files(settings)
    path = _path(settings.levels[split])
    sharing = sorted(name for name, other in settings.levels.items() if _path(other) == path)
    mine = sharing.index(split)
    different: dict[str, tuple[int, Level]] = {}
    for number, level in enumerate(read_levels(path), start=1):
        if part_of(level.room, len(sharing)) == mine:
            different.setdefault(level.room.digest_of(level.start), (number, level))
    return list(different.values())


def check_files(settings: Settings) -> None:
    """Raise UserError, one line, where a file of levels is damaged, or the files of two splits share a room.

    A file that is not there is left to the stage that reads it.
    """
    there = {path: read_levels(path) for path in dict.fromkeys(map(_path, settings.levels.values())) if path.is_file()}
    for one, other in combinations(there, 2):
        rooms = {level.room.digest: number for number, level in enumerate(there[one], start=1)}
        for number, level in enumerate(there[other], start=1):
            if level.room.digest in rooms:
                raise UserError(
                    f"env.sokoban.levels: level {rooms[level.room.digest]} of {one} and level {number} of {other} are "
                    "in the same room, perhaps turned or reflected; take one out, or name one file for both splits, "
                    "which is then divided"
                )


def _path(text: str) -> Path:
    return Path(text).expanduser().resolve()


def _row(task_id: str, split: str, seed: int, source: str, family: str, level: Level, length: int) -> dict[str, Any]:
    boxes = len(level.start.boxes)
    return {
        "task_id": task_id,
        "env": NAME,
        "split": split,
        "family": family,
        "goal": "push the box onto the target." if boxes == 1 else f"push the {boxes} boxes onto the {boxes} targets.",
        "source": source,
        "seed": seed,
        "optimal_length": length,
        "game": json.dumps({"rows": level.room.draw(level.start)}),
    }


def task_key(row: Mapping[str, Any]) -> str:
    """The same for levels that are equal after moving, turning or reflecting one of them."""
    level = _level(row["game"])
    return level.room.digest_of(level.start)


def open_task(row: Mapping[str, Any], settings: Settings) -> Sokoban:
    """A fresh rollout of a task. Raises UserError for a damaged row."""
    return Sokoban(_level(row["game"]), settings)


@lru_cache(maxsize=4096)
def _level(game: str) -> Level:
    try:
        rows: Sequence[str] = json.loads(game)["rows"]
        return read(rows)
    except (ValueError, KeyError, TypeError, BadLevel) as error:
        raise UserError(
            f"a Sokoban level in the tasks table is damaged ({type(error).__name__}: {error}); delete the table and "
            "run again"
        ) from None
