"""The data of credit pages: a table of turns, and all tables about these turns.

Shapes: `_N` turns in sorted order, `_R` rollouts, as in `turncredit.data.turns`. NaN means "none".
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import NormalDist
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from turncredit.credit.parts.conventions import success_R
from turncredit.data import tables
from turncredit.data.credits import by_method, credit_of
from turncredit.data.tables import KEYS
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError
from turncredit.stats.rank_correlation import FEWEST, Ranked, rounded, within

#: How far from zero, in standard errors, a true advantage must be for its sign to count as known. `turncredit fidelity`
#: requires 1: there, wrong signs average out over hundreds of turns, and the ceiling accounts for them. Here a method
#: is judged on a single turn: of turns that change nothing, one in three would pass at 1, and one in twenty passes at
#: 1.96.
CLEAR = 1.96
#: the share of a method's credits that are drawn paler than full colour
FULL_COLOUR = 0.95

T = TypeVar("T")


def noise_of_largest(se: float, count: int) -> float:
    """The size that the largest of `count` turns that change nothing stays below in 95 of 100 rollouts.

    `se` is the standard error of each. Of eighteen turns one is beyond 1.96 standard errors more often than not, so
    whether the turn that was picked for its size stands out is another question than whether its own sign is known.
    Bonferroni: 1.96 standard errors for one turn, 2.99 for eighteen.
    """
    return se * NormalDist().inv_cdf(1 - 0.025 / count)


def known_signs_N(true_N: np.ndarray, se_N: np.ndarray) -> np.ndarray:
    """Which of these measured A* (N) are more than `CLEAR` of their standard errors from zero."""
    return (np.abs(true_N) > CLEAR * se_N) & (rounded(true_N) != 0)


def too_few_to_rank(branched: int, nonzero: int) -> str:
    """That hardly any A* of a rollout differs from 0, so that a rank correlation would be chance; else empty.

    Of fewer than `FEWEST` branched turns there is nothing to say.
    """
    if branched < FEWEST or nonzero >= FEWEST:
        return ""
    have = f"only {nonzero} {'has' if nonzero == 1 else 'have'}" if nonzero else "none has"
    return f"Of its {branched} branched turns {have} an A* other than 0: too few to rank methods by."


def extremes(true: Mapping[int, float]) -> dict[int, str]:
    """The turns with the most positive A* (`useful`) and the most negative (`harmful`); the first one wins ties.

    `true` is A* by turn number; pages and terminal write `most useful` and `most harmful`.
    """
    turns = sorted(true)
    best, worst = max(turns, key=true.__getitem__, default=None), min(turns, key=true.__getitem__, default=None)
    named = {}
    if best is not None and true[best] > 0:
        named[best] = "useful"
    if worst is not None and true[worst] < 0:
        named[worst] = "harmful"
    return named


@dataclass(frozen=True)
class Credit:
    """One method's credit: advantages (N), components by name (N), and the size of advantage drawn in full colour."""

    method: str
    advantage_N: np.ndarray
    components: dict[str, np.ndarray]

    @cached_property
    def scale(self) -> float:
        """The 95th percentile of |advantage|: methods differ in scale, so sizes are comparable only within one."""
        return _scale(self.advantage_N)

    @cached_property
    def rounded_N(self) -> np.ndarray:
        """Advantages in units of the largest: values that differ only by rounding are equal, or 0."""
        return rounded(self.advantage_N)

    @cached_property
    def sign_N(self) -> np.ndarray:
        """-1, 0 or 1; 0 for values that are 0 up to rounding."""
        return np.sign(self.rounded_N)

    @cached_property
    def shown_N(self) -> np.ndarray:
        """Advantages, 0 where they are rounding alone."""
        return np.where(self.sign_N == 0, 0.0, self.advantage_N)


