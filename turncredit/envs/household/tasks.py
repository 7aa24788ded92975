"""Make rows of the tasks table, and open a row as a running environment."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from turncredit.envs.household import generate, real
from turncredit.envs.household.game import Game
from turncredit.envs.household.native import NativeEnv
from turncredit.envs.household.planner import distance
from turncredit.envs.household.profile import PROFILES, TASK_PREFIX, UnsupportedGame, identify
from turncredit.envs.household.settings import Settings
from turncredit.errors import UserError

if TYPE_CHECKING:  # the reference engine is imported only when it is used
    from turncredit.envs.household.textworld import TextworldEnv

NAME = "household"
_GAMES_KEPT = 512
"""Parsed games kept in memory; one takes about 30 KB, 90 KB once its caches have filled."""


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """`count` different tasks of a split, the same for the same seed and settings.

    A larger count only adds tasks at the end. Keys: task_id, env, split, family, goal, source, seed,
    optimal_length, game (a JSON string for generated games, a path relative to the data root for real ones).
    Raises UserError for an unknown, empty or too small split.
    """
    if settings.source == "generated":
        return _generated_tasks(split, count, seed, settings)
    return _real_tasks(split, count, seed, settings)


def _generated_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    rows = []
    seen: set[str] = set()
    for index in range(count):
        content, text = generate.generate(split, index, seed, settings, seen)
        game = _generated_game(text)
        rows.append(_row(f"{split}-{game.goal.family}-{content[:12]}", split, seed, "generated", game, text))
    return rows


def _real_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    root = real.data_root(settings)
    rows: list[dict[str, Any]] = []
    for path in real.shuffled_games(split, seed, settings):
        if len(rows) == count:
            break
        game = load_game(root / path)
        if game.goal.family in settings.families:
            task_id = "/".join(Path(path).parent.parts[1:])
            rows.append(_row(task_id, split, seed, "real", game, path))
    if len(rows) < count:
        raise UserError(
            f"the split '{split}' has {len(rows)} games of the families {', '.join(settings.families)}, not "
            f"{count}; ask for fewer"
        )
    return rows


def _row(task_id: str, split: str, seed: int, source: str, game: Game, text: str) -> dict[str, Any]:
    return {
        "task_id": task_id,
        "env": NAME,
        "split": split,
        "family": game.goal.family,
        "goal": game.task.removeprefix(TASK_PREFIX),
        "source": source,
        "seed": seed,
        "optimal_length": distance(game, game.start),
        "game": text,
    }


def open_task(row: Mapping[str, Any], settings: Settings) -> NativeEnv | TextworldEnv:
    """An environment for a row of the tasks table; rollouts of one task share its parsed game.

    Raises UserError where the game is damaged, missing or of an unknown edition.
    """
    if settings.engine == "textworld":
        from turncredit.envs.household import textworld

        return textworld.open_game(_game_file(row, settings), settings)
    if row["source"] == "generated":
        game = _generated_game(row["game"])
    else:
        game = _real_game(str(real.data_root(settings) / row["game"]))
    return NativeEnv(game, settings.horizon, settings.success_reward)


def _game_file(row: Mapping[str, Any], settings: Settings) -> dict[str, Any]:
    """The content of a row's `game.tw-pddl`. Raises UserError."""
    from turncredit.envs.household import textworld

    if row["source"] == "generated":
        return textworld.full_game(read_generated(row["game"]))
    return real.read_game(real.data_root(settings) / row["game"])


def read_generated(text: str) -> dict[str, str]:
    """The parts of a generated game: profile, task, pddl_problem. Raises UserError."""
    try:
        game = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(
            f"a generated game in the tasks table is damaged ({error}); delete the table and run again"
        ) from error
    if not isinstance(game, dict) or set(game) != {"profile", "task", "pddl_problem"}:
        raise UserError("a generated game in the tasks table has unknown keys; delete the table and run again")
    if game["profile"] not in PROFILES:
        raise UnsupportedGame(
            f"a generated game has the unknown profile '{game['profile']}'; delete the table and run again"
        )
    return game


def load_game(path: Path) -> Game:
    """Parse a game.tw-pddl for the native engine. Raises UserError, naming the file."""
    data = real.read_game(path)
    try:
        profile, task = identify(data["pddl_domain"], data["grammar"])
        return Game(profile, task, data["pddl_problem"])
    except UnsupportedGame as error:
        raise UnsupportedGame(f"{path}: {error}") from error


@lru_cache(maxsize=_GAMES_KEPT)
def _generated_game(text: str) -> Game:
    game = read_generated(text)
    return Game(PROFILES[game["profile"]], game["task"], game["pddl_problem"])


@lru_cache(maxsize=_GAMES_KEPT)
def _real_game(path: str) -> Game:
    return load_game(Path(path))


def export_game(row: Mapping[str, Any], folder: Path) -> Path:
    """Write a generated game as `<folder>/<task_id>/trial_generated/game.tw-pddl` for any ALFWorld installation.

    Domain and grammar are those inside the installed alfworld package. Returns the file's path. Raises
    UserError for a real game and where the package is missing.
    """
    from turncredit.envs.household import textworld

    if row["source"] != "generated":
        raise UserError(f"{row['task_id']} is a released game; only generated games can be exported")
    path = folder / row["task_id"] / "trial_generated" / "game.tw-pddl"
    text = json.dumps(textworld.full_game(read_generated(row["game"])))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path
