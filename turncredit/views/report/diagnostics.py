"""Analyses of turns as grids and text: fidelity, gradient signal, leaks of credit models, invariants."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from turncredit.audit import leak_measures
from turncredit.audit.equal_steps import RunUpdate, Spent, counted, unequal
from turncredit.audit.noise_ceiling import TOO_FEW, exceeded
from turncredit.credit.parts.baselines import BASELINE, ORACLE
from turncredit.stats.bootstrap import FEWEST_GROUPS
from turncredit.stats.intervals import pooled
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid, Number, computed
from turncredit.views.report.selection import files_of, sampler
from turncredit.views.sql_views import quoted

CEILING = "noise ceiling"
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
#: Measures whose ceiling is on the measure's own scale.
WITH_CEILING = ("rank_correlation", "sign_agreement", "regression_auc", "useful_auc")
GRADIENTS = {
    "snr": ("signal to noise", "of one minibatch's policy gradient", "small"),
    "signal": ("signal", "squared length of the mean gradient, from split halves", "small"),
    "noise": ("noise", "variance of a minibatch's gradient", "small"),
    "cosine_flat": ("cosine, flat GRPO", "of the mean gradient with flat GRPO's", "correlation"),
    "cosine_oracle": ("cosine, oracle", "of the mean gradient with the oracle's", "correlation"),
    "cosine_truth": ("cosine, A*", "of the mean gradient with that of the true advantages", "correlation"),
}
LEAKS = {
    ("full", "outcome_auc"): ("in full", "the prediction tells success from failure: AUC with inputs as they are"),
    ("padded", "outcome_auc"): ("equal length", "the same, all rollouts padded to one length"),
    ("masked_last", "outcome_auc"): ("last turn hidden", "the same, the last turn hidden"),
    ("blind", "outcome_auc"): ("both", "the same, length and last turn hidden"),
    ("length_only", "outcome_auc"): ("length alone", "no model: how well the length alone tells success"),
    ("full", "rank_with_truth"): ("credit and truth", "rank correlation of the credit with A* within rollouts"),
}


#: The range of each measure, to which its interval is clipped.
_CORRELATIONS = ("rank_correlation", "pooled_correlation", "rank_with_truth", "rank_with_full")
_COSINES = ("cosine_flat", "cosine_oracle", "cosine_truth")
#: method -> the cosine with its own gradient
_WITH = {BASELINE: "cosine_flat", ORACLE: "cosine_oracle"}
BOUNDS = {
    **dict.fromkeys((*_CORRELATIONS, *_COSINES), (-1.0, 1.0)),
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
    note = f"{len(rows)} seed{'s' * (len(rows) > 1)}"
    defined = rows[rows["value"].notna()]
    if 0 < len(defined) < len(rows):
        rows, note = defined, f"{len(defined)} of {note}"
    _, low, high = _pooled(rows, keys["measure"])
    count = int(rows["turns"].sum()) if "turns" in rows else None
    groups = int(rows["groups"].min()) if "groups" in rows else FEWEST_GROUPS
    few = f"{groups} group{'s' * (groups != 1)}" if groups < FEWEST_GROUPS else ""
    if few:
        low = high = None
        note += f"; no interval with {few}"
    sql, unit = f"SELECT avg(value) FROM {table} WHERE {where}", _unit(table, keys["measure"])
    return turns.number(sql, unit, rows["seed"], table, low=low, high=high, n=count, note=note, beside=few)


def _pooled(rows: pd.DataFrame, measure: str) -> tuple[float, float | None, float | None]:
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


def fidelity(results: Results, names: Sequence[str]) -> list[Grid]:
    """One grid for each round with ground truth (the first open), and one of the rank correlation over rounds."""
    rounds = audited(results, "fidelity")
    grids = [_fidelity_round(turns, names, closed=place > 0) for place, turns in enumerate(rounds)]
    if len(rounds) > 1:
        grids.insert(1, _by_round(results, names, rounds))
    return grids


def _fidelity_round(turns: Audited, names: Sequence[str], *, closed: bool) -> Grid:
    here = turns.rows("fidelity")
    here = here[here["subset"] == "all"]
    shown = [name for name in FIDELITY if name in set(here["measure"])]
    grid = Grid(
        name=f"fidelity_{turns.key}",
        title=f"Fidelity of credit in {turns.words}",
        caption=(
            "Each method's credit on the same rollouts compared with the ground truth A* = Q - V, measured by sampling "
            "continuations with the same policy from before and after the turn. Intervals by bootstrap over task "
            f"groups, from {FEWEST_GROUPS} groups of a seed on. The noise ceiling is what the truth itself would score "
            "against this noisy estimate of it; that of the rank correlation is an upper bound (docs/audit.md). "
            "None is given where a method scores above it: there are too few turns to estimate it."
        ),
        columns=[Column(name, *FIDELITY[name][:2]) for name in shown],
        closed=closed,
    )
    methods = _present(names, here)
    samples = {method: _sample(turns, method=method) for method in methods}
    if len({_counted(sample) for sample in samples.values()}) == 1:
        grid.caption += (
            f" All rest on {_counted(samples[methods[0]])}; a measure of fewer turns or groups says so in its cell."
        )
    else:
        grid.columns += [Column(f"n_{name}", name, meaning) for name, meaning in SAMPLE.items()]
    rows: dict[str, dict[str, Cell]] = {
        method: {
            name: _with_sample(measure(turns, "fidelity", method=method, measure=name, subset="all"), samples[method])
            for name in shown
        }
        for method in methods
    }
    if BASELINE in rows and "error_minus_flat" in shown:
        rows[BASELINE]["error_minus_flat"] = ""
    ceiling = {name: _ceiling(turns, here, name, rows.values()) for name in shown if name in WITH_CEILING}
    if any(ceiling.values()):
        grid.rows[CEILING] = {**dict.fromkeys((column.key for column in grid.columns), ""), **ceiling}
    own = {method: samples[method] if len(grid.columns) > len(shown) else {} for method in methods}
    grid.rows |= {method: {**measures, **own[method]} for method, measures in rows.items()}
    return grid


def _with_sample(cell: Number | None, sample: Mapping[str, Number]) -> Number | None:
    """A measure with its number of turns beside it, if it is of fewer than the method's other measures."""
    if cell is None or cell.n is None or "n_turns" not in sample or cell.n >= sample["n_turns"].value:
        return cell
    turns = f"{cell.n} turn{'s' * (cell.n != 1)}"
    return replace(cell, beside=f"{turns}, {cell.beside}" if cell.beside else turns)


