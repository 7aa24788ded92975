"""`Turns`: any table of turns as sorted NumPy columns, checked once, with statistics over rollouts and groups.

Everything that reads turns by rollout or by group starts here, so that mistakes are always reported in the same way,
and no result depends on the order of the rows: all sums run over the sorted view.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data.columns import as_table, cast, factorise, factorise_runs, lists_in, to_numpy
from turncredit.data.counts import number_of
from turncredit.data.tables import KEYS
from turncredit.errors import NoSideTable, UserError, nearest

#: a recorded log-probability above 0 by no more than this is rounding: of engines with reduced precision, too
ROUNDING = 1e-3
#: of a turn in a tree: the rollout that its rollout forked from, and the turn there; these values where it is no fork
PARENT = {"parent_rollout_id": "", "parent_turn": -1}
#: Marks the last turn of a rollout that ended because the model could read no more, not by the environment. A column
#: only of tables with such rollouts.
CONTEXT_FULL = "context_full"
#: The score of a rollout in an environment that has one beside its rewards. A column only of its evaluations.
TASK_SCORE = "task_score"
#: Returns of a group that differ by less, as a share of the rewards added up, are the same.
SAME_RETURN = 1e-9
#: Who reads a column, in messages, where a method does not give its name.
THIS = "this method"
#: What the thirds of a rollout are called.
THIRDS = ("early", "middle", "late")


def with_forks(turns: pa.Table, forks: pa.Table) -> pa.Table:
    """The turns of a tree: the rollouts', then their forks', each with its parent (`PARENT`); only common columns."""
    names = [name for name in turns.column_names if name in forks.column_names]
    types = (pa.string(), pa.int32())
    roots = [pa.repeat(pa.scalar(no, kind), turns.num_rows) for no, kind in zip(PARENT.values(), types, strict=True)]
    parents = [forks.column(name) for name in PARENT if name in forks.column_names]
    both = pa.concat_tables([turns.select(names), forks.select(names).cast(turns.select(names).schema)])
    if not parents:
        return both
    for name, root, parent in zip(PARENT, roots, parents, strict=True):
        both = both.append_column(name, pa.chunked_array([root, *parent.chunks]))
    return both


def rollout_name(group: str, rollout: str) -> str:
    """GROUP/ROLLOUT, or the rollout's id alone where it already begins so, as in many imported files."""
    return rollout if rollout.startswith(f"{group}/") else f"{group}/{rollout}"


class CellStats(NamedTuple):
    """Statistics of the values in each of C cells. A cell without values has count 0, mean 0 and std 0."""

    count_C: np.ndarray
    mean_C: np.ndarray
    std_C: np.ndarray


def cell_stats(x_M: np.ndarray, cell_M: np.ndarray, cells: int, ddof: int = 1) -> CellStats:
    """Count, mean and standard deviation of `x_M` in each cell, where `cell_M` holds numbers 0..cells-1.

    Deviations are taken from a cell's first value, so that equal values have a deviation of exactly 0: a division by a
    tiny deviation would turn rounding noise into credit.
    """
    count_C = np.bincount(cell_M, minlength=cells)
    first_C = np.zeros(cells)
    first_C[cell_M[::-1]] = x_M[::-1]
    off_M = x_M - first_C[cell_M]
    shift_C = np.bincount(cell_M, off_M, cells) / np.maximum(count_C, 1)
    square_C = np.bincount(cell_M, (off_M - shift_C[cell_M]) ** 2, cells)
    std_C = np.sqrt(square_C / np.maximum(count_C - ddof, 1))
    return CellStats(count_C, first_C + shift_C, std_C)


def same_return(low: Any, high: Any, added: Any) -> Any:
    """Whether returns differ by rounding alone (.1 + .2 and .3), where rewards of total size `added` were summed."""
    return high - low <= SAME_RETURN * added


def thirds(turn_N: Any, length_N: Any) -> Any:
    """The third of its rollout (0, 1 or 2) in which the middle of each turn lies: of seven turns two, three and two."""
    return 3 * (2 * turn_N + 1) // (2 * length_N)


