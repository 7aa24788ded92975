"""Demonstrations: an expert plays, with noise; noisy actions are marked and never imitated.

The expert uses only what it has observed, so that a policy which sees the same can imitate it. Noise leads the
demonstrations through states that a learner's own mistakes would lead to.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import numpy as np
import pyarrow as pa

from turncredit.config import DemosConfig
from turncredit.data import tables
from turncredit.data.seeding import generator
from turncredit.data.workers import gathered
from turncredit.envs.protocol import tell
from turncredit.errors import UserError
from turncredit.rollouts.tasks import MOST_TURNS, Games

#: Demonstrations that one process plays at a time.
_BLOCK = 250


def make_demos(games: Games, settings: DemosConfig, *, processes: int = 1) -> pa.Table:
    """`demos.count` demonstrations on the training games, which take turns, as a `demos` table.

    Each demonstration has a generator of its own, so the number of `processes` changes nothing.
    """
    starts = range(0, settings.count, _BLOCK)

    def played(process: int) -> Iterator[tuple[int, pa.Table]]:
        for start in starts[process::processes]:
            yield start, _block(games, range(start, min(start + _BLOCK, settings.count)), settings)

    blocks = dict(played(0) if processes == 1 else gathered(played, processes))
    return pa.concat_tables([blocks[start] for start in starts]).combine_chunks()


def _block(games: Games, numbers: Iterable[int], settings: DemosConfig) -> pa.Table:
    """The turns of the demonstrations with these numbers."""
    rows: list[dict] = []
    for number in numbers:
        task = games.rows[number % len(games)]
        turns = _demonstrate(games, task, generator(settings.seed, "demos", number), settings)
        for turn in turns:
            turn.update(
                group_id=task["task_id"],
                rollout_id=f"demo{number:06d}",
                task_id=task["task_id"],
                family=task["family"],
                goal=task["goal"],
                success=turns[-1]["success"],
            )
        rows.extend(turns)
    return _table(rows, games.env.expert_columns)


def _table(rows: list[dict], own_columns: Mapping[str, pa.DataType]) -> pa.Table:
    """Rows as a `demos` table, with the expert's own columns after the table's."""
    table = pa.Table.from_pylist(rows, schema=tables.schema("demos"))
    for name, kind in own_columns.items():
        try:
            values = pa.array([row[name] for row in rows], kind)
        except KeyError:
            raise UserError(f"demos: the expert wrote no '{name}'; use None for no value") from None
        except (pa.ArrowInvalid, pa.ArrowTypeError) as error:
            raise UserError(f"demos: the expert's column '{name}' is not {kind} (expert_columns): {error}") from None
        table = table.append_column(name, values)
    return table


def _demonstrate(games: Games, task: dict, rng: np.random.Generator, settings: DemosConfig) -> list[dict]:
    """One demonstration's turns. Where noise or a slip replaces the expert's action, that action is not shown.

    An expert with a plan writes it in columns of its own (`expert_columns` of the environment): `columns()` gives their
    values for the action that it has just chosen.
    """
    env = games.open(task)
    observation = env.reset()
    expert = games.expert(env, rng, skip=bool(rng.random() < settings.skip))
    expert.observe(observation)
    turns = []
    while len(turns) < MOST_TURNS:
        action = chosen = expert.act()
        planned = expert.columns() if games.env.expert_columns else {}  # type: ignore[attr-defined]  # Plans
        chance = rng.random()
        noisy = bool(chance < settings.noise)
        if noisy:
            action = games.random_action(env, rng)
        elif chance < settings.noise + settings.slips:
            action = games.slip(env, rng)
        admissible = list(games.admissible(env))
        step = env.step(action)
        turns.append(
            {
                "turn": len(turns),
                "observation": observation,
                "admissible": admissible,
                "action": action,
                "valid": step.valid,
                "imitate": not noisy,
                "next_observation": step.observation,
                "success": step.success,
                **planned,
            }
        )
        if step.done:
            env.close()
            return turns
        observation = step.observation
        tell(expert, observation, action, chosen)
    raise games.endless(task)