def _counted(sample: Mapping[str, Number]) -> str:
    """`132 turns of 8 rollouts in 8 groups`, as far as a sample has these."""
    n = {name: f"{sample[f'n_{name}'].value:.0f} {name}" for name in SAMPLE if f"n_{name}" in sample}
    of = f" of {n['rollouts']}" if "rollouts" in n else ""
    return f"{n['turns']}{of} in {n['groups']}" if n else "no turns"


#: what a fidelity rests on -> its meaning
SAMPLE = {
    "turns": "turns with ground truth that were scored, of all seeds",
    "rollouts": "rollouts with ground truth, of all seeds",
    "groups": "task groups of these rollouts, of all seeds",
}


def _sample(turns: Audited, **method: str) -> dict[str, Number]:
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
        parts.append(f"round {turns.round} of {sampler(turns.policy)}: {_counted(_sample(turns))}")
    return f"Ground truth: {'; '.join(parts)}." if parts else ""


def _ceiling(turns: Audited, here: pd.DataFrame, name: str, scores: Iterable[Mapping[str, Cell]]) -> Cell:
    """The ceiling, which is shared by methods that are scored on the same turns; in words where one exceeds it."""
    rows = here[(here["measure"] == name) & here["ceiling"].notna()]
    if rows.empty:
        return ""
    sql = f"SELECT avg(ceiling) FROM fidelity WHERE {turns.where(measure=name, subset='all')}"
    number = turns.number(sql, FIDELITY[name][2], rows["seed"])
    found = [score.value for of_method in scores if isinstance(score := of_method[name], Number)]
    return TOO_FEW if exceeded(number.value, found) else number


def _by_round(results: Results, names: Sequence[str], rounds: Sequence[Audited]) -> Grid:
    several = len({turns.round for turns in rounds}) < len(rounds)
    headings = [f"{turns.policy}, {turns.round}" if several else f"round {turns.round}" for turns in rounds]
    grid = Grid(
        name="fidelity_rounds",
        title="Rank correlation by round",
        caption="Does a credit model get better as it learns, and does credit stay right as the policy changes? "
        + resting_on(rounds),
        columns=[
            Column(turns.key, heading, f"rollouts of {sampler(turns.policy)}")
            for turns, heading in zip(rounds, headings, strict=True)
        ],
    )
    for method in _present(names, results.analysis["fidelity"]):
        keys = {"method": method, "measure": "rank_correlation", "subset": "all"}
        grid.rows[method] = {turns.key: measure(turns, "fidelity", **keys) for turns in rounds}
    return grid


