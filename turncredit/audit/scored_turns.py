"""Turns with a known true advantage, and every method's credit for them: three kinds of tables joined by key.

The tables may come from anywhere: they only need the keys and the columns named here. A mistake is one line that names
the file.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.data import tables
from turncredit.data.credits import by_method
from turncredit.data.tables import KEYS
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError
from turncredit.stats.rank_correlation import ranks

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
               present. Turns may be missing
    credits    keys, `advantage`, and `method` where one file has several; else the file's name is the method's
    branches   keys, `advantage_true`, `advantage_true_se`; where both of `advantage_first_half` and
               `advantage_second_half` are there and zero, the error counts as none
    labels     keys, `role` (a judge's), for the bias by role

    The turns in both `turns` and `branches` are scored. Raises UserError for missing columns, nulls, values
    that are not finite, duplicate keys, a method found twice, and where a method has no turn in common with them.
    """
    table = _read(turns, (), ("success", "reward", "family", "valid"))
    if not {"success", "reward"} & set(table.column_names):
        raise UserError(
            f"{turns}: fidelity needs the column 'success' or 'reward', but the table has neither; add one of them"
        )
    rewarded = "reward" in table.column_names
    if not rewarded:
        table = table.append_column("reward", pa.array(np.zeros(table.num_rows)))
    view = Turns(table, where=str(turns), excerpt=True)
    optional = ("v_true", "v_se", "q_true", "q_se", *_HALVES)
    measured = _read(branches, ("advantage_true", "advantage_true_se"), optional)
    truth = SideTable(view, measured, str(branches), partial=True)
    if not truth.has_N.any():
        raise UserError(f"{turns} and {branches} have no turn in common; give tables of the same rollouts")
    roles = None if labels is None else SideTable(view, _read(labels, ("role",)), str(labels), partial=True)
    scored = join(view, truth, roles, rewarded=rewarded)
    advantages: dict[str, np.ndarray] = {}
    for path in credits:
        part = _read(path, ("advantage",), ("method",))
        name = "" if "method" in part.column_names else Path(path).stem
        for method, own in sorted(by_method(part, name, str(path)).items()):
            if method in advantages:
                raise UserError(
                    f"{path}: the method '{method}' is in more than one credits table; rename it in "
                    "one with `turncredit credit --name`"
                )
            credit = SideTable(view, own, f"{path} (method '{method}')", partial=True)
            advantages[method] = credit.numbers("advantage", "fidelity")[truth.has_N]
            if np.isnan(advantages[method]).all():
                raise UserError(
                    f"{path}: '{method}' has no turn in common with {branches}; give tables of the same rollouts"
                )
    return scored, advantages


def _read(path: str | Path, needed: Sequence[str], optional: Sequence[str] = ()) -> pa.Table:
    """The keys, with ids as text, the columns `needed`, and those of `optional` that are there without nulls."""
    table = tables.read(path, columns=[*KEYS, *needed], optional=optional)
    if not table.num_rows:
        raise UserError(f"{path}: the table has no rows; give one with turns")
    for name in ("group_id", "rollout_id"):
        text = table.column(name).cast(pa.string())
        table = table.set_column(table.column_names.index(name), name, text)
    return table.drop_columns([name for name in table.column_names if name in optional and table[name].null_count])


def join(view: Turns, truth: SideTable, roles: SideTable | None = None, *, rewarded: bool = True) -> Scored:
    """The turns with a row in `truth` (branches). `rewarded`: the turns have rewards; `roles` are a judge's labels."""
    rows = np.flatnonzero(truth.has_N)

    def true(*names: str) -> np.ndarray:
        """Columns of the truth (N, names)."""
        return np.stack([truth.numbers(name, "fidelity")[rows] for name in names], axis=1)

    truth_N, se_N = true("advantage_true", "advantage_true_se").T
    if (se_N < 0).any():
        raise UserError(f"{truth.name}: the column 'advantage_true_se' has negative values; branch these turns again")
    state: dict[str, np.ndarray] = {}
    if all(map(truth.has, _HALVES)):
        state["halves_N2"] = true(*_HALVES)
        # Mostly turns that changed nothing in any copy. Their error in the table comes from a prior (half an observed
        # change); used as noise, it would separate turns that are equal, at zero, however many copies there are. A few
        # are turns whose changes cancel in both halves (docs/audit.md).
        se_N = np.where((state["halves_N2"] == 0).all(axis=1), 0.0, se_N)
    if all(map(truth.has, ("v_true", "v_se", "q_true", "q_se"))):
        state |= {"v_N": true("v_true", "v_se"), "q_N": true("q_true", "q_se")}
        if rewarded:
            state["after_N"] = state["q_N"][:, 0] - view.reward_N[rows]
    labels: dict[str, tuple[np.ndarray, list[str]]] = {}
    if view.has("family"):
        family_N, families = view.texts("family")
        labels["family"] = family_N[rows], families
    if view.has("valid"):
        labels["action"] = view.truths("valid")[rows].astype(np.int64), ["invalid", "valid"]
    if roles is not None:
        role_N, names = roles.texts("role")
        known = [name for name in names if name is not None]  # a null comes last
        labels["role"] = np.where(role_N < len(known), role_N, -1)[rows], known
    won_R = view.any_R(view.truths("success")) if view.has("success") else view.above_R(0.0)
    length_R = view.turn_N[view.last_R] + 1
    (groups, group_N), (rollouts, rollout_N) = (
        np.unique(number_N[rows], return_inverse=True) for number_N in (view.group_N, view.rollout_N)
    )
    return Scored(
        group_N=group_N,
        rollout_N=rollout_N,
        turn_N=view.turn_N[rows],
        length_N=length_R[view.rollout_N[rows]],
        success_N=won_R[view.rollout_N[rows]],
        truth_N=truth_N,
        se_N=se_N,
        scale=float(np.ptp(view.return_R)) or 1.0,
        labels=labels,
        groups=len(groups),
        rollouts=len(rollouts),
        **state,
    )
