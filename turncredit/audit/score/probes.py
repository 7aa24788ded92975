"""What a method reads and depends on, found by changing its input; whatever it declares is not taken on trust."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter

import numpy as np
import pyarrow as pa

from turncredit.audit.score.groups import Groups, draw
from turncredit.audit.score.running import TWO_CREDITS, advantages, advantages_of_table, explained, same
from turncredit.audit.score.worlds import process
from turncredit.credit.parts.compose import Method
from turncredit.data.seeding import generator
from turncredit.data.tables import KEYS
from turncredit.errors import UserError

#: The world whose rollouts are changed: lengths vary, actions are refused, observations repeat, measures are there.
WORLD = "refused"
#: Groups and rollouts of a group in the table that is changed.
GROUPS, SIZE = 32, 8
#: The table whose time is measured.
TIMED = (128, 50)
#: The columns whose wording is changed.
TEXTS = ("observation", "action", "next_observation", "goal", "subgoal")


@dataclass(frozen=True)
class Traits:
    """What a method's credit depends on.

    reads           columns that change the credit when they are permuted over the turns
    random          whether another seed gives another credit
    own_group       whether a group's credit stays as it is when half of the groups are taken away
    row_order       whether the credit stays as it is when the rows are permuted
    ids             the same when groups and rollouts are renamed; not asked of a random method
    wording         the same when each text is replaced by another one, equal texts by equal ones
    dead_groups     largest credit in groups whose rollouts have all failed, in deviations of the other groups' credit
    alone           largest credit of rollouts in groups of one; NaN where the method refuses them
    outcome_share   share of the credit's variance that the rollout's group and return explain; 1 says nothing of turns
    turn_share      share of the credit's variance that the turn's number explains, rollouts having one length; A*: 0
    refused         mean credit of refused actions less that of A*, each in its own deviations
    seconds         for 128 rollouts of 50 turns
    """

    reads: tuple[str, ...]
    random: bool
    own_group: bool
    row_order: bool
    ids: bool | None
    wording: bool
    dead_groups: float
    alone: float
    outcome_share: float
    turn_share: float
    refused: float
    seconds: float

    @property
    def enumerable(self) -> bool:
        """Whether the mean over all possible groups, each once, is the method's expectation."""
        return self.own_group and self.row_order and not self.random


