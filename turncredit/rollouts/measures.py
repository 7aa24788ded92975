"""Progress and distance of every turn, by replaying recorded actions in the environment.

They are computed when something first needs them, without sampling the rollouts again. The environment's steps must be
deterministic; every step is compared with the recorded one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.data import tables
from turncredit.data.progress import progress
from turncredit.data.turns import CONTEXT_FULL, Turns
from turncredit.envs.protocol import Step
from turncredit.errors import UserError
from turncredit.rollouts.tasks import Games

#: the columns of the turns that are read
COLUMNS = (*tables.KEYS, "task_id", "observation", "action", "next_observation", "reward", "done")
#: read where they are there
OPTIONAL = (CONTEXT_FULL,)


def measure(games: Games, turns: pa.Table, *, slots: int, where: str = "turns") -> pa.Table:
    """A `measures` table of these turns, in their order; a measure that the environment lacks is null.

    `turns` has `COLUMNS`, and `OPTIONAL` if any rollout has them. `slots` rollouts are replayed side by side, so that
    the steps of an asynchronous environment run concurrently.

    Raises UserError for a rollout of an unknown game, and for a step that is not the recorded one.
    """
    view = Turns(turns.select([*COLUMNS, *(name for name in OPTIONAL if name in turns.column_names)]), where=where)
    replay = _Replay(games, view)
    for first in range(0, view.rollouts, slots):
        replay.block(range(first, min(first + slots, view.rollouts)))
    columns = {name: view.restore(x_N) for name, x_N in replay.measured.items()}
    schema = tables.schema("measures")
    keys = [turns.column(key) for key in tables.KEYS]
    measured = [pa.array(columns[name] if name in columns else [None] * view.n) for name in tables.MEASURED]
    return pa.table([*keys, *measured], names=schema.names).cast(schema)


class _Replay:
    """The recorded columns (N) in the order of `view`, and what is measured beside them."""

    def __init__(self, games: Games, view: Turns):
        self.games, self.view = games, view
        self.names = [name for name in tables.MEASURES if games.can(name)]
        read = {name: view.column(name, "a replay") for name in COLUMNS[3:]}
        self.task_N, self.observation_N, self.action_N, self.next_N, self.reward_N, self.done_N = read.values()
        if view.has(CONTEXT_FULL):
            self.done_N = self.done_N & ~view.truths(CONTEXT_FULL, "a replay")
        kinds = {"progress": np.float64, "distance": np.int32}
        self.measured = {
            column: np.zeros(view.n, kinds[name]) for name in self.names for column in tables.MEASURES[name]
        }

    def block(self, rollouts: Sequence[int]) -> None:
        """Replay some rollouts side by side, and fill in what is measured of their turns."""
        view, games = self.view, self.games
        running: list[Any] = []
        try:
            for rollout in rollouts:
                running.append(games.open(self._task(rollout)))
            row_M = view.first_R[list(rollouts)]
            for row, observation in zip(row_M, games.each(running, "reset"), strict=True):
                if observation != self.observation_N[row]:
                    self._differs(row, "the first observation")
            self._look(running, row_M, 0)
            while running:
                steps = games.each(running, "step", [self.action_N[row] for row in row_M])
                for row, step in zip(row_M, steps, strict=True):
                    self._compare(row, step)
                self._look(running, row_M, 1)
                goes_on_M = row_M < view.last_R[view.rollout_N[row_M]]
                ended = [env for env, goes_on in zip(running, goes_on_M, strict=True) if not goes_on]
                running = [env for env, goes_on in zip(running, goes_on_M, strict=True) if goes_on]
                for env in ended:
                    env.close()
                row_M = row_M[goes_on_M] + 1
                for before, after in (tables.MEASURES[name] for name in self.names):
                    self.measured[before][row_M] = self.measured[after][row_M - 1]
                progress(rollouts[-1] + 1 - len(running), view.rollouts)
        finally:
            games.close_each(running)

    def _task(self, rollout: int) -> dict[str, Any]:
        task_id = self.task_N[self.view.first_R[rollout]]
        return self.games.of_rollout(task_id, f"{self.view.where}: {self.view.rollout_name(rollout)}")

    def _look(self, running: Sequence[Any], row_M: np.ndarray, after: int) -> None:
        """Measure the states before (0) or after (1) these turns."""
        for name in self.names:
            self.measured[tables.MEASURES[name][after]][row_M] = self.games.each(running, name)

    def _compare(self, row: int, step: Step) -> None:
        """Raise UserError for a step that is not the recorded one."""
        for what, replayed, recorded in (
            ("observation", step.observation, self.next_N[row]),
            ("reward", step.reward, self.reward_N[row]),
            ("end", step.done, self.done_N[row]),
        ):
            if replayed != recorded:
                self._differs(row, f"the {what}")

    def _differs(self, row: int, what: str) -> None:
        names = " and ".join(self.names)
        raise UserError(
            f"environment '{self.games.env.name}': {self.view.row_name(int(row))}: {what} differs when the recorded "
            f"actions are replayed. Its steps are not deterministic, so {names} would have to be recorded while "
            "playing, which is not supported: declare deterministic=False and use methods that read neither, no audit"
        )
