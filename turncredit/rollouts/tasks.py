"""The games of an environment: a table, generated or read; each game is opened on demand."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from copy import copy
from functools import cached_property
from itertools import zip_longest
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit import envs
from turncredit.config import EnvSlice
from turncredit.data import tables
from turncredit.data.seeding import derive_seed
from turncredit.envs import guard
from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Expert
from turncredit.envs.replaying import restorable
from turncredit.envs.trials import with_trials
from turncredit.errors import UserError, kind_of

#: Turns of an expert's rollout after which an environment is taken for one that never ends its rollouts.
MOST_TURNS = 1000


def make_tasks(config: EnvSlice, split: str | Sequence[str], count: int, seed: int, *, key: str) -> pa.Table:
    """`count` games of the environment's split, as a `tasks` table; the environment's own columns follow.

    Of several splits the games are taken in turn: the first of each, the second of each, and so on, `count` in all.

    Raises UserError, naming the configuration's `key`, for a split that has fewer, and for an own column whose values
    are not of one type.
    """
    env, schema = envs.load(config.name), tables.schema("tasks")
    settings, splits = env.Settings.model_validate(config.settings), [split] if isinstance(split, str) else split
    of_splits = []
    for number, name in enumerate(splits):
        share = len(range(number, count, len(splits)))
        found = split_rows(env, name, share, seed, settings)
        if len(found) < share:
            asked = f"{count} games" if len(splits) == 1 else f"{count} games, {share} of them of '{name}'"
            raise UserError(f"{key} asks for {asked}, but the split '{name}' has only {len(found)}; lower {key}")
        of_splits.append(found)
    rows = [row for turn in zip_longest(*of_splits) for row in turn if row is not None]
    table = pa.table([_column(env, rows, field.name, field.type) for field in schema], schema=schema)
    for name in dict.fromkeys(name for row in rows for name in row if name not in table.column_names):
        table = table.append_column(name, _column(env, rows, name))
    return table


def _column(
    env: Environment, rows: Sequence[Mapping[str, Any]], name: str, kind: pa.DataType | None = None
) -> pa.Array:
    """A column of the tasks table, of a type if that is given. Raises UserError."""
    try:
        return pa.array([row.get(name) for row in rows], kind)
    except (pa.ArrowException, UnicodeError, OverflowError) as error:
        expected = f"not all {kind}" if kind is not None else "not of one type that a table can have"
        raise UserError(
            f"environment '{env.name}': the tasks' column '{name}' cannot be stored, since its values are {expected}: "
            f"{error}"
        ) from None


def too_long(config: EnvSlice, tasks: pa.Table) -> Counter[str]:
    """The games, by family, of which the shortest plan that is known takes more actions than a rollout has.

    Raises UserError for errors of a third-party environment.
    """
    env = envs.load(config.name)
    horizon = getattr(env.Settings.model_validate(config.settings), "horizon", None)
    found: Counter[str] = Counter()
    if horizon is None:
        return found
    for row in tasks.to_pylist():
        length = row["optimal_length"]
        if length is None and env.plan_length is not None:
            with _naming(env, "plan_length"):
                length = env.plan_length(row)
        found[row["family"]] += length is not None and length > horizon
    return +found


def split_rows(env: Environment, split: str, count: int, seed: int, settings: Any) -> list[dict[str, Any]]:
    """At most `count` rows of a split, complete: from `make_tasks`, or those of `read_tasks` in the seed's order.

    Raises UserError for errors of a third-party environment.
    """
    if envs.is_ours(env) and env.make_tasks is not None:
        return [dict(row) for row in env.make_tasks(split, count, seed, settings)]
    name = "make_tasks" if env.make_tasks is not None else "read_tasks"
    with _naming(env, name):
        if env.make_tasks is not None:
            given = list(env.make_tasks(split, count, seed, settings))
        else:
            assert env.read_tasks is not None
            given = list(env.read_tasks(split, settings))
            random.Random(derive_seed(seed, env.name, split)).shuffle(given)
    return _completed(given[:count], env, name, split, seed)


@contextmanager
def _naming(env: Environment, name: str) -> Iterator[None]:
    """Raise UserError, naming the function, for any other error of third-party code."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise kind_of(error)(f"environment '{env.name}': {name}() raised {type(error).__name__}: {error}") from error


def _completed(given: Sequence[Any], env: Environment, name: str, split: str, seed: int) -> list[dict[str, Any]]:
    """Rows with all columns of the table. Raises UserError for a row without `task_id` and `goal`."""
    rows: list[dict[str, Any]] = []
    source = "generated" if name == "make_tasks" else "files"
    seen: set[str] = set()
    for number, row in enumerate(given):
        for key in ("task_id", "goal"):
            if not isinstance(row, Mapping) or not isinstance(row.get(key), str):
                raise UserError(f"environment '{env.name}': {name}() gave row {number} without a text '{key}': {row!r}")
        if row["task_id"] in seen:
            raise UserError(f"environment '{env.name}': {name}() gave the task_id '{row['task_id']}' twice")
        seen.add(row["task_id"])
        common = {"family": env.name, "source": source, "seed": seed, "optimal_length": None, "game": ""}
        rows.append({**common, **row, "env": env.name, "split": split})
    return rows


