"""Turns with a known true advantage, and every method's credit for them: three kinds of tables joined by key.

The tables may come from anywhere. They only need the keys and the columns named here; a mistake in one is reported in
one line that names its file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.data import tables
from turncredit.data.columns import cast, factorise
from turncredit.data.tables import KEYS
from turncredit.errors import UserError, nearest
from turncredit.stats.rank_correlation import ranks

#: (group, rollout, turn) as numbers, the same in all tables that were read together
Keys = tuple[np.ndarray, np.ndarray, np.ndarray]
#: the advantage by either half of a turn's continuations, where the branches have them
_HALVES = ("advantage_first_half", "advantage_second_half")


@dataclass(frozen=True)
class Scored:
    """N turns with ground truth, sorted by group, rollout and turn; groups and rollouts are numbered from 0 (N each).

    truth_N, se_N        the estimate of the true advantage and its standard error, in units of return
    turn_N, length_N     the turn, and how many turns its rollout has
    success_N            whether its rollout succeeded
    scale                largest minus smallest return of the rollouts: the unit of a small effect
    labels               further columns as codes (N,), -1 where unknown, with the texts they stand for: family, action
                         (valid or invalid), role
    groups, rollouts     how many there are
    v_N, q_N             value before and after the action with their errors (N, 2), if the branches have them
    after_N              value of the state after the action: q without the turn's reward, if the turns have rewards
    halves_N2            the advantage by either half of the continuations, if the branches have them
    """

    group_N: np.ndarray
    rollout_N: np.ndarray
    turn_N: np.ndarray
    length_N: np.ndarray
    success_N: np.ndarray
    truth_N: np.ndarray
    se_N: np.ndarray
    scale: float
    labels: Mapping[str, tuple[np.ndarray, list[str]]]
    groups: int
    rollouts: int
    v_N: np.ndarray | None = None
    q_N: np.ndarray | None = None
    after_N: np.ndarray | None = None
    halves_N2: np.ndarray | None = None
    _ranks: dict[int, tuple[np.ndarray, np.ndarray]] = field(init=False, default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.truth_N)

    def ranks(self, x_N: np.ndarray) -> np.ndarray:
        """`ranks` of a column within its rollouts, cached because several measures use them."""
        if id(x_N) not in self._ranks:  # the column is kept alive next to its ranks, so that its id stays unique
            self._ranks[id(x_N)] = x_N, ranks(x_N, self.rollout_N)
        return self._ranks[id(x_N)][1]

    def follows(self) -> np.ndarray:
        """The rows whose state after the action is the same estimate as the next row's before it.

        Both values are in the branches and equal, with equal errors: the two turns' estimates share that error, with
        opposite signs. Empty without values.
        """
        if self.v_N is None or self.q_N is None:
            return np.zeros(0, dtype=np.int64)
        value_N = self.q_N[:, 0] if self.after_N is None else self.after_N
        return np.flatnonzero(
            (np.diff(self.rollout_N) == 0)
            & (np.diff(self.turn_N) == 1)
            & np.isclose(value_N[:-1], self.v_N[1:, 0], rtol=0, atol=1e-9 * self.scale)
            & (self.q_N[:-1, 1] == self.v_N[1:, 1])
        )

    def in_proportion(self, error_N: np.ndarray) -> np.ndarray:
        """Errors (N) of the value before or after the turn, as they are in the row's own error of the difference.

        Common random numbers make that smaller than the error of two independent estimates. Needs both values' errors.
        """
        assert self.v_N is not None
        assert self.q_N is not None
        apart_N = np.hypot(self.q_N[:, 1], self.v_N[:, 1])
        return np.divide(error_N * self.se_N, apart_N, out=np.zeros(len(self)), where=apart_N > 0)

    def shared_covariance(self) -> tuple[np.ndarray, np.ndarray]:
        """The rows of `follows`, and the covariance (at most 0) of the errors of each and of the row after it."""
        follows = self.follows()
        if self.v_N is None or self.q_N is None:
            return follows, np.zeros(0)
        after_N, before_N = self.in_proportion(self.q_N[:, 1]), self.in_proportion(self.v_N[:, 1])
        return follows, -after_N[follows] * before_N[follows + 1]

    def take(self, keep_N: np.ndarray) -> Scored:
        """A subset of the turns; groups and rollouts keep their numbers and their count."""
        if keep_N.all():
            return self
        columns = ("group_N", "rollout_N", "turn_N", "length_N", "success_N", "truth_N", "se_N")
        optional = [name for name in ("v_N", "q_N", "after_N", "halves_N2") if getattr(self, name) is not None]
        kept: dict[str, Any] = {name: getattr(self, name)[keep_N] for name in (*columns, *optional)}
        labels = {name: (code_N[keep_N], texts) for name, (code_N, texts) in self.labels.items()}
        return replace(self, **kept, labels=labels)


def load(
    turns: str | Path,
    credits: Sequence[str | Path],
    branches: str | Path,
    labels: str | Path | None = None,
) -> tuple[Scored, dict[str, np.ndarray]]:
    """The scored turns, and each method's advantage on them (N,), NaN where the method has no row for a turn.

    turns      keys, `success` or `reward` (a positive return is then a success); `family` and `valid` are used if
               present
    credits    keys, `advantage`, and `method` where one file has several; else the file's name is the method's
    branches   keys, `advantage_true`, `advantage_true_se`; where both of `advantage_first_half` and
               `advantage_second_half` are there and zero, the error counts as none
    labels     keys, `role` (a judge's), for the bias by role

    The turns in both `turns` and `branches` are scored. Raises UserError for missing columns, nulls, values
    that are not finite, duplicate keys, a method found twice, and where a method has no turn in common with them.
    """
    turn_table = _read(turns, (*KEYS,), ("success", "reward", "family", "valid"))
    if not {"success", "reward"} & set(turn_table.column_names):
        raise UserError(f"{turns}: fidelity needs the column 'success' or 'reward', but the table has neither")
    optional = ("v_true", "v_se", "q_true", "q_se", *_HALVES)
    truth_table = _read(branches, (*KEYS, "advantage_true", "advantage_true_se"), optional)
    label_table = None if labels is None else _read(labels, (*KEYS, "role"), (), may_be_null=("role",))
    parts = [(path, _read(path, (*KEYS, "advantage"), ("method",))) for path in credits]
    columns = [turn_table, truth_table, *([] if label_table is None else [label_table]), *(part for _, part in parts)]
    where = [turns, branches, *([] if labels is None else [labels]), *credits]
    keys = _numbered(columns, [str(path) for path in where])
    width = 1 + max(int(turn.max()) for _, turn in keys)
    code = [rollout * width + turn for rollout, turn in keys]
    for path, table, codes in zip(where[: len(where) - len(parts)], columns, code, strict=False):
        _refuse_duplicates(table, codes, str(path))

    order = np.argsort(code[0], kind="stable")
    row_of_branch = _find(code[0][order], code[1])
    branch_N = np.flatnonzero(row_of_branch >= 0)
    if not len(branch_N):
        raise UserError(f"{turns} and {branches} have no turn in common; are they of the same rollouts?")
    branch_N = branch_N[np.argsort(code[1][branch_N], kind="stable")]
    row_N = order[row_of_branch[branch_N]]
    scored = _scored(turn_table, truth_table, row_N, branch_N, keys[0], (str(turns), str(branches)))
    if label_table is not None:
        role, texts = _coded(label_table.column("role"))
        role_N = _aligned(role, code[2], code[1][branch_N], -1)
        scored = replace(scored, labels={**scored.labels, "role": (role_N, texts)})
    first = len(columns) - len(parts)
    advantages = _advantages(parts, code[first:], code[1][branch_N], str(branches))
    return scored, advantages


def _read(
    path: str | Path, needed: Sequence[str], optional: Sequence[str], may_be_null: Sequence[str] = ()
) -> pa.Table:
    """The columns `needed`, and those of `optional` that exist, without nulls."""
    tables.metadata(path)  # reports what is wrong with a file that cannot be read
    have = pq.read_schema(path).names
    for name in needed:
        if name not in have:
            raise UserError(f"{path}: fidelity needs the column '{name}', which is missing{nearest(name, have)}")
    table = tables.read(path, columns=[*needed, *(name for name in optional if name in have)])
    if not table.num_rows:
        raise UserError(f"{path}: the table has no rows")
    for name in table.column_names:
        if table.column(name).null_count and name not in may_be_null:
            if name in needed:
                raise UserError(f"{path}: the column '{name}' has {table.column(name).null_count} null values")
            table = table.drop_columns([name])
    return table


def _numbered(parts: Sequence[pa.Table], where: Sequence[str]) -> list[tuple[np.ndarray, np.ndarray]]:
    """For each table (rollout number, turn). Numbers are the same in all tables and sort by group, then by rollout."""
    number = np.zeros(sum(part.num_rows for part in parts), dtype=np.int64)
    for name in ("group_id", "rollout_id"):
        ids = [chunk for part in parts for chunk in part.column(name).cast(pa.string()).chunks]
        codes, values = factorise(pa.chunked_array(ids))
        number = number * len(values) + codes
    _, number = np.unique(number, return_inverse=True)
    ends = np.cumsum([part.num_rows for part in parts])
    out = []
    for part, path, rollout in zip(parts, where, np.split(number, ends[:-1]), strict=True):
        turn = _numbers(part, "turn", path)
        if (turn < 0).any() or (turn != np.floor(turn)).any():
            raise UserError(f"{path}: turns must be whole numbers from 0")
        out.append((rollout.astype(np.int64), turn.astype(np.int64)))
    return out


def _refuse_duplicates(table: pa.Table, code: np.ndarray, where: str, of: str = "") -> None:
    order = np.argsort(code, kind="stable")
    twice = np.flatnonzero(np.diff(code[order]) == 0)
    if len(twice):
        row = int(order[twice[0]])
        key = ", ".join(f"{name} {table.column(name)[row].as_py()!r}" for name in KEYS)
        raise UserError(f"{where}: duplicate key: {key} occurs more than once{of}")


def _find(sorted_codes: np.ndarray, wanted: np.ndarray) -> np.ndarray:
    """The index of each wanted code in `sorted_codes`, -1 if absent."""
    place = np.minimum(np.searchsorted(sorted_codes, wanted), len(sorted_codes) - 1)
    return np.where(sorted_codes[place] == wanted, place, -1)


def _aligned(x: np.ndarray, code: np.ndarray, wanted_N: np.ndarray, missing: float) -> np.ndarray:
    """Values of a table aligned to the scored turns, `missing` where it has no row."""
    order = np.argsort(code, kind="stable")
    place_N = _find(code[order], wanted_N)
    out_N = x[order[place_N]]
    out_N[place_N < 0] = missing
    return out_N


def _scored(
    turns: pa.Table, truth: pa.Table, row_N: np.ndarray, branch_N: np.ndarray, keys: tuple, where: tuple[str, str]
) -> Scored:
    """Scored turns from the rows of `turns` and of `truth` that belong together."""
    rollout, turn = keys
    rollouts = int(rollout.max()) + 1
    length_R = np.zeros(rollouts, dtype=np.int64)
    np.maximum.at(length_R, rollout, turn + 1)
    scale = 1.0
    if "reward" in turns.column_names:
        reward = _numbers(turns, "reward", where[0])
        return_R = np.bincount(rollout, reward, rollouts)
        seen_R = np.bincount(rollout, minlength=rollouts) > 0
        success_R = return_R > 0
        scale = float(np.ptp(return_R[seen_R])) or 1.0
    if "success" in turns.column_names:
        won = cast(turns.column("success"), pa.bool_(), where[0], "success").to_numpy()
        success_R = np.bincount(rollout, won, rollouts) > 0
    truth_N = _numbers(truth, "advantage_true", where[1])[branch_N]
    se_N = _numbers(truth, "advantage_true_se", where[1])[branch_N]
    if (se_N < 0).any():
        raise UserError(f"{where[1]}: the column 'advantage_true_se' has negative values")
    state = {}
    if set(_HALVES) <= set(truth.column_names):
        halves_N2 = np.stack([_numbers(truth, name, where[1])[branch_N] for name in _HALVES], axis=1)
        # Mostly turns that changed nothing in any copy. Their error in the table comes from a prior (half an observed
        # change); used as noise, it would separate turns that are equal, at zero, however many copies there are. A few
        # are turns whose changes cancel in both halves (docs/fidelity.md).
        se_N = np.where((halves_N2 == 0).all(axis=1), 0.0, se_N)
        state["halves_N2"] = halves_N2
    labels = {}
    if "family" in turns.column_names:
        family, texts = _coded(turns.column("family"))
        labels["family"] = family[row_N], texts
    if "valid" in turns.column_names:
        valid = cast(turns.column("valid"), pa.bool_(), where[0], "valid").to_numpy()[row_N]
        labels["action"] = valid.astype(np.int64), ["invalid", "valid"]
    if {"v_true", "v_se", "q_true", "q_se"} <= set(truth.column_names):
        for out, names in (("v_N", ("v_true", "v_se")), ("q_N", ("q_true", "q_se"))):
            state[out] = np.stack([_numbers(truth, name, where[1])[branch_N] for name in names], axis=1)
        if "reward" in turns.column_names:
            state["after_N"] = state["q_N"][:, 0] - reward[row_N]
    group = factorise(turns.column("group_id").cast(pa.string()))[0]
    group_N, rollout_N = (np.unique(code[row_N], return_inverse=True)[1] for code in (group, rollout))
    return Scored(
        group_N=group_N,
        rollout_N=rollout_N,
        turn_N=turn[row_N],
        length_N=length_R[rollout[row_N]],
        success_N=success_R[rollout[row_N]],
        truth_N=truth_N,
        se_N=se_N,
        scale=scale,
        labels=labels,
        groups=int(group_N.max()) + 1,
        rollouts=int(rollout_N.max()) + 1,
        **state,
    )


def _advantages(
    parts: Sequence[tuple[str | Path, pa.Table]], codes: Sequence[np.ndarray], wanted_N: np.ndarray, truth: str
) -> dict[str, np.ndarray]:
    """Each method's advantage on the scored turns, NaN where it has none."""
    out: dict[str, np.ndarray] = {}
    for (path, table), code in zip(parts, codes, strict=True):
        advantage = _numbers(table, "advantage", str(path))
        if "method" in table.column_names:
            number, names = factorise(table.column("method").cast(pa.string()))
        else:
            number, names = np.zeros(len(code), dtype=np.int64), pa.array([Path(path).stem])
        for at, name in enumerate(names.to_pylist()):
            mine = np.flatnonzero(number == at)
            _refuse_duplicates(table.take(pa.array(mine)), code[mine], str(path), f" for the method '{name}'")
            if name in out:
                raise UserError(
                    f"{path}: the method '{name}' is in more than one credits table; turncredit credit --name gives it "
                    "another"
                )
            out[name] = _aligned(advantage[mine], code[mine], wanted_N, np.nan)
            if np.isnan(out[name]).all():
                raise UserError(f"{path}: '{name}' has no turn in common with {truth}; are they of the same rollouts?")
    return out


def _numbers(table: pa.Table, name: str, where: str) -> np.ndarray:
    """A column as finite float64."""
    x = cast(table.column(name), pa.float64(), where, name).to_numpy()
    if not np.isfinite(x).all():
        raise UserError(f"{where}: the column '{name}' has {int((~np.isfinite(x)).sum())} values that are not finite")
    return x


def _coded(column: pa.ChunkedArray) -> tuple[np.ndarray, list[str]]:
    """A column as codes, -1 for null, and the texts they stand for."""
    codes, values = factorise(pc.cast(column, pa.string()))
    texts = [text for text in values.to_pylist() if text is not None]
    return np.where(codes < len(texts), codes, -1), texts
