"""ALFWorld's released games, as `alfworld-download` lays them out."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path
from typing import Any

from turncredit.data.seeding import derive_seed
from turncredit.envs.household.profile import identify
from turncredit.envs.household.settings import Settings
from turncredit.errors import UserError, nearest

SPLITS = ("train", "valid_seen", "valid_unseen", "valid_train")
RELEASE = "json_2.1.1"
#: How to get the games, into ~/.cache/alfworld unless $ALFWORLD_DATA says otherwise.
FETCH = (
    "fetch the games with `alfworld-download`, a program of the package alfworld (`pip install alfworld`, best in an "
    "environment of its own)"
)
_LEFT_OUT = ("movable", "Sliced")
"""Task folders that ALFWorld itself leaves out of the six families."""


def data_root(settings: Settings) -> Path:
    """The folder that holds `json_2.1.1/`, from the settings or $ALFWORLD_DATA. Raises UserError."""
    named = settings.data_root or os.environ.get("ALFWORLD_DATA")
    if not named:
        raise UserError(
            f"real household games need a folder: {FETCH}, and set env.household.data_root or the environment variable "
            "ALFWORLD_DATA to the folder that it makes (~/.cache/alfworld). Generated games need no files: --config "
            "'env={household: {source: generated}}'"
        )
    root = Path(named).expanduser()
    if not (root / RELEASE).is_dir():
        raise UserError(f"no folder {root / RELEASE}: {FETCH}, or correct env.household.data_root or ALFWORLD_DATA")
    return root


def check_data(settings: Settings) -> str | None:
    """A line about the released games, if they are chosen. Raises UserError where they are not here or unknown."""
    if settings.source != "real":
        return None
    found = (f"games of the edition {name} ({', '.join(splits)})" for name, splits in editions(settings).items())
    return "; ".join(found)


def editions(settings: Settings) -> dict[str, list[str]]:
    """The edition of the games in each split's folder (`profile.PROFILES`), by its first game. Raises UserError."""
    root, found = data_root(settings), {}
    for split in SPLITS:
        first = next(iter(sorted((root / RELEASE / split).glob("*/*/game.tw-pddl"))), None)
        if first is not None:
            game = read_game(first)
            found.setdefault(identify(game["pddl_domain"], game["grammar"])[0].name, []).append(split)
    return found


def find_games(split: str, settings: Settings) -> list[str]:
    """The split's game files relative to the data root, sorted. Raises UserError for a bad or empty split."""
    root = data_root(settings)
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of real household games{nearest(split, SPLITS)}; choose "
            f"one of {', '.join(SPLITS)}"
        )
    folder = root / RELEASE / split
    paths = sorted(
        path.relative_to(root).as_posix()
        for path in folder.glob("*/*/game.tw-pddl")
        if not any(word in path.parent.parent.name for word in _LEFT_OUT)
    )
    if not paths:
        raise UserError(
            f"the split '{split}' is empty: no {folder}/<task>/<trial>/game.tw-pddl; fetch the games with "
            "`alfworld-download` (its default fetches the game files, too)"
        )
    return paths


def shuffled_games(split: str, seed: int, settings: Settings) -> list[str]:
    """`find_games` in an order that depends on the seed and the split alone."""
    games = find_games(split, settings)
    random.Random(derive_seed(seed, "household", "real", split)).shuffle(games)
    return games


def read_game(path: Path) -> dict[str, Any]:
    """A game file's JSON. Raises UserError where it is missing, truncated or something else."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read the game {path}: {error.strerror}") from error
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"the game {path} is damaged ({error}); fetch it again") from error
    if not isinstance(data, dict):
        raise UserError(f"the file {path} is not a game.tw-pddl: a JSON object is expected")
    missing = [key for key in ("pddl_domain", "grammar", "pddl_problem") if not isinstance(data.get(key), str)]
    if missing:
        raise UserError(f"the game {path} lacks {', '.join(missing)} (texts); is it an ALFWorld game.tw-pddl?")
    return data