def traits(method: Method) -> Traits:
    """The traits of a method. Raises UserError for one that gives the same table two different credits."""
    seconds = _seconds(method)
    groups = draw(process(WORLD), SIZE, GROUPS * SIZE, 0)
    side = {"continuations": groups.continuations(method.continuations, 0)} if method.continuations else {}
    table = groups.table()
    rows_N = np.arange(table.num_rows)

    def run(changed: pa.Table, rows: np.ndarray = rows_N, seed: int = 0) -> np.ndarray:
        return advantages_of_table(
            method, changed, {name: one.take(pa.array(rows)) for name, one in side.items()}, seed
        )

    credit_N = run(table)
    if not same(credit_N, run(table)):
        raise UserError(f"{method.name}: {TWO_CREDITS}")
    is_random = not same(credit_N, run(table, seed=1))
    mixed_N = generator("score probe", "rows").permutation(table.num_rows)
    half_N = np.flatnonzero(groups.group_N < GROUPS // 2)
    spread = credit_N.std() or 1.0
    refused_N = ~table.column("valid").to_numpy()
    truth_N = groups.truth_N
    return Traits(
        reads=tuple(
            name for name in table.column_names if name not in KEYS and _reads(method, table, side, name, credit_N)
        ),
        random=is_random,
        own_group=same(credit_N[half_N], run(table.take(pa.array(half_N)), half_N)),
        row_order=same(credit_N[mixed_N], run(table.take(pa.array(mixed_N)), mixed_N)),
        ids=None if is_random else same(credit_N, _renamed_credit(method, table, side)),
        wording=same(credit_N, run(_reworded(table))),
        dead_groups=_of_failed_groups(run(_failed(table, half_N)), half_N),
        alone=_alone(method),
        outcome_share=_outcome_share(groups, credit_N),
        turn_share=_turn_share(method),
        refused=float((credit_N / spread)[refused_N].mean() - (truth_N / truth_N.std())[refused_N].mean()),
        seconds=seconds,
    )


def _reads(method: Method, table: pa.Table, side: dict[str, pa.Table], name: str, credit_N: np.ndarray) -> bool:
    """Whether the credit changes when the column is permuted over the turns, or the method then refuses the table."""
    order = generator("score probe", "column").permutation(table.num_rows)
    column = table.column(name).take(pa.array(order))
    if column.equals(table.column(name)):
        return False
    changed = table.set_column(table.column_names.index(name), name, column)
    try:
        return not same(credit_N, advantages_of_table(method, changed, side))
    except UserError:
        return True


def _failed(table: pa.Table, rows: np.ndarray) -> pa.Table:
    """The table with these rows' rewards 0, and without their success."""
    for name in ("reward", "success"):
        values = table.column(name).to_numpy().copy()
        values[rows] = 0
        table = table.set_column(table.column_names.index(name), name, pa.array(values))
    return table


def _of_failed_groups(credit_N: np.ndarray, rows: np.ndarray) -> float:
    return float(np.abs(credit_N[rows]).max() / (np.delete(credit_N, rows).std() or 1.0))


def _renamed(table: pa.Table) -> pa.Table:
    """The table with other ids, whose order is another one."""
    for name in ("group_id", "rollout_id"):
        reversed_ids = pa.array([f"x{text[::-1]}" for text in table.column(name).to_pylist()])
        table = table.set_column(table.column_names.index(name), name, reversed_ids)
    return table


def _renamed_credit(method: Method, table: pa.Table, side: dict[str, pa.Table]) -> np.ndarray:
    return advantages_of_table(method, _renamed(table), {name: _renamed(one) for name, one in side.items()})


def _reworded(table: pa.Table) -> pa.Table:
    """The table with each text replaced by a word of its own."""
    for name in TEXTS:
        codes = table.column(name).combine_chunks().dictionary_encode().indices.to_pylist()
        words = pa.array([f"{name}{'abcdefghij'[code % 10]}{code}" for code in codes])
        table = table.set_column(table.column_names.index(name), name, words)
    return table


def _alone(method: Method) -> float:
    try:
        return float(np.abs(advantages(method, draw(process(WORLD), 1, GROUPS, 0))).max())
    except UserError:  # nobody trains on such groups, so this is no reason to refuse the method
        return float("nan")


def _outcome_share(groups: Groups, credit_N: np.ndarray) -> float:
    cell_N = np.unique(np.stack([groups.group_N, groups.return_R[groups.rollout_N]]), axis=1, return_inverse=True)[1]
    return explained(credit_N, cell_N)


def _turn_share(method: Method) -> float:
    groups = draw(process("early"), SIZE, 16 * GROUPS * SIZE, 0)
    return explained(advantages(method, groups), groups.turn_N)


def _seconds(method: Method) -> float:
    """Seconds for 128 rollouts of 50 turns, the better of two."""
    table, side = _long_table(method.continuations)
    times = []
    for _ in range(2):
        start = perf_counter()
        advantages_of_table(method, table, side)
        times.append(perf_counter() - start)
    return min(times)


def _long_table(continuations: int | None) -> tuple[pa.Table, dict[str, pa.Table]]:
    """128 rollouts of 50 turns in groups of 8: rows of the world in any order, paid at the end."""
    rollouts, turns = TIMED
    rng = generator("score probe", "long")
    groups = draw(process(WORLD), SIZE, 2 * rollouts, 0)
    rows = pa.array(rng.integers(len(groups.turn_N), size=rollouts * turns))
    number_N, turn_N = np.divmod(np.arange(rollouts * turns), turns)
    last_N, won_N = turn_N == turns - 1, rng.random(rollouts)[number_N] < 0.5
    columns = {
        "group_id": pa.array([f"g{number // SIZE}" for number in number_N]),
        "rollout_id": pa.array([f"r{number}" for number in number_N]),
        "turn": pa.array(turn_N, pa.int32()),
        "reward": pa.array(np.where(last_N & won_N, 1.0, 0.0)),
        "done": pa.array(last_N),
        "success": pa.array(won_N),
    }
    table = groups.table().take(rows)
    for name, column in columns.items():
        table = table.set_column(table.column_names.index(name), name, column)
    if not continuations:
        return table, {}
    side = table.select(KEYS)
    for name, value in (("continuations", continuations), ("return_sum", 1.0), ("return_square_sum", 1.0)):
        side = side.append_column(name, pa.repeat(pa.scalar(value), table.num_rows))
    return table, {"continuations": side}
