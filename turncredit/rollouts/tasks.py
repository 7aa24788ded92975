"""The games of an environment: made or taken as a table, opened on demand."""

from __future__ import annotations

import pyarrow as pa

from turncredit import envs, tables
from turncredit.config import EnvConfig
from turncredit.envs.environment import Environment
from turncredit.errors import UserError


def make_tasks(config: EnvConfig, split: str, count: int, seed: int, *, key: str) -> pa.Table:
    """`count` games of the environment's split, as a `tasks` table.

    Raises UserError, naming the configuration's `key`, for a split that has fewer.
    """
    env = envs.load(config.name)
    rows = env.make_tasks(split, count, seed, env.Settings.model_validate(config.settings))
    if len(rows) < count:
        raise UserError(f"{key} asks for {count} games, but the split '{split}' has only {len(rows)}; lower {key}")
    return pa.Table.from_pylist(rows, schema=tables.schema("tasks"))


class Games:
    """The games of a tasks table, opened on demand."""

    def __init__(self, env: EnvConfig, tasks: pa.Table, where: str = "tasks"):
        self._env = envs.load(env.name)
        self._settings = self._env.Settings.model_validate(env.settings)
        self.rows = tasks.to_pylist()
        if not self.rows:
            raise UserError(f"{where}: no games in this table; make it again with tasks.train and tasks.eval above 0")

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, row: dict):
        """A fresh episode of a game."""
        return self._env.open_task(row, self._settings)

    @property
    def env(self) -> Environment:
        """The environment."""
        return self._env