class Turns:
    """Turns sorted by (group, rollout, turn), as arrays; side tables are aligned to them.

    Shapes: `_N` turns, `_R` rollouts, `_G` groups, all in sorted order.

    table      the input as given (Arrow), with the columns of the side table `measures` that it does not have itself
    order_N    the input row at each sorted position
    group_N, rollout_N, turn_N     group number, rollout number and turn of each row
    group_R, first_R, length_R     group number, first row and number of turns of each rollout
    first_G, size_G                first rollout and number of rollouts of each group
    reward_N, return_R             rewards, and their undiscounted sum over each rollout

    Raises UserError, with one line, for missing keys or rewards, duplicate keys, gaps in turn numbers, rewards that are
    not finite, and a rollout found in two groups. An `excerpt` may lack turns; its returns mean nothing.
    """

    def __init__(
        self, table: Any, side: Mapping[str, Any] | None = None, where: str = "turns", *, excerpt: bool = False
    ) -> None:
        self.where = where
        self.table = as_table(table, where)
        self._codes: dict[str, tuple[np.ndarray, pa.Array]] = {}
        if self.table.num_rows == 0:
            raise UserError(f"{where}: the table has no rows")
        for name in (*KEYS, "reward"):
            self._require(name, "every method")
        group_N, self._group_ids = factorise_runs(self._ids("group_id"))
        rollout_N, self._rollout_ids = factorise_runs(self._ids("rollout_id"))
        turn_N = _whole_turns(self.table, where)
        rank_R, group_R = self._place_rollouts(group_N, rollout_N)
        position_N = rank_R[rollout_N] * (int(turn_N.max()) + 1) + turn_N
        sorted_already = bool((np.diff(position_N) > 0).all())
        self.order_N = np.arange(len(position_N)) if sorted_already else np.argsort(position_N, kind="stable")
        self.rollout_N = rank_R[rollout_N[self.order_N]]
        self.turn_N = turn_N[self.order_N]
        self.group_R = group_R
        self.group_N = group_R[self.rollout_N]
        self.length_R = np.bincount(self.rollout_N)
        self.first_R = np.concatenate([[0], np.cumsum(self.length_R)[:-1]])
        self.size_G = np.bincount(self.group_R)
        self.first_G = np.concatenate([[0], np.cumsum(self.size_G)[:-1]])
        self._rollout_of_rank = np.argsort(rank_R)
        self._check_duplicates()
        if not excerpt:
            self._check_turn_numbers()
        self.reward_N = self.numbers("reward", "every method")
        self.side = {name: SideTable(self, part, name) for name, part in (side or {}).items()}
        if "measures" in self.side:
            self._add(self.side["measures"])

    # ------------------------------------------------------------------ sizes and columns

    @property
    def n(self) -> int:
        """Number of turns."""
        return len(self.order_N)

    @property
    def rollouts(self) -> int:
        """Number of rollouts."""
        return len(self.length_R)

    @property
    def groups(self) -> int:
        """Number of groups."""
        return len(self.size_G)

    @cached_property
    def last_R(self) -> np.ndarray:
        """The row of each rollout's last turn."""
        return self.first_R + self.length_R - 1

    @cached_property
    def return_R(self) -> np.ndarray:
        """The undiscounted sum of rewards of each rollout."""
        return self.sum_R(self.reward_N)

    def has(self, name: str) -> bool:
        """Whether the input has this column."""
        return name in self.table.column_names

    def column(self, name: str, method: str = THIS) -> np.ndarray:
        """The column `name` in sorted order, text as objects (`codes` and `texts` are faster). Errors name `method`."""
        self._require(name, method)
        return to_numpy(self.table.column(name))[self.order_N]

    def numbers(self, name: str, method: str = THIS) -> np.ndarray:
        """The column as float64 in sorted order. Raises UserError for values that are not finite numbers."""
        self._require(name, method)
        x_N = to_numpy(cast(self.table.column(name), pa.float64(), self.where, name))[self.order_N]
        bad = np.flatnonzero(~np.isfinite(x_N))
        if len(bad):
            raise UserError(
                f"{self.where}: column '{name}' is {x_N[bad[0]]} at {self.row_name(int(bad[0]))} "
                f"({len(bad)} such values); every {name} must be a finite number"
            )
        return x_N

    def truths(self, name: str, method: str = THIS) -> np.ndarray:
        """The column as booleans in sorted order. Raises UserError for values that are not true or false."""
        self._require(name, method)
        return to_numpy(cast(self.table.column(name), pa.bool_(), self.where, name)).astype(bool)[self.order_N]

    def codes(self, name: str, method: str = THIS) -> np.ndarray:
        """Integer codes 0..n-1 in sorted order, equal where the column's values are equal. Each column has its own."""
        self._require(name, method)
        return self._factorised(name)[0]

    def texts(self, name: str, method: str = THIS) -> tuple[np.ndarray, list[str]]:
        """A text column as codes in sorted order, and the distinct texts, each stored once."""
        self._require(name, method)
        codes, values = self._factorised(name)
        return codes, cast(pa.chunked_array([values]), pa.string(), self.where, name).to_pylist()

    def list_lengths(self, name: str, method: str = THIS) -> np.ndarray:
        """How many items (N) the lists of a column have, in sorted order; a null has none. UserError for no lists."""
        _require(self.table, self.where, name, method, nulls=True)
        lengths = pc.fill_null(pc.list_value_length(lists_in(self.table, name, self.where)), 0)
        return lengths.to_numpy().astype(np.int64)[self.order_N]

    def side_table(self, name: str, method: str = THIS) -> SideTable:
        """The side table `name`. Raises UserError where it was not given."""
        if name not in self.side:
            raise NoSideTable(f"{method} needs the side table '{name}', which was not given (--{name} FILE)", name)
        return self.side[name]

    def restore(self, x_N: np.ndarray) -> np.ndarray:
        """A column in sorted order, returned to the input's row order."""
        out = np.empty_like(x_N)
        out[self.order_N] = x_N
        return out

    def rollout_name(self, rollout: int) -> str:
        """`group 'a', rollout 'b'` for messages."""
        group = self._group_ids[int(self.group_R[rollout])].as_py()
        return f"group {group!r}, rollout {self._rollout_ids[int(self._rollout_of_rank[rollout])].as_py()!r}"

    def row_name(self, row: int) -> str:
        """`group 'a', rollout 'b', turn 3` for messages."""
        return f"{self.rollout_name(int(self.rollout_N[row]))}, turn {int(self.turn_N[row])}"

    def ids_R(self) -> list[tuple[str, str]]:
        """(group id, rollout id) of each rollout, as text."""
        groups, rollouts = self._group_ids.to_pylist(), self._rollout_ids.to_pylist()
        return [
            (str(groups[group]), str(rollouts[rollout]))
            for group, rollout in zip(self.group_R, self._rollout_of_rank, strict=True)
        ]

    # ------------------------------------------------------------------ sums over rollouts and groups

    def sum_R(self, x_N: np.ndarray) -> np.ndarray:
        """Sum over the turns of each rollout."""
        return np.add.reduceat(np.asarray(x_N, dtype=np.float64), self.first_R)

    def mean_R(self, x_N: np.ndarray) -> np.ndarray:
        """Mean over the turns of each rollout."""
        return self.sum_R(x_N) / self.length_R

    def any_R(self, x_N: np.ndarray) -> np.ndarray:
        """Whether any turn of each rollout is true."""
        return np.logical_or.reduceat(np.asarray(x_N, dtype=bool), self.first_R)

    def above_R(self, level: float) -> np.ndarray:
        """Whether each rollout's return is above `level` by more than rounding: .1 + .2 is not above .3."""
        above_R: np.ndarray = self.return_R - level > SAME_RETURN * self.sum_R(np.abs(self.reward_N))
        return above_R

    def sum_G(self, x_R: np.ndarray) -> np.ndarray:
        """Sum over the rollouts of each group."""
        return np.add.reduceat(np.asarray(x_R, dtype=np.float64), self.first_G)

    def stats_G(self, x_R: np.ndarray, ddof: int = 1) -> CellStats:
        """Statistics over the rollouts of each group: each rollout counts once."""
        return cell_stats(x_R, self.group_R, self.groups, ddof)

    def row_stats_G(self, x_N: np.ndarray, ddof: int = 1) -> CellStats:
        """Statistics over the turns of each group: a rollout counts once per turn."""
        return cell_stats(x_N, self.group_N, self.groups, ddof)

    @cached_property
    def dead_G(self) -> np.ndarray:
        """Whether all rollouts of each group have the same return (`same_return`)."""
        low_G = np.minimum.reduceat(self.return_R, self.first_G)
        high_G = np.maximum.reduceat(self.return_R, self.first_G)
        added_G = np.maximum.reduceat(self.sum_R(np.abs(self.reward_N)), self.first_G)
        dead_G: np.ndarray = same_return(low_G, high_G, added_G)
        return dead_G

    def discounted_sum_N(self, x_N: np.ndarray, decay: float | np.ndarray) -> np.ndarray:
        """y_t = x_t + decay_t * y_{t+1} within each rollout (reward-to-go for decay gamma, GAE for gamma * lambda).

        `decay` is a number, or one for each turn.
        """
        out_N = np.array(x_N, dtype=np.float64)
        decay_N = np.broadcast_to(decay, self.n)
        by_length = np.argsort(-self.length_R, kind="stable")
        first_R, length_R = self.first_R[by_length], self.length_R[by_length]
        for turn in range(int(length_R[0]) - 2, -1, -1):
            rows = first_R[: np.searchsorted(-length_R, -(turn + 1))] + turn
            out_N[rows] += decay_N[rows] * out_N[rows + 1]
        return out_N

    def step_return_N(self, gamma: float) -> np.ndarray:
        """Discounted return from each turn on: G_t = r_t + gamma G_{t+1} (GiGPO, Feng et al. 2025, eq. 4)."""
        return self.discounted_sum_N(self.reward_N, gamma)

    def next_N(self, x_N: np.ndarray, last: float | np.ndarray) -> np.ndarray:
        """x_{t+1} within each rollout; `last` (a number, or one for each rollout) after the last turn."""
        out_N = np.empty(self.n, dtype=np.result_type(x_N, np.asarray(last)))
        out_N[:-1] = x_N[1:]
        out_N[self.last_R] = last
        return out_N

    def previous_N(self, x_N: np.ndarray, first: float) -> np.ndarray:
        """x_{t-1} within each rollout; `first` before the first turn."""
        out_N = np.empty(self.n, dtype=np.result_type(x_N, np.asarray(first)))
        out_N[1:] = x_N[:-1]
        out_N[self.first_R] = first
        return out_N

    # ------------------------------------------------------------------ checks

    def _add(self, side: SideTable) -> None:
        """Give the table the columns of a side table that it does not have itself."""
        row_N = pa.array(self.restore(side.row_N))
        for name in side.table.column_names:
            if name not in self.table.column_names:
                self.table = self.table.append_column(name, side.table.column(name).take(row_N))

    def _factorised(self, name: str) -> tuple[np.ndarray, pa.Array]:
        """Codes in sorted order and distinct values of a column; several parts of a method may ask for the same."""
        if name not in self._codes:
            codes, values = factorise(self._single(name))
            self._codes[name] = codes[self.order_N], values
        return self._codes[name]

    def _ids(self, name: str) -> pa.ChunkedArray:
        """A column of ids. Not floating-point numbers: a NaN is not even equal to itself."""
        column = self._single(name)
        if pa.types.is_floating(column.type):
            raise UserError(f"{self.where}: the column '{name}' must hold text or whole numbers, not {column.type}")
        return column

    def _single(self, name: str) -> pa.ChunkedArray:
        """A column whose values can be compared: no lists, structures or maps."""
        column = self.table.column(name)
        if pa.types.is_nested(column.type):
            raise UserError(f"{self.where}: the column '{name}' must hold single values, not {column.type}")
        return column

    def _require(self, name: str, method: str) -> None:
        _require(self.table, self.where, name, method)

    def _place_rollouts(self, group_N: np.ndarray, rollout_N: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The sorted position of each rollout number, and the group at each position."""
        group_of = np.zeros(len(self._rollout_ids), dtype=np.int64)
        group_of[rollout_N] = group_N
        wrong = np.flatnonzero(group_of[rollout_N] != group_N)
        if len(wrong):
            rollout = self._rollout_ids[int(rollout_N[wrong[0]])].as_py()
            groups = sorted(
                str(self._group_ids[int(g)].as_py()) for g in set(group_N[rollout_N == rollout_N[wrong[0]]])
            )
            raise UserError(
                f"{self.where}: rollout {rollout!r} is in more than one group ({', '.join(groups[:3])}); "
                "make rollout_id unique in the table, for example by putting the group's id before it"
            )
        by_group = np.argsort(group_of, kind="stable")
        rank_R = np.empty(len(by_group), dtype=np.int64)
        rank_R[by_group] = np.arange(len(by_group))
        return rank_R, group_of[by_group]

    def _check_duplicates(self) -> None:
        same = np.flatnonzero((np.diff(self.rollout_N) == 0) & (np.diff(self.turn_N) == 0))
        if len(same):
            raise UserError(f"{self.where}: duplicate key: {self.row_name(int(same[0]))} occurs more than once")

    def _check_turn_numbers(self) -> None:
        expected_N = np.arange(self.n) - self.first_R[self.rollout_N]
        gaps = np.flatnonzero(self.turn_N != expected_N)
        if len(gaps):
            row = int(gaps[0])
            raise UserError(
                f"{self.where}: {self.rollout_name(int(self.rollout_N[row]))} has no turn {expected_N[row]} "
                f"(its next one is {self.turn_N[row]}); turns must run 0, 1, 2, ... without gaps"
            )


def _whole_turns(table: pa.Table, where: str) -> np.ndarray:
    """The turn of each row. Raises UserError for one that no rollout has."""
    turn_N = to_numpy(cast(table.column("turn"), pa.int64(), where, "turn"))
    bad = np.flatnonzero((turn_N < 0) | (turn_N >= 2**31))
    if len(bad):
        raise UserError(f"{where}: turn numbers must run 0, 1, 2, ... in each rollout; found turn {turn_N[bad[0]]}")
    return turn_N


def _require(table: pa.Table, where: str, name: str, method: str, *, nulls: bool = False) -> None:
    if name not in table.column_names:
        hint = nearest(name, table.column_names) or f"; it has {' '.join(', '.join(table.column_names).split())}"
        raise UserError(f"{where}: {method} needs the column '{name}', which the table does not have{hint}")
    if (count := table.column(name).null_count) and not nulls:
        hint = "; turncredit import --rewards FILE gives rewards" if name == "reward" else ""
        raise UserError(f"{where}: {method} needs the column '{name}', which has {count} null values{hint}")


def check_logprobs(table: pa.Table, where: str) -> None:
    """Raise UserError, with the turn, for a token whose log-probability is above 0, infinite, NaN or null."""
    column = lists_in(table, "response_logprobs", where)
    counts_N = pc.fill_null(pc.list_value_length(column), 0).to_numpy()
    logprob_L = cast(pc.list_flatten(column), pa.float64(), where, "response_logprobs").to_numpy()
    bad = np.flatnonzero(~(np.isfinite(logprob_L) & (logprob_L <= ROUNDING)))
    if len(bad):
        row = int(np.searchsorted(np.cumsum(counts_N), bad[0], side="right"))
        turn = ", ".join(f"{key} {table.column(key)[row].as_py()!r}" for key in KEYS)
        raise UserError(
            f"{where}: a token's log-probability is {logprob_L[bad[0]]:g} at {turn} ({len(bad)} such tokens); it is a "
            "finite number of at most 0, so the table is damaged; sample these turns again"
        )


class SideTable:
    """A table with the same keys (labels, values, ...), its rows in the order of a `Turns`.

    Rows for turns that the `Turns` does not have are left out. A turn without a row is an error, unless the table may
    be `partial`: `has_N` then says which turns have one, and the others have NaN, or the code -1.
    """

    def __init__(self, turns: Turns, table: Any, name: str, *, partial: bool = False) -> None:
        self.turns, self.name, self.partial = turns, name, partial
        self.table = as_table(table, name)
        for key in KEYS:
            self._require(key, f"the side table '{name}'", nulls=False)

    @cached_property
    def row_N(self) -> np.ndarray:
        """The side table's row of each turn; -1 for a turn without one in a `partial` table.

        Raises UserError for a turn without one in any other table, and for a duplicate key.
        """
        if all(self.table.column(key).equals(self.turns.table.column(key)) for key in KEYS):
            return self.turns.order_N
        return self._match()

    @cached_property
    def has_N(self) -> np.ndarray:
        """Which turns have a row."""
        return self.row_N >= 0

    def has(self, name: str) -> bool:
        """Whether the side table has this column."""
        return name in self.table.column_names

    def column(self, name: str, method: str = THIS, *, nulls: bool = False) -> np.ndarray:
        """The column in the order of the turns; a null is None. With `nulls` false a null is an error."""
        self._require(name, method, nulls=nulls)
        return self._in_order(to_numpy(self.table.column(name)), None)

    def numbers(self, name: str, method: str = THIS, *, nulls: bool = False) -> np.ndarray:
        """The column as float64 in the order of the turns; with `nulls` a null is NaN, otherwise an error."""
        self._require(name, method, nulls=nulls)
        column = cast(self.table.column(name), pa.float64(), self.name, name)
        x_N = self._in_order(to_numpy(column), np.nan)
        allowed_N = np.isfinite(x_N) | ~self.has_N
        if nulls:
            allowed_N |= self._in_order(to_numpy(pc.is_null(column)).astype(bool), True)
        bad = np.flatnonzero(~allowed_N)
        if len(bad):
            where = self.turns.row_name(int(bad[0]))
            raise UserError(f"{self.name}: column '{name}' is {x_N[bad[0]]} at {where}; {method} needs a finite number")
        return x_N

    def texts(self, name: str, method: str = THIS) -> tuple[np.ndarray, list[str | None]]:
        """A text column as codes in the order of the turns, and the distinct texts (None for null)."""
        self._require(name, method, nulls=True)
        column = cast(self.table.column(name), pa.string(), self.name, name)
        codes, values = factorise(column)
        return self._in_order(codes, -1), values.to_pylist()

    def all_null(self, name: str) -> bool:
        """Whether the column exists and is entirely null."""
        return self.has(name) and self.table.column(name).null_count == self.table.num_rows

    def _require(self, name: str, method: str, *, nulls: bool) -> None:
        _require(self.table, self.name, name, method, nulls=nulls)

    def _in_order(self, x_M: np.ndarray, missing: Any) -> np.ndarray:
        """A column of the table in the order of the turns, `missing` where a turn has no row."""
        return np.append(x_M, missing)[self.row_N] if self.partial else x_M[self.row_N]

    def _match(self) -> np.ndarray:
        """The side table's row of each turn, by key; ids are compared as text (a side table has text ids)."""
        turns, mine = self.turns.table, self.table
        code_N, code_M = np.zeros(turns.num_rows, np.int64), np.zeros(mine.num_rows, np.int64)
        for key in ("group_id", "rollout_id"):
            both = pa.chunked_array(
                [
                    *turns.column(key).cast(pa.string()).chunks,
                    *cast(mine.column(key), pa.string(), self.name, key).chunks,
                ]
            )
            codes, values = factorise(both)
            code_N = code_N * len(values) + codes[: turns.num_rows]
            code_M = code_M * len(values) + codes[turns.num_rows :]
        there_turn = _whole_turns(mine, self.name)
        here_turn = to_numpy(turns.column("turn").cast(pa.int64()))
        width = max(int(here_turn.max()), int(there_turn.max(initial=0))) + 1
        wanted_N = (code_N * width + here_turn)[self.turns.order_N]
        have = code_M * width + there_turn
        order = np.argsort(have, kind="stable")
        have = have[order]
        twice = np.flatnonzero(np.diff(have) == 0)
        if len(twice):
            row = int(order[twice[0]])
            key = ", ".join(f"{name} {mine.column(name)[row].as_py()!r}" for name in KEYS)
            raise UserError(f"{self.name}: duplicate key: {key} occurs more than once")
        place_N = np.searchsorted(have, wanted_N)
        match_N = place_N < len(have)
        match_N[match_N] = have[place_N[match_N]] == wanted_N[match_N]
        if not match_N.all() and not self.partial:
            missing = np.flatnonzero(~match_N)
            where = self.turns.row_name(int(missing[0]))
            without = number_of(len(missing), "turn")
            raise UserError(f"{self.name}: no row for {where} ({without} without one); make it for these turns")
        return np.append(order, -1)[np.where(match_N, place_N, -1)]