class Games:
    """The games of a tasks table, opened on demand. Third-party environments are guarded (`envs.guard`).

    `timeout` is the time limit in seconds for a call of one that is guarded; None: no limit.
    """

    def __init__(self, env: EnvSlice, tasks: pa.Table, where: str = "tasks", *, timeout: float | None = None):
        loaded = envs.load(env.name)
        self.env: Environment = restorable(loaded).with_settings(env.settings)
        self._settings = self.env.Settings.model_validate(env.settings)
        trusted = envs.is_ours(loaded) and not loaded.guarded
        # Coroutines need the guard's loop, even of an environment that is trusted.
        self._ours = trusted and not loaded.concurrent
        self._timeout = None if trusted else timeout
        self.rows = tasks.to_pylist()
        if not self.rows:
            raise UserError(f"{where}: no games in this table; set tasks.train and tasks.eval above 0 and run again")

    def __len__(self) -> int:
        return len(self.rows)

    @property
    def success_reward(self) -> float:
        """The reward of a success: the environment's setting of this name, or 1, which is the protocol's."""
        return float(getattr(self._settings, "success_reward", 1.0))

    def with_trials(self, trials: int) -> Games:
        """The same games with at most this many trials in a rollout (`turncredit.envs.trials`)."""
        if trials == 1:
            return self
        other = copy(self)
        other.env = with_trials(self.env, trials)
        return other

    @cached_property
    def _by_id(self) -> dict[str, dict[str, Any]]:
        return {row["task_id"]: row for row in self.rows}

    def endless(self, task: Mapping[str, Any]) -> UserError:
        """The error of a rollout that is not over after `MOST_TURNS` turns."""
        return UserError(
            f"environment '{self.env.name}': the rollout of task '{task['task_id']}' is not done after {MOST_TURNS:,} "
            "turns; an environment ends its rollouts itself: give it a horizon"
        )

    def of_rollout(self, task_id: str, where: str) -> dict[str, Any]:
        """The row of a recorded rollout's game. Raises UserError, naming the rollout `where`, for an unknown one."""
        if task_id not in self._by_id:
            raise UserError(f"{where} is of the game '{task_id}', which is not in the tasks table")
        return self._by_id[task_id]

    def can(self, capability: str) -> bool:
        """Whether the environment has the capability (a name of `turncredit.envs.protocol.CAPABILITIES`)."""
        return capability in self.env.capabilities

    def open(self, row: Mapping[str, Any]) -> Any:
        """A fresh rollout of a game; its methods are synchronous, even if the environment's are coroutines."""
        if self._ours:
            return self.env.open_task(row, self._settings)  # type: ignore[misc]
        return guard.open_guarded(self.env, row, self._settings, self._timeout)

    def admissible(self, env: Any) -> Sequence[str]:
        """The actions that are allowed now; none if the environment cannot list them."""
        return env.admissible() if self.can("admissible") else ()

    def each(
        self, running: Sequence[Any], method: str, *arguments: Sequence[Any], keep_faults: bool = False
    ) -> list[Any]:
        """The result of a method of each, such as `step` with an action for each; coroutines run concurrently.

        With `keep_faults`, an OutsideFault of a guarded environment is in the place of its result.
        """
        if not self._ours:
            return guard.call_each(running, method, *arguments, keep_faults=keep_faults)
        if method == "step" and self.env.before_steps is not None:
            self.env.before_steps(running, *arguments)
        return [getattr(env, method)(*given) for env, *given in zip(running, *arguments, strict=True)]

    @property
    def steps_together(self) -> bool:
        """Whether the steps of all rollouts at a time cost about as much as one, such as a request to a server."""
        return self._ours and self.env.before_steps is not None

    def start(self, running: Sequence[Any], method: str, *arguments: Sequence[Any]) -> list[Future[Any]]:
        """As `each`, without waiting: a future for each. Built-in environments are called at once."""
        if not self._ours:
            rows = zip(*arguments, strict=True) if arguments else ((),) * len(running)
            return [guard.start(env, method, *row) for env, row in zip(running, rows, strict=True)]
        futures: list[Future[Any]] = [Future() for _ in running]
        for future, result in zip(futures, self.each(running, method, *arguments), strict=True):
            future.set_result(result)
        return futures

    def ended(self, futures: Collection[Future[Any]], *, until_one: bool) -> set[Future[Any]]:
        """The futures of `start` that are done; `until_one`: waits for at least one."""
        return set(futures) if self._ours else guard.ended(futures, self._timeout, until_one=until_one)

    def score(self, env: Any) -> float | None:
        """The score of a rollout that has ended (`turncredit.envs.protocol.Scored`); None without one."""
        return env.task_score() if self._ours and hasattr(env, "task_score") else None

    def close_each(self, running: Sequence[Any]) -> None:
        """Release abandoned environments. Their errors are ignored: the original error is reported."""
        for env in running:
            with suppress(Exception):
                env.close()

    def expert(self, env: Any, rng: np.random.Generator, skip: bool) -> Expert:
        """The environment's expert at a rollout; `skip` is dropped if it cannot forget a step."""
        expert = self._described("expert", env, rng, **({"skip": skip} if self.env.takes_skip() else {}))
        return expert if self._ours else guard.GuardedExpert(expert, env)

    def random_action(self, env: Any, rng: np.random.Generator) -> str:
        """A random action, for noise."""
        if self.env.random_command is None:
            return self.env.random_action(env, rng)
        return self._described("random_command", env, rng)

    def slip(self, env: Any, rng: np.random.Generator) -> str:
        """An admissible action that an agent might take by mistake."""
        if self.env.slip_command is None:
            return self.env.slip(env, rng)
        return self._described("slip_command", env, rng)

    def _described(self, function: str, env: Any, rng: np.random.Generator, **named: Any) -> Any:
        """The result of a function of the environment's description for this rollout."""
        if self._ours:
            return getattr(self.env, function)(env, rng, **named)
        return guard.call_description(env, function, env.env, rng, **named)