def gradients(results: Results, names: Sequence[str]) -> list[Grid]:
    """One grid for each round: the gradient that a method's advantages give, signal against noise."""
    grids = []
    for turns in audited(results, "gradients"):
        here = turns.rows("gradients")
        shown = [name for name in GRADIENTS if name in set(here["measure"])]
        grid = Grid(
            name=f"gradients_{turns.key}",
            title=f"Gradient signal in {turns.words}",
            caption=(
                "The policy gradient that each method's advantages give on the same rollouts, at the policy that "
                "sampled them: how much of one minibatch's gradient is signal, and its direction."
                f"{_undefined_cosines(turns, here)}"
            ),
            columns=[Column(name, *GRADIENTS[name][:2]) for name in shown],
            closed=bool(grids),
        )
        for method in _present(names, here):
            own = _WITH.get(method)
            grid.rows[method] = {
                name: "itself" if name == own else measure(turns, "gradients", method=method, measure=name)
                for name in shown
            }
        grids.append(grid)
    return grids


def _undefined_cosines(turns: Audited, here: pd.DataFrame) -> str:
    """Why cosines are missing and what measures that with A*; empty where all are there."""
    cosines = here[here["measure"].isin(_COSINES)]
    if cosines["value"].notna().all():
        return ""
    said = " A cosine is none where the signal of either gradient is not above 0."
    if cosines.loc[cosines["measure"] == "cosine_truth", "value"].notna().all():
        return said
    few = f"{said} That of A* needs more turns with ground truth: raise audit.branch.turns (config/audit.yaml: 500)."
    return f"{few} {resting_on([turns])}".rstrip()


def _present(names: Sequence[str], frame: pd.DataFrame) -> list[str]:
    """The methods of a table: those of the final table in its order, then those that are only compared."""
    have = list(dict.fromkeys(frame["method"]))
    return [*(name for name in names if name in have), *(name for name in have if name not in names)]


# Leaks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Leak:
    """The verdict of one credit model's leak tests; `clear`: no leak was found."""

    method: str
    words: str
    clear: bool


def leak_lines(results: Results, names: Sequence[str]) -> tuple[list[Leak], str]:
    """One sentence for each learned method, of the last round with leak tests, and which round that was."""
    rounds = audited(results, "leaks")
    if not rounds:
        return [], ""
    here = rounds[-1].rows("leaks")
    lines = []
    for method in _present(names, here):
        rows = here[here["method"] == method]
        measures = {}
        for (view, name), part in rows.groupby(["view", "measure"], sort=False):
            value, low, high = _pooled(part, str(name))
            ends = (float("nan") if end is None else end for end in (low, high))
            measures[view, name] = leak_measures.Measured(value, *ends)
        lines.append(Leak(method, leak_measures.leak_summary(measures), not _leaks(measures)))
    return lines, rounds[-1].words


def _leaks(measures: Mapping[tuple[str, str], leak_measures.Measured]) -> bool:
    """Whether hiding the length or the last turn removes knowledge of the outcome, by a margin."""
    tests = [(view, "outcome_drop") for view in ("padded", "masked_last", "blind")] + [("half", "hindsight")]
    return any(leak_measures.clear(measures.get(test, leak_measures.NOTHING)) for test in tests)


def leak_grids(results: Results, names: Sequence[str]) -> list[Grid]:
    """The leak tests' numbers, one grid for each round."""
    grids = []
    for turns in audited(results, "leaks"):
        here = turns.rows("leaks")
        have = set(zip(here["view"], here["measure"], strict=True))
        shown = [key for key in LEAKS if key in have]
        n = f" {resting_on([turns])}" if ("full", "rank_with_truth") in have else ""
        grid = Grid(
            name=f"leaks_{turns.key}",
            title=f"Leak tests in numbers, {turns.words}",
            caption="AUC 0.5 is chance. Hiding the length or the last turn lowers it for a model that relies on them."
            + n,
            columns=[Column("_".join(key), *LEAKS[key]) for key in shown],
            closed=True,
        )
        for method in _present(names, here):
            grid.rows[method] = {
                f"{view}_{name}": measure(turns, "leaks", method=method, view=view, measure=name)
                for view, name in shown
            }
        grids.append(grid)
    return grids


# Invariants ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Holds:
    """Whether the invariants hold (None: not checked), in words."""

    all: bool | None
    words: str