@dataclass(frozen=True)
class Truth:
    """Ground truth by branching (N each): A* = Q - V with standard errors, and its parts."""

    advantage_N: np.ndarray
    se_N: np.ndarray
    extra: dict[str, np.ndarray]

    @cached_property
    def scale(self) -> float:
        """As `Credit.scale`."""
        return _scale(self.advantage_N)

    @cached_property
    def branched_N(self) -> np.ndarray:
        """Which turns were branched."""
        return np.isfinite(self.advantage_N)

    @cached_property
    def nonzero_N(self) -> np.ndarray:
        """Which branched turns have an estimate of A* other than 0, up to rounding."""
        nonzero_N = self.branched_N.copy()
        nonzero_N[nonzero_N] = rounded(self.advantage_N[nonzero_N]) != 0
        return nonzero_N

    @cached_property
    def clear_N(self) -> np.ndarray:
        """Which branched turns have a known sign: A* is more than 1.96 standard errors from zero."""
        clear_N = self.branched_N.copy()
        clear_N[clear_N] = known_signs_N(self.advantage_N[clear_N], self.se_N[clear_N])
        return clear_N

    def of(self, name: str, row: int) -> float:
        """A further column of the branches at a turn; NaN if the table has none."""
        return float(self.extra[name][row]) if name in self.extra else float("nan")


@dataclass(frozen=True)
class Outputs:
    """The outputs of a learned credit model for each turn (N each): the value, and the attention if it has one."""

    kind: str
    value_N: np.ndarray
    weight_N: np.ndarray


@dataclass(frozen=True)
class Book:
    """A table of turns with all tables about these turns.

    labels    judge and question -> side table; values: method -> outputs of its credit model
    probes    method -> measures of its credit model in this round (stage `values`)
    sources   the file of each table, for the page's footer
    """

    turns: Turns
    credits: dict[str, Credit]
    truth: Truth | None
    labels: dict[str, SideTable]
    values: dict[str, Outputs]
    probes: dict[str, dict[str, float]]
    sources: dict[str, str]

    @cached_property
    def success_R(self) -> np.ndarray:
        """Which rollouts succeeded: `success`, or without that column a return above 0."""
        return success_R(self.turns, "credit pages", None, graded=True)

    @property
    def success_words(self) -> str:
        """What the share of `success_R` is called: a graded return above 0 need not be a success."""
        known = self.turns.has("success") or self.is_chance
        return "succeeded" if known else "have a return above 0"

    @cached_property
    def ids_R(self) -> list[tuple[str, str]]:
        """(group id, rollout id) of each rollout."""
        return self.turns.ids_R()

    @cached_property
    def is_chance(self) -> bool:
        """Whether all returns are 0 or 1, so that a value is a probability of success."""
        return bool(np.isin(self.turns.return_R, (0.0, 1.0)).all())

    @cached_property
    def correlations(self) -> dict[str, Ranked]:
        """Each method's rank correlation with A* within each rollout, over its branched turns; empty without A*."""
        if self.truth is None:
            return {}
        rows = np.flatnonzero(self.truth.branched_N)
        true, rollout, count = self.truth.advantage_N[rows], self.turns.rollout_N[rows], self.turns.rollouts
        return {name: within(credit.advantage_N[rows], true, rollout, count) for name, credit in self.credits.items()}

    def rows(self, rollout: int) -> np.ndarray:
        """The sorted rows of a rollout's turns."""
        first = int(self.turns.first_R[rollout])
        return np.arange(first, first + int(self.turns.length_R[rollout]))

    def siblings(self, rollout: int) -> np.ndarray:
        """The rollouts of the same group."""
        group = int(self.turns.group_R[rollout])
        first = int(self.turns.first_G[group])
        return np.arange(first, first + int(self.turns.size_G[group]))

    def cell(self, name: str, row: int) -> Any:
        """The value of a column of the turns; None if the table has no such column or no value."""
        if not self.turns.has(name):
            return None
        return self.turns.table.column(name)[int(self.turns.order_N[row])].as_py()

    def branched(self, rollout: int) -> np.ndarray:
        """The rows of a rollout that have ground truth."""
        rows = self.rows(rollout)
        return rows[self.truth.branched_N[rows]] if self.truth else rows[:0]


