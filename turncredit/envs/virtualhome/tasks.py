"""Make rows of the tasks table, and open a row as a rollout."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from turncredit.data.seeding import derive_seed
from turncredit.envs.virtualhome import engine, generate, goals
from turncredit.envs.virtualhome.goals import Goal
from turncredit.envs.virtualhome.home import VirtualHome
from turncredit.envs.virtualhome.real import Program, data_root, recorded
from turncredit.envs.virtualhome.scene import Household
from turncredit.envs.virtualhome.settings import Settings
from turncredit.errors import UserError, nearest

NAME = "virtualhome"
REAL_SPLITS = ("train", "eval")
_EVAL = 5
"""Of the goals of recorded programs, one in so many is for evaluation."""


def check_installed(settings: Settings) -> None:
    """Raise UserError, one line, where the package is missing, or the folder of the recorded programs if chosen."""
    engine.package()
    if settings.source == "real":
        data_root(settings)


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """`count` different tasks of a split, the same for the same seed and settings; a larger count only adds tasks.

    Raises UserError for an unknown or too small split, and where the package is missing.
    """
    engine.package()
    if settings.source == "generated":
        seen: set[str] = set()
        new_tasks = (generate.generate(split, index, seed, settings, seen) for index in range(count))
        return [_row(f"{split}-{name[:16]}", split, seed, family, goal, game) for name, family, goal, game in new_tasks]
    tasks = real_split(split, settings)
    random.Random(derive_seed(seed, NAME, split)).shuffle(tasks)
    if len(tasks) < count:
        raise UserError(f"the split '{split}' of VirtualHome has {len(tasks)} programs, not {count}; ask for fewer")
    return [
        {
            **_row(f"program-{program.number}", split, seed, program.title, goal, _recorded(program, goal)),
            "source": "real",
        }
        for program, goal in tasks[:count]
    ]


def real_split(split: str, settings: Settings) -> list[tuple[Program, Goal]]:
    """The recorded programs of a split with their goals, in the order of their numbers. Raises UserError.

    Programs without a goal are left out. The hash of the goal decides, so that programs of one goal are in one split.
    """
    if split not in REAL_SPLITS:
        raise UserError(
            f"unknown split '{split}' of VirtualHome's programs{nearest(split, REAL_SPLITS)}; there are: "
            f"{', '.join(REAL_SPLITS)}"
        )
    source = recorded(data_root(settings))
    out = []
    for number, program in sorted(source.programs.items()):
        goal = source.goal(number, settings.goals)
        if goal is not None and _held_out(goal) == (split == "eval"):
            out.append((program, goal))
    return out


def _held_out(goal: Goal) -> bool:
    conditions = [(one.name, *(goal.slots[at] for at in one[1:] if at is not None)) for one in goal.conditions]
    text = json.dumps([sorted(conditions), sorted(goal.actions)])
    return int(hashlib.sha256(text.encode()).hexdigest()[:8], 16) % _EVAL == 0


def _row(task_id: str, split: str, seed: int, family: str, goal: Goal, game: str) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "env": NAME,
        "split": split,
        "family": family,
        "goal": goal.text,
        "source": "generated",
        "seed": seed,
        "optimal_length": None,
        "game": game,
    }


def _recorded(program: Program, goal: Goal) -> str:
    return goals.to_text({"program": program.number}, goal)


def task_key(row: Mapping[str, Any]) -> str:
    """Household and sentence of a generated task, whatever the order in which it was drawn; a program's number."""
    game = json.loads(row["game"])
    if "program" in game:
        return str(game["program"])
    return generate.canonical(game["nodes"], game["edges"], row["goal"])


def open_task(row: Mapping[str, Any], settings: Settings) -> VirtualHome:
    """A fresh rollout of a task. Raises UserError for a damaged row, and for a program that is not in the folder."""
    game = row["game"]
    if settings.source == "generated":
        household, goal = _generated(game)
        return VirtualHome(household, goal, settings)
    household, goal, program = _real(game, data_root(settings))
    return VirtualHome(household, goal, settings, program.lines)


@lru_cache(maxsize=512)
def _generated(game: str) -> tuple[Household, Goal]:
    data = generate.read(game)
    seed = derive_seed(NAME, game)
    return Household(data["graph"], seed, hides=True), goals.from_json(data["goal"])


@lru_cache(maxsize=64)
def _real(game: str, root: Path) -> tuple[Household, Goal, Program]:
    try:
        data = json.loads(game)
        number = data["program"]
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(f"a VirtualHome task is damaged ({error}); delete the table and run again") from error
    source = recorded(root)
    if number not in source.programs:
        raise UserError(
            f"the program {number} is not in {root}; env.virtualhome.data_root has changed since the tasks were made: "
            "delete the table and run again"
        )
    program = source.programs[number]
    household = Household(source.graphs(number)[0], derive_seed(NAME, number), numbered=program.nodes, hides=False)
    return household, goals.from_json(data["goal"]), program


def forget() -> None:
    """Give up the households kept in memory."""
    _generated.cache_clear()
    _real.cache_clear()