def holds(results: Results) -> Holds:
    """The report's first line: whether all invariants hold, and which ones fail where."""
    frame, spent = results.analysis.get("invariants"), _spent(results)
    lines = [f"the methods took unequal optimiser steps: {line}" for line in unequal(results.experiment, spent)]
    if frame is None and not lines:
        return Holds(None, f"Invariants: not checked here; turncredit check results/{results.folder.name} checks them.")
    if frame is None:
        return Holds(False, f"Invariants: {_listed(lines)}.")
    named = _named(frame)
    rounds = len(frame.reindex(columns=["policy", "method", "seed", "round"]).drop_duplicates())
    broken = named[~named["holds"]]
    checked = counted(len(frame) + bool(spent), frame["name"].nunique() + bool(spent), rounds)
    if broken.empty and not lines:
        return Holds(True, f"All invariants hold: {checked}.{_declared(named)}")
    lines += [
        f"{row.invariant} in {row.where}, seed {row.seed}, round {row.round}: {row.detail}"
        for row in broken.itertuples()
    ]
    failed = f"{len(broken)} of {checked} fail" if len(broken) else f"Of {checked} none fails, but"
    return Holds(False, f"{failed}{':' * bool(len(broken))} {_listed(lines)}.")


def _declared(named: pd.DataFrame) -> str:
    """The exceptions that the configuration declares (`tasks.shared`), which break no invariant."""
    held = named[named["holds"] & (named["invariant"] == "held_out")]
    excepted = sorted({str(detail) for detail in held["detail"] if detail})
    return f" Declared exceptions: {_listed(excepted)}." if excepted else ""


def _listed(lines: list[str]) -> str:
    return f"{'; '.join(lines[:5])}{' ...' if len(lines) > 5 else ''}"


def _spent(results: Results) -> dict[RunUpdate, Spent]:
    """Optimiser steps, sequences and tokens of every update, from the metrics of its job."""
    frame = results.metrics[(results.metrics["stage"] == "update") & results.metrics["name"].isin(Spent._fields)]
    wide = frame.pivot_table(index=["method", "seed", "round"], columns="name", values="value", aggfunc="first")
    return {
        RunUpdate(str(method), int(seed), int(round)): Spent(**{name: int(row[name]) for name in Spent._fields})
        for (method, seed, round), row in wide.dropna().iterrows()
    }


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Invariants with a column `where`: a run, or the policy that sampled the turns."""
    keys = frame.reindex(columns=["policy", "method"])
    where = keys["method"].where(keys["policy"].isna(), keys["policy"].map(sampler, na_action="ignore"))
    return frame.rename(columns={"name": "invariant"}).assign(where=where)


def invariants(results: Results) -> list[Grid]:
    """Each invariant: in how many rounds it was checked and held, and its largest deviation."""
    frame = results.analysis.get("invariants")
    if frame is None:
        return []
    grid = Grid(
        name="invariants",
        title="Invariants",
        caption="Properties that must hold for every method (docs/audit.md).",
        columns=[
            Column("checked", "rounds checked", "rounds of turns and of runs"),
            Column("failed", "failed", "rounds in which it does not hold"),
            Column("things", "things checked", "rows, rollouts or files that were checked"),
            Column("worst", "largest deviation", "if the invariant has one; of states: 1 - AUC"),
            Column("measured", "where it is largest", "what was measured there, if the check says so"),
        ],
        closed=True,
    )
    files = f"{files_of('invariants')} {files_of('rollout_invariants')}"
    for name, rows in frame.groupby("name", sort=True):
        base = f"FROM invariants WHERE experiment = {quoted(results.folder.name)} AND name = {quoted(name)}"
        grid.rows[str(name)] = {
            "checked": computed(results, f"SELECT count(*) {base}", "count", files),
            "failed": computed(results, f"SELECT count(*) {base} AND NOT holds", "count", files),
            "things": computed(results, f"SELECT sum(checked) {base}", "count", files),
            "worst": ""
            if rows["worst"].isna().all()
            else computed(results, f"SELECT max(worst) {base}", "small", files),
            "measured": "" if rows["worst"].isna().all() else str(rows.loc[rows["worst"].idxmax(), "detail"]),
        }
    if spent := _spent(results):
        failed = len(unequal(results.experiment, spent))
        rounds = len({at.round for at in spent})
        grid.rows["equal_steps"] = {
            "checked": str(rounds),
            "failed": str(failed),
            "things": str(len(spent)),
            "worst": "",
            "measured": "",
        }
    return [grid]