def read_book(
    *,
    turns: str | Path,
    credits: Mapping[str, str | Path],
    measures: str | Path | None = None,
    branches: str | Path | None = None,
    labels: Mapping[str, str | Path] | None = None,
    values: Mapping[str, str | Path] | None = None,
    probes: Mapping[str, str | Path] | None = None,
    read: Callable[[str | Path], pa.Table] = tables.read,
    problems: list[str] | None = None,
) -> Book:
    """Read the tables. `credits` maps a method's name to its table; a table of several methods is split by `method`.

    `read` reads a table, or the part of it that the book is about. Raises UserError for a table that cannot be read,
    lacks a column, or does not cover the turns (branches may cover any part of them, and every branched turn must be
    one of the turns). With `problems`, a table beside the turns that raises is left out, and its line is added there.
    """

    def used(make: Callable[[], T]) -> T | None:
        if problems is None:
            return make()
        try:
            return make()
        except (UserError, OSError) as error:
            problems.append(str(error))
            return None

    def each(given: Mapping[str, str | Path] | None, make: Callable[[str | Path], T]) -> dict[str, T]:
        made = {name: used(partial(make, path)) for name, path in (given or {}).items()}
        return {name: value for name, value in made.items() if value is not None}

    table = read(turns)
    view = used(lambda: Turns(table, {"measures": read(measures)}, where=str(turns))) if measures else None
    view = Turns(table, where=str(turns)) if view is None else view
    book_credits: dict[str, Credit] = {}
    for name, credit in each(credits, read).items():
        where = str(credits[name])
        for method, part in (used(partial(by_method, credit, name, where)) or {}).items():
            if method in book_credits:
                raise UserError(f"{where}: credits of '{method}' were given twice")
            numbers = used(partial(credit_of, view, part, where, "a credit page"))
            if numbers is not None:
                book_credits[method] = Credit(method, *numbers)
    named = {
        "turns": turns,
        "measures": measures,
        **{f"credits of {name}": path for name, path in credits.items()},
        "branches": branches,
        **{f"labels {name}": path for name, path in (labels or {}).items()},
        **{f"values of {name}": path for name, path in (values or {}).items()},
    }
    return Book(
        turns=view,
        credits=book_credits,
        truth=used(lambda: _truth(view, read(branches), str(branches))) if branches else None,
        labels=each(labels, lambda path: _labels(view, read(path), str(path))),
        values=each(values, lambda path: _outputs(view, read(path), str(path))),
        probes=each(probes, _metrics),
        sources={name: str(path) for name, path in named.items() if path},
    )


def _labels(turns: Turns, table: pa.Table, where: str) -> SideTable:
    """The labels, one for every turn."""
    side = SideTable(turns, table, where)
    _ = side.row_N  # a turn without a label is found now
    return side


def _scale(x_N: np.ndarray) -> float:
    size = np.abs(x_N[np.isfinite(x_N)])
    return scale_of(float(np.quantile(size, FULL_COLOUR)), float(size.max())) if len(size) else 1.0


def scale_of(quantile: float, largest: float) -> float:
    """The size drawn in full colour, from the quantile `FULL_COLOUR` of all sizes and the largest of them."""
    return quantile or largest or 1.0


def _truth(turns: Turns, table: pa.Table, where: str) -> Truth:
    """The branches in the order of the turns; NaN where a turn was not branched."""
    side = SideTable(turns, table, where, partial=True)
    foreign = np.setdiff1d(np.arange(table.num_rows), side.row_N)
    if len(foreign):
        group, rollout, turn = (table.column(key)[int(foreign[0])].as_py() for key in KEYS)
        raise UserError(f"{where}: turn {turn} of rollout {rollout!r}, group {group!r}, is not one of these turns")
    names = ("v_true", "v_se", "q_true", "q_se", "advantage_reference", "advantage_reference_se", "continuations")
    columns = {
        name: side.numbers(name, "a credit page", nulls=name in names)
        for name in ("advantage_true", "advantage_true_se", *(name for name in names if side.has(name)))
    }
    return Truth(columns.pop("advantage_true"), columns.pop("advantage_true_se"), extra=columns)


def _outputs(turns: Turns, table: pa.Table, where: str) -> Outputs:
    side = SideTable(turns, table, where)
    columns = {}
    for name in ("value", "weight"):
        has_values = side.has(name) and not side.all_null(name)
        columns[name] = side.numbers(name, "a credit page", nulls=True) if has_values else np.full(turns.n, np.nan)
    kind = str(table.column("model")[0].as_py()) if side.has("model") else "credit model"
    return Outputs(kind, columns["value"], columns["weight"])


def _metrics(path: str | Path) -> dict[str, float]:
    """The metrics that a stage returned, from its metrics file."""
    try:
        return dict(json.loads(Path(path).read_text(encoding="utf-8"))["metrics"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UserError(f"{path}: not a stage's metrics ({error}); run the stage again") from None
