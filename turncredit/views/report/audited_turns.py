"""Turns that were audited, and what was measured on them, pooled over seeds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from turncredit.data.counts import number_of
from turncredit.stats.bootstrap import FEWEST_GROUPS
from turncredit.stats.intervals import pooled
from turncredit.views.collect import Results
from turncredit.views.report.grid import Number, computed
from turncredit.views.report.selection import files_of, sampler
from turncredit.views.sql_views import quoted

#: measure -> (heading, meaning, unit)
FIDELITY = {
    "rank_correlation": (
        "rank correlation",
        "Spearman with A* within a rollout, averaged over rollouts",
        "correlation",
    ),
    "sign_agreement": (
        "sign agreement",
        "share of clear turns, those with |A*| above 1 standard error, whose credit has A*'s sign; zero counts half",
        "share",
    ),
    "regression_auc": (
        "finds regressions",
        "within successes: AUC of low credit for harmful turns, whose A* is negative by more than 1 standard error and "
        "5% of the range of returns",
        "auc",
    ),
    "useful_auc": ("finds useful steps", "within failures: AUC of high credit for useful turns, defined alike", "auc"),
    "calibration": (
        "calibration",
        "rise of A* for one standard deviation of credit within rollouts, in units of return",
        "signed",
    ),
    "error_minus_flat": ("error minus flat", "squared error minus flat GRPO's; below zero is better", "signed"),
    "pooled_correlation": (
        "pooled (misleading)",
        "rank correlation over all turns of all rollouts: rewards knowing the outcome, not which turn mattered",
        "correlation",
    ),
}
GRADIENTS = {
    "snr": ("signal to noise", "of one minibatch's policy gradient", "small"),
    "signal": ("signal", "squared length of the mean gradient, from split halves", "small"),
    "noise": ("noise", "variance of a minibatch's gradient", "small"),
    "cosine_flat": ("cosine, flat GRPO", "of the mean gradient with flat GRPO's", "correlation"),
    "cosine_oracle": ("cosine, oracle", "of the mean gradient with the oracle's", "correlation"),
    "cosine_truth": ("cosine, A*", "of the mean gradient with that of the true advantages", "correlation"),
}
#: what a fidelity rests on -> its meaning
SAMPLE = {
    "turns": "turns with ground truth that were scored, of all seeds",
    "rollouts": "rollouts with ground truth, of all seeds",
    "groups": "task groups of these rollouts, of all seeds",
}
CORRELATIONS = ("rank_correlation", "pooled_correlation", "rank_with_truth", "rank_with_full")
COSINES = ("cosine_flat", "cosine_oracle", "cosine_truth")
#: The range of each measure, to which its interval is clipped.
BOUNDS = {
    **dict.fromkeys((*CORRELATIONS, *COSINES), (-1.0, 1.0)),
    **dict.fromkeys(("sign_agreement", "regression_auc", "useful_auc", "outcome_auc"), (0.0, 1.0)),
}


class Audited(NamedTuple):
    """The turns that a policy sampled in a round, of all seeds, and what was measured on them."""

    results: Results
    policy: str
    round: int

    @property
    def key(self) -> str:
        """A column's or a grid's key."""
        return f"{self.policy}_{self.round:02d}"

    @property
    def words(self) -> str:
        """`round 3, rollouts of flat_grpo`."""
        return f"round {self.round}, rollouts of {sampler(self.policy)}"

    def rows(self, table: str) -> pd.DataFrame:
        """The rows of a table about these turns."""
        frame = self.results.analysis[table]
        return frame[(frame["policy"] == self.policy) & (frame["round"] == self.round)]

    def where(self, **keys: str) -> str:
        """The SQL condition that selects rows about these turns."""
        named = {"experiment": self.results.folder.name, "policy": self.policy, **keys}
        return " AND ".join([*(f"{name} = {quoted(value)}" for name, value in named.items()), f"round = {self.round}"])

    def number(self, sql: str, unit: str, seeds: pd.Series, table: str = "fidelity", **more: Any) -> Number:
        """The number that a query over the files of some seeds gives."""
        files = files_of(table, policy=[self.policy], seed=sorted(set(seeds)), round=[self.round])
        return computed(self.results, sql, unit, files, **more)


def audited(results: Results, *of: str) -> list[Audited]:
    """The turns that these tables are about, round by round."""
    frames = [results.analysis[table] for table in of if table in results.analysis]
    pairs = {pair for frame in frames for pair in zip(frame["policy"], frame["round"], strict=True)}
    return [Audited(results, *pair) for pair in sorted(pairs, key=lambda pair: (pair[1], pair[0]))]


def measure(turns: Audited, table: str, **keys: str) -> Number | None:
    """One measure of a table, pooled over seeds; None if it is missing. `keys`: method, measure, subset, view."""
    if table not in turns.results.analysis:
        return None
    where = turns.where(**keys)
    rows = turns.results.rows(f"FROM {table} WHERE {where}")
    if rows.empty:
        return None
    note = number_of(len(rows), "seed")
    defined = rows[rows["value"].notna()]
    if 0 < len(defined) < len(rows):
        rows, note = defined, f"{len(defined)} of {note}"
    _, low, high = pooled_in_bounds(rows, keys["measure"])
    count = int(rows["turns"].sum()) if "turns" in rows else None
    groups = int(rows["groups"].min()) if "groups" in rows else FEWEST_GROUPS
    few = number_of(groups, "group") if groups < FEWEST_GROUPS else ""
    if few:
        low = high = None
        note += f"; no interval with {few}"
    sql, unit = f"SELECT avg(value) FROM {table} WHERE {where}", _unit(table, keys["measure"])
    return turns.number(sql, unit, rows["seed"], table, low=low, high=high, n=count, note=note, beside=few)


def pooled_in_bounds(rows: pd.DataFrame, measure: str) -> tuple[float, float | None, float | None]:
    """`pooled` of a measure, its interval clipped to the measure's range: that of two seeds may be wider."""
    value, low, high = pooled(rows)
    if low is None or high is None or measure not in BOUNDS:
        return value, low, high
    low, high = np.clip([low, high], *BOUNDS[measure])
    return value, float(low), float(high)


