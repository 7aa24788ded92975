"""Fidelity: every method's credit against the true advantage, with intervals over task groups and the noise ceiling.

The measures are in `turncredit.audit.fidelity_measures`, the ceiling in `turncredit.audit.noise_ceiling`;
docs/audit.md explains both. `score` is a pure function of arrays: the same tables give the same numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import isfinite
from typing import Any

import numpy as np
import pyarrow as pa

from turncredit.audit import fidelity_measures
from turncredit.audit.noise_ceiling import Ceiling, ceilings
from turncredit.audit.scored_turns import Scored
from turncredit.credit.parts.baselines import BASELINE
from turncredit.data import tables
from turncredit.stats.bootstrap import Resamples, Statistic
from turncredit.stats.rank_correlation import FEWEST

RESAMPLES = 2000
#: subsets for which the rank correlation is given as well
CORRELATED = ("outcome", "family")
#: a subset (bool, N), and its turns for which the rank correlation is computed
Part = tuple[np.ndarray, Scored | None]


@dataclass(frozen=True)
class Row:
    """One number: a measure of a method's credit on a subset of the scored turns, with its interval and its ceiling.

    `value`, `low` and `high` are NaN where they are undefined: no pair of turns, or fewer than two groups for an
    interval. `ceiling` is None for measures that have none.
    """

    method: str
    measure: str
    subset: str
    value: float
    low: float
    high: float
    turns: int
    groups: int
    ceiling: Ceiling | None = None


@dataclass(frozen=True)
class Fidelity:
    """All rows, and for each method how many turns, rollouts and groups were scored and what was left out."""

    rows: tuple[Row, ...]
    counts: Mapping[str, Mapping[str, int]]

    def row(self, method: str, measure: str, subset: str = "all") -> Row:
        """One row; raises KeyError where there is none."""
        for row in self.rows:
            if (row.method, row.measure, row.subset) == (method, measure, subset):
                return row
        raise KeyError((method, measure, subset))


def score(scored: Scored, credits: Mapping[str, np.ndarray], *, seed: int = 0, resamples: int = RESAMPLES) -> Fidelity:
    """Score each method's credit (N,) on the turns with ground truth; NaN if a method has no credit for a turn.

    Intervals are bootstrap intervals over groups, with the same draws for all methods. Methods that are scored on the
    same turns share their ceiling.
    """
    draws = Resamples(scored.groups, resamples, seed)
    flat_N = credits.get(BASELINE)
    cache: dict[bytes, tuple[Mapping[str, Ceiling], Mapping[str, Part]]] = {}
    rows: list[Row] = []
    counts = {}
    for method, credit_N in credits.items():
        have_N = np.isfinite(credit_N)
        mine, x_N = scored.take(have_N), credit_N[have_N]
        if (mark := have_N.tobytes()) not in cache:
            cache[mark] = ceilings(mine, draws, seed), _parts(mine)
        flat = flat_N[have_N] if flat_N is not None and np.isfinite(flat_N[have_N]).all() else None
        rows.extend(_rows(method, x_N, mine, draws, *cache[mark], flat))
        counts[method] = _counts(x_N, mine, len(scored))
    return Fidelity(tuple(rows), counts)


def _parts(scored: Scored) -> dict[str, Part]:
    """The subsets that rows are about."""
    return {
        name: (part_N, scored.take(part_N) if name.partition(":")[0] in CORRELATED else None)
        for name, part_N in fidelity_measures.subsets(scored).items()
    }


def _rows(
    method: str,
    x_N: np.ndarray,
    scored: Scored,
    draws: Resamples,
    ceiling: Mapping[str, Ceiling],
    parts: Mapping[str, Part],
    flat_N: np.ndarray | None,
) -> list[Row]:
    statistics: list[tuple[str, str, Statistic]] = [
        (name, "all", measure(x_N, scored)) for name, measure in fidelity_measures.HEADLINE.items()
    ]
    statistics += [
        ("calibration", "all", fidelity_measures.calibration(x_N, scored)),
        ("error", "all", fidelity_measures.error(x_N, scored)),
        ("pooled_correlation", "all", fidelity_measures.pooled_correlation(x_N, scored)),
    ]
    if flat_N is not None and method != BASELINE:
        statistics.append(("error_minus_flat", "all", fidelity_measures.error_against(x_N, flat_N, scored)))
    for name, (part_N, part) in parts.items():
        statistics.append(("bias", name, fidelity_measures.bias(x_N, scored, part_N)))
        if part is not None:
            statistics.append(("rank_correlation", name, fidelity_measures.rank_correlation(x_N[part_N], part)))
    for name, credited, true in fidelity_measures.reliability(x_N, scored):
        statistics += [("reliability_credit", name, credited), ("reliability_truth", name, true)]
    values = draws.values_of([statistic for _, _, statistic in statistics])
    rows = []
    for (measure, subset, statistic), value_B in zip(statistics, values, strict=True):
        low, high = draws.interval(value_B, statistic.groups)
        top = ceiling.get(measure) if subset == "all" else None
        if measure == "calibration":
            top = Ceiling(fidelity_measures.true_spread(scored), float("nan"), float("nan"), 0)
        numbers = (statistic.value, low, high, statistic.turns, statistic.groups)
        rows.append(Row(method, measure, subset, *numbers, ceiling=top))
    return rows


def _counts(x_N: np.ndarray, scored: Scored, total: int) -> dict[str, int]:
    """Counts of what was scored and what was left out."""
    ranked = fidelity_measures.spearman_R(x_N, scored)
    rollouts = int((ranked.count_R > 0).sum())
    short = int(((ranked.count_R > 0) & (ranked.count_R < FEWEST)).sum())
    return {
        "turns": len(scored),
        "rollouts": rollouts,
        "groups": len(np.unique(scored.group_N)),
        "turns_without_credit": total - len(scored),
        "rollouts_with_too_few_turns": short,
        "rollouts_with_constant_truth": rollouts - short - int(ranked.scored_R.sum()),
    }


def table(fidelity: Fidelity) -> pa.Table:
    """All rows as a "fidelity" table."""
    names = ("method", "measure", "subset", "value", "low", "high", "turns", "groups")
    columns: dict[str, list] = {name: [getattr(row, name) for row in fidelity.rows] for name in names}
    columns["ceiling"] = [None if row.ceiling is None else row.ceiling.value for row in fidelity.rows]
    for name in ("value", "low", "high", "ceiling"):
        columns[name] = [x if x is not None and isfinite(x) else None for x in columns[name]]
    return pa.table(columns, schema=tables.schema("fidelity"))


def as_json(fidelity: Fidelity) -> dict[str, dict[str, Any]]:
    """What `turncredit fidelity --json` writes: for each method the counts, and each measure with its interval.

    `ceiling` is the rank correlation's; the other ceilings are under `ceilings`. Measures by subset are under
    `subsets`. Undefined values are null.
    """
    out: dict[str, dict[str, Any]] = {method: dict(counts) for method, counts in fidelity.counts.items()}
    for row in fidelity.rows:
        number = _number(row)
        mine = out[row.method]
        if row.subset != "all":
            mine.setdefault("subsets", {}).setdefault(row.measure, {})[row.subset] = number
            continue
        mine[row.measure] = number
        if row.ceiling is not None:
            mine.setdefault("ceilings", {})[row.measure] = _number(row.ceiling)
            if row.measure == "rank_correlation":
                mine["ceiling"] = _number(row.ceiling)
    return out


def _number(row: Row | Ceiling) -> dict[str, float | None]:
    return {name: x if isfinite(x := getattr(row, name)) else None for name in ("value", "low", "high")}
