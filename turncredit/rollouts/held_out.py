"""Whether evaluation is on games that training has not seen: none of them has a training game's instruction and layout.

Demonstrations and rollouts are of the training games, so the tables of the two splits say all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from turncredit.data import tables
from turncredit.envs.environment import Environment


def task_key(environment: Environment, row: Mapping[str, Any]) -> str:
    """A text that two rows share if their games have the same instruction and layout (`Environment.task_key`).

    By default the goal, the game and the environment's own columns; where there is neither a game nor such a column,
    the layout can only come from the task's id.
    """
    if environment.task_key is not None:
        return environment.task_key(row)
    own = {name: row[name] for name in row.keys() - set(tables.schema("tasks").names)}
    layout = [row["game"], own] if row["game"] or own else row["task_id"]
    return json.dumps([row["goal"], layout], sort_keys=True, default=str)


def shared_games(
    environment: Environment, train: Iterable[Mapping[str, Any]], evaluated: Iterable[Mapping[str, Any]]
) -> list[tuple[str, str]]:
    """The evaluated games that are training games, too: the ids of each and of such a training game."""
    known = {task_key(environment, row): str(row["task_id"]) for row in train}
    keyed = ((str(row["task_id"]), task_key(environment, row)) for row in evaluated)
    return [(name, known[key]) for name, key in keyed if key in known]