def _unit(table: str, measure: str) -> str:
    if table == "leaks":
        return "correlation" if measure.startswith("rank") else "auc"
    return (FIDELITY if table == "fidelity" else GRADIENTS).get(measure, ("", "", "small"))[2]


def sample_in_words(sample: Mapping[str, Number]) -> str:
    """`132 turns of 8 rollouts in 8 groups`, as far as a sample has these."""
    n = {name: f"{sample[f'n_{name}'].value:.0f} {name}" for name in SAMPLE if f"n_{name}" in sample}
    of = f" of {n['rollouts']}" if "rollouts" in n else ""
    return f"{n['turns']}{of} in {n['groups']}" if n else "no turns"


def sample_sizes(turns: Audited, **method: str) -> dict[str, Number]:
    """The numbers of turns, rollouts and groups that a method's fidelity is computed from, of the measure with most;
    those of all methods where none is named.

    A measure counts what it can be computed on: a rank correlation leaves out rollouts whose A* does not vary.
    """
    where = turns.where(**method, subset="all")
    seeds = turns.results.rows(f"SELECT seed FROM fidelity WHERE {where}")["seed"]
    if seeds.empty:
        return {}
    most = "SELECT sum(n) FROM (SELECT max({}) AS n FROM fidelity WHERE {} GROUP BY seed)"
    cells = {f"n_{name}": turns.number(most.format(name, where), "count", seeds) for name in ("turns", "groups")}
    rollouts = turns.number(
        f"SELECT count(*) FROM (SELECT DISTINCT seed, group_id, rollout_id FROM branches WHERE {turns.where()})",
        "count", seeds, "branches",
    )  # fmt: skip
    return cells | ({"n_rollouts": rollouts} if rollouts.value else {})  # a record may lack the continuations


def resting_on(rounds: Sequence[Audited]) -> str:
    """How much ground truth there is for these turns, in words: turns, rollouts and groups."""
    parts = []
    for turns in rounds if rounds and "fidelity" in rounds[0].results.analysis else ():
        parts.append(f"round {turns.round} of {sampler(turns.policy)}: {sample_in_words(sample_sizes(turns))}")
    return f"Ground truth: {'; '.join(parts)}." if parts else ""


def present(names: Sequence[str], frame: pd.DataFrame) -> list[str]:
    """The methods of a table: those of the final table in its order, then those that are only compared."""
    have = list(dict.fromkeys(frame["method"]))
    return [*(name for name in names if name in have), *(name for name in have if name not in names)]
