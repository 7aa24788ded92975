"""Stage `tasks`: the games of one split."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Literal

import pyarrow as pa

from turncredit import envs, tables
from turncredit.config import Experiment
from turncredit.envs.environment import Environment
from turncredit.errors import UserError


def make_tasks(*, experiment: Experiment, split: Literal["train", "eval"], out: str | Path) -> dict[str, float]:
    """Write the games of `split`. Returns how many there are, and of each family."""
    settings = experiment.tasks
    env = envs.load(experiment.env.name)
    count = settings.train if split == "train" else settings.eval
    name = settings.train_split if split == "train" else settings.eval_split
    rows = env.make_tasks(name, count, settings.seed, env.Settings.model_validate(experiment.env.settings))
    if len(rows) < count:
        raise UserError(
            f"tasks.{split} asks for {count} games, but the split '{name}' has only {len(rows)}; lower tasks.{split}"
        )
    made_by = tables.provenance(
        "tasks",
        config={"env": experiment.env.model_dump(), "split": name, "count": count},
        seed=settings.seed,
    )
    table = pa.Table.from_pylist(rows, schema=tables.schema("tasks"))
    tables.write(table, out, "tasks", made_by)
    families = Counter(row["family"] for row in rows)
    return {"games": float(len(rows)), **{f"games_{family}": float(n) for family, n in sorted(families.items())}}


class Games:
    """The games of a tasks table, opened on demand."""

    def __init__(self, experiment: Experiment, path: str | Path):
        self._env = envs.load(experiment.env.name)
        self._settings = self._env.Settings.model_validate(experiment.env.settings)
        self.rows = tables.read(path, "tasks").to_pylist()
        if not self.rows:
            raise UserError(f"{path}: no games in this table; make it again with tasks.train and tasks.eval above 0")

    def __len__(self) -> int:
        return len(self.rows)

    def open(self, row: dict):
        """A fresh episode of a game."""
        return self._env.open_task(row, self._settings)

    @property
    def env(self) -> Environment:
        """The environment."""
        return self._env
