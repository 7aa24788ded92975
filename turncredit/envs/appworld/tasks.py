"""Rows of the tasks table, from AppWorld's own lists, and opening one."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from turncredit.envs.appworld.client import ServerLost, Unsuitable
from turncredit.envs.appworld.servers import root_folder, servers
from turncredit.envs.appworld.settings import Settings
from turncredit.envs.appworld.world import SPARE_SECONDS, AppWorld
from turncredit.errors import UserError

FAMILIES = {1: "easy", 2: "medium", 3: "difficult", None: "unknown"}

#: The split `mgr_train`: the scenarios that MGR trains on (A.5), three tasks each, none of them of difficulty 3.
MGR_SCENARIOS = (
    "07b42fd", "229360a", "27e1026", "287e338", "692c77d", "82e2fac", "aa8502b", "b7a9ee9",
    "c901732", "ccb4494", "ce359b5", "e7a10f8", "e85d92a", "e3d6c94", "d0b1f43", "2a163ab",
    "60d0b5b", "6ea6792", "29caf6f", "cf6abd2", "771d8fc", "7d7fbf6", "76f2c72", "302c169",
)  # fmt: skip

_LINE = re.compile(r"([0-9a-z]+_\d+)(?::\S*)?(?:\s+([123]))?")


def read_tasks(split: str, settings: Settings) -> list[dict[str, Any]]:
    """The tasks of a split with a difficulty of `difficulties`; a server is asked for their instructions.

    Raises UserError for an unknown split, a list that cannot be read, and servers that cannot be asked.
    """
    listed = [(task, difficulty or _difficulty(task, settings)) for task, difficulty in list_tasks(split, settings)]
    unknown = next((task for task, difficulty in listed if difficulty is None), None)
    if unknown and set(settings.difficulties) != {1, 2, 3}:
        raise UserError(
            f"environment 'appworld': the difficulty of task '{unknown}' is not known, so env.appworld.difficulties "
            f"cannot choose; write it after the task in the list ('{unknown} 2'), or set env.appworld.root"
        )
    chosen = [(task, difficulty) for task, difficulty in listed if difficulty in (*settings.difficulties, None)]
    described = _described([task for task, _ in chosen], settings)
    return [
        {"task_id": task, "goal": described[task], "family": FAMILIES[difficulty], "game": task}
        for task, difficulty in chosen
    ]


def list_tasks(split: str, settings: Settings) -> list[tuple[str, int | None]]:
    """The tasks of a split with their difficulties, where the list has them. Raises UserError."""
    if split == "mgr_train":
        return [(f"{scenario}_{number}", None) for scenario in MGR_SCENARIOS for number in (1, 2, 3)]
    folder, root = settings.task_lists, root_folder(settings)
    if folder is None and root is None:
        raise UserError(
            f"environment 'appworld': where is the list of the split '{split}'? set env.appworld.root (or "
            "$APPWORLD_ROOT) to AppWorld's root folder, or env.appworld.task_lists to a folder of lists"
        )
    lists = Path(folder).expanduser() if folder is not None else Path(str(root), "data", "datasets")
    path = lists / f"{split}.txt"
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except UnicodeDecodeError:
        raise UserError(f"{path}: not a UTF-8 text file, so it has no tasks; check the path") from None
    except OSError as error:
        splits = ", ".join(sorted(other.stem for other in lists.glob("*.txt"))) or "none"
        raise UserError(f"{path}: {error.strerror}; splits with a list there: {splits}, and mgr_train") from None
    out = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise UserError(f"{path}:{number}: '{line.strip()[:60]}' is not a task's id, such as 82e2fac_1")
        out.append((match[1], int(match[2]) if match[2] else None))
    return out


def _difficulty(task: str, settings: Settings) -> int | None:
    """The difficulty in AppWorld's data; None where it is missing."""
    root = root_folder(settings)
    if root is None:
        return None
    try:
        metadata = json.loads(
            (root / "data" / "tasks" / task / "ground_truth" / "metadata.json").read_text(encoding="utf-8")
        )
    except (OSError, ValueError):
        return None
    return metadata.get("difficulty") if metadata.get("difficulty") in (1, 2, 3) else None


def _described(tasks: list[str], settings: Settings) -> dict[str, str]:
    """The instructions of tasks."""
    if not tasks:
        return {}
    pool = servers(settings)
    server = pool.lend()
    try:
        return {task: server.task(task, SPARE_SECONDS)["instruction"] for task in tasks}
    except (ServerLost, Unsuitable) as error:
        raise UserError(f"environment 'appworld': {error}; do its data have the task?") from None
    finally:
        pool.give_back(server)


def open_task(row: Mapping[str, Any], settings: Settings) -> AppWorld:
    """A fresh rollout of a task; it takes a server when it is reset."""
    return AppWorld(row["game"], settings, servers(settings))
