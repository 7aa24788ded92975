"""Every number of the report with its interval, its sample, the files it comes from and the SQL that gives it.

The SQL runs as it stands in `turncredit sql` on the results folder; a test runs all of it and compares.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import pyarrow as pa

from turncredit import tables
from turncredit.audit import stats
from turncredit.audit.collect import SFT, Results
from turncredit.audit.sources import (
    braces,
    chosen,
    difference_sql,
    file_pattern,
    final_evals,
    final_rounds,
    listed,
    mean_sql,
    paired,
    where_sql,
)
from turncredit.audit.stats import LOWER, MIDDLE, UPPER, Estimate, Verdict

STAGES = [
    "tasks",
    "demos",
    "base",
    "sft",
    "rollout",
    "label",
    "hiddens",
    "credit_model",
    "values",
    "credit",
    "update",
    "eval",
]


@dataclass(frozen=True)
class Number:
    """One number of the report. `unit`: share, points (of success, a difference), number or seconds."""

    value: float
    unit: str
    sql: str
    path: str
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""

    @property
    def text(self) -> str:
        """The value as people read it."""
        if np.isnan(self.value):
            return "none"
        if self.unit == "seconds":
            return f"{self.value:.0f} s" if self.value < 600 else f"{self.value / 60:.0f} min"
        formats = {
            "share": f"{100 * self.value:.1f}%",
            "points": f"{100 * self.value:+z.1f}",
            "number": f"{self.value:.1f}",
        }
        return formats[self.unit]

    @property
    def interval(self) -> str:
        """The interval in the value's unit, or an empty string."""
        if self.low is None or self.high is None or np.isnan(self.low):
            return ""
        sign = "+z" if self.unit == "points" else ""
        scale = 1 if self.unit in ("number", "seconds") else 100
        return f"{scale * self.low:{sign}.1f} to {scale * self.high:{sign}.1f}"

    @property
    def direction(self) -> str:
        """`up` or `down` for a difference whose interval is clear of zero, otherwise an empty string."""
        if self.unit != "points" or self.low is None or self.high is None:
            return ""
        return "up" if self.low > 0 else "down" if self.high < 0 else ""


@dataclass(frozen=True)
class Column:
    """A column's key, its heading, and what it means."""

    key: str
    heading: str
    meaning: str


@dataclass
class Grid:
    """A table of the report: rows by name; a cell is a Number, a text, or None for what is missing."""

    name: str
    title: str
    caption: str
    columns: list[Column]
    rows: dict[str, dict[str, Number | str | None]] = field(default_factory=dict)


@dataclass
class Summary:
    """All that the report shows, before it is drawn."""

    results: Results
    baseline: str
    verdict: Verdict
    comparisons: str
    grids: list[Grid]
    differences: list[tuple[str, Estimate]]
    missing: list[str]


def summarise(results: Results) -> Summary:
    """Compute the report's numbers. Missing runs stay missing; nothing is filled in for them."""
    baseline = MIDDLE if MIDDLE in results.methods else next(iter(results.methods), SFT)
    differences = {
        method: difference
        for method in results.methods
        if method != baseline and (difference := paired(results, method, baseline)) is not None
    }
    family = {name: found.p for name, found in differences.items() if name not in (UPPER, LOWER)}
    adjusted = stats.holm(family)
    against_middle = differences if baseline == MIDDLE else {}
    grids = [
        _final(results, baseline, differences, adjusted),
        _families(results),
        _costs(results),
        *_modes(results),
        _time(results),
    ]
    return Summary(
        results=results,
        baseline=baseline,
        verdict=stats.rails(against_middle.get(UPPER), against_middle.get(LOWER)),
        comparisons=_comparisons(baseline, differences, adjusted),
        grids=[grid for grid in grids if grid.rows],
        differences=[(name, differences[name]) for name in results.methods if name in differences],
        missing=_missing(results),
    )


def summary_table(summary: Summary) -> pa.Table:
    """The report's numbers as a "summary" table."""
    rows = [
        {"table": grid.name, "row": name, "column": key, **{part: getattr(cell, part) for part in _PARTS}}
        for grid in summary.grids
        for name, row in grid.rows.items()
        for key, cell in row.items()
        if isinstance(cell, Number)
    ]
    return pa.Table.from_pylist(rows, schema=tables.schema("summary"))


_PARTS = ["value", "low", "high", "n", "unit", "note", "path", "sql"]


# Grids ---------------------------------------------------------------------------------------------------------------


def _final(results: Results, baseline: str, differences: dict[str, Estimate], adjusted: dict[str, float]) -> Grid:
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    span = f"rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"round {rounds[0]}"
    grid = Grid(
        name="final",
        title="Final success",
        caption=(
            f"Held-out games, mode '{mode}'. Final is the mean of {span}, never the best of them. Intervals are 95%, "
            "over seeds and games together (games alone with one seed). Differences are paired by seed, round and game."
        ),
        columns=[
            Column("final", "final success", f"mean of {span}"),
            Column("minus_sft", "above SFT", "paired difference to the SFT policy, in points"),
            Column("minus_baseline", f"above {baseline}", f"paired difference to {baseline}, in points"),
            Column("holm", "p, Holm", "p-value of that difference, adjusted for the number of methods; rails left out"),
            Column("last", "last round", "mean over seeds of the last round alone"),
            Column("best", "best round", "mean over seeds of the best round: optimistic"),
            Column("training", "in training", "training success, mean of the rounds after the first quarter"),
            Column("seeds", "seeds", "finished seeds"),
        ],
    )
    for method in [SFT, *results.methods]:
        grid.rows[method] = _final_row(results, method, baseline, differences.get(method), adjusted.get(method))
    return grid


def _final_row(
    results: Results, method: str, baseline: str, difference: Estimate | None, adjusted: float | None
) -> dict[str, Number | str | None]:
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    seeds = None if method == SFT else results.finished_seeds(method)
    evals = final_evals(results, method)
    if evals.empty:
        return {"final": None, "seeds": _progress(results, method)}
    mean = stats.crossed_mean(stats.cells(evals))
    where = where_sql(results, method, rounds, mode, seeds)
    row: dict[str, Number | str | None] = {
        "final": _estimated(mean, "share", mean_sql(where), file_pattern(method, rounds, seeds))
    }
    if method == SFT:
        return {
            **row,
            **dict.fromkeys(("minus_sft", "minus_baseline", "holm", "last", "best", "training"), ""),
            "seeds": "shared",
        }
    assert seeds is not None
    for key, other, found in (
        ("minus_sft", SFT, paired(results, method, SFT)),
        ("minus_baseline", baseline, difference),
    ):
        if found is not None:
            common = seeds if other == SFT else sorted(set(seeds) & set(results.finished_seeds(other)))
            sql = difference_sql(results, method, other, rounds, mode, common)
            files = f"{file_pattern(method, rounds, common)} {file_pattern(other, rounds, common)}"
            row[key] = _estimated(found, "points", sql, files)
    if method == baseline:
        row["minus_baseline"] = "baseline"
    row["holm"] = "" if adjusted is None else f"{adjusted:.3f}" if adjusted >= 0.001 else "< 0.001"
    return {
        **row,
        **_single_rounds(results, method, seeds),
        "training": _training(results, method, seeds),
        "seeds": str(len(seeds)),
    }


def _single_rounds(results: Results, method: str, seeds: Sequence[int]) -> dict[str, Number]:
    """Success in the last round and in the best one, each the mean over seeds."""
    mode, rounds = results.experiment.eval.primary, results.experiment.eval_rounds()
    evals = chosen(results, method, rounds=rounds, mode=mode, seeds=seeds)
    per_round = stats.rates(evals, ["seed", "round"])
    last = per_round[per_round["round"] == rounds[-1]]["success"].mean()
    best = per_round.groupby("seed")["success"].max().mean()
    inner = (
        "SELECT seed, round, avg(success::INT) AS success FROM evals "
        f"WHERE {where_sql(results, method, rounds, mode, seeds)} GROUP BY seed, round"
    )
    return {
        "last": Number(
            float(last),
            "share",
            mean_sql(where_sql(results, method, rounds[-1:], mode, seeds)),
            file_pattern(method, rounds[-1:], seeds),
            n=int(per_round[per_round["round"] == rounds[-1]]["rollouts"].sum()),
        ),
        "best": Number(
            float(best),
            "share",
            f"SELECT avg(best) FROM (SELECT seed, max(success) AS best FROM ({inner}) GROUP BY seed)",
            file_pattern(method, rounds, seeds),
            n=int(per_round["rollouts"].sum()),
        ),
    }


def _training(results: Results, method: str, seeds: Sequence[int]) -> Number | None:
    """Mean training success of the rounds after the first quarter (and after round 1, which all methods share)."""
    frame = results.training
    first = max(2, results.experiment.rounds // 4 + 1)
    rows = frame[(frame["method"] == method) & frame["seed"].isin(seeds) & (frame["round"] >= first)]
    if rows.empty:
        return None
    where = f"experiment = '{results.folder.name}' AND method = '{method}' AND seed IN ({listed(seeds)})"
    sql = (
        "SELECT avg(success) FROM (SELECT seed, round, avg(success::INT) AS success FROM "
        "(SELECT seed, round, group_id, rollout_id, bool_or(success) AS success FROM turns "
        f"WHERE {where} AND round >= {first} GROUP BY ALL) GROUP BY seed, round)"
    )
    span = braces([f"{round_:02d}" for round_ in sorted(set(rows["round"]))])
    path = f"runs/{method}/seed{braces([str(seed) for seed in seeds])}/round{span}/rollouts/turns.parquet"
    value = float((rows["successes"] / rows["rollouts"]).mean())
    return Number(value, "share", sql, path, n=int(rows["rollouts"].sum()))


def _estimated(found: Estimate, unit: str, sql: str, path: str) -> Number:
    low, high = np.clip([found.low, found.high], 0, 1) if unit == "share" else (found.low, found.high)
    note = f"{found.seeds} seed{'s' if found.seeds > 1 else ''}, {found.games} games; interval over {found.covers}"
    return Number(found.value, unit, sql, path, float(low), float(high), found.rollouts, note)


def _families(results: Results) -> Grid:
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    families = sorted(set(results.evals["family"]))
    grid = Grid(
        name="families",
        title="Success per family",
        caption="The same rounds and games, by family of task. Intervals are Wilson's, each rollout counted once.",
        columns=[Column(family, family, f"success on '{family}' games") for family in families],
    )
    for method in [SFT, *results.methods]:
        evals = final_evals(results, method)
        seeds = None if method == SFT else results.finished_seeds(method)
        where, files = where_sql(results, method, rounds, mode, seeds), file_pattern(method, rounds, seeds or [0])
        found = stats.rates(evals, ["family"]).itertuples() if len(evals) else []
        grid.rows[method] = dict.fromkeys(families) | {
            row.family: Number(
                row.success,
                "share",
                f"SELECT avg(success::INT) FROM evals WHERE {where} AND family = '{row.family}'",
                files,
                row.low,
                row.high,
                row.rollouts,
            )
            for row in found
        }
    return grid


#: column -> (heading, meaning, unit, SQL over the rows of `evals`)
_COSTS: dict[str, tuple[str, str, str, str]] = {
    "turns_to_success": (
        "turns to success",
        "mean turns of the successful rollouts",
        "number",
        "avg(turns) FILTER (WHERE success)",
    ),
    "turns_per_success": (
        "turns per success",
        "all turns over all successes: what one success costs",
        "number",
        "sum(turns) / sum(success::INT)",
    ),
    "invalid_rate": ("invalid actions", "invalid turns over all turns", "share", "sum(invalid) / sum(turns)"),
    "tokens_per_rollout": ("tokens per rollout", "tokens that the policy wrote in a rollout", "number", "avg(tokens)"),
}


def _costs(results: Results) -> Grid:
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    grid = Grid(
        name="costs",
        title="Turns, invalid actions and tokens",
        caption="The same rounds and games.",
        columns=[Column(key, heading, meaning) for key, (heading, meaning, _, _) in _COSTS.items()],
    )
    for method in [SFT, *results.methods]:
        evals = final_evals(results, method).assign(one=0)
        seeds = None if method == SFT else results.finished_seeds(method)
        if evals.empty:
            grid.rows[method] = dict.fromkeys(_COSTS)
            continue
        found = stats.rates(evals, ["one"]).iloc[0]
        where, files = where_sql(results, method, rounds, mode, seeds), file_pattern(method, rounds, seeds)
        grid.rows[method] = {
            key: Number(
                float(found[key]), unit, f"SELECT {sql} FROM evals WHERE {where}", files, n=int(found["rollouts"])
            )
            for key, (_, _, unit, sql) in _COSTS.items()
        }
    return grid


def _modes(results: Results) -> list[Grid]:
    """Final success in every evaluation mode, where there is more than one."""
    modes = [mode.name for mode in results.experiment.eval.modes]
    if len(modes) < 2:
        return []
    rounds = final_rounds(results)
    grid = Grid(
        name="modes",
        title="Final success by evaluation mode",
        caption="The same policies and games, sampled in different ways.",
        columns=[
            Column(mode.name, mode.name, f"temperature {mode.temperature:g}") for mode in results.experiment.eval.modes
        ],
    )
    for method in [SFT, *results.methods]:
        seeds = None if method == SFT else results.finished_seeds(method)
        row: dict[str, Number | str | None] = dict.fromkeys(modes)
        for mode in modes:
            evals = final_evals(results, method, mode)
            if len(evals):
                mean = stats.crossed_mean(stats.cells(evals))
                sql = mean_sql(where_sql(results, method, rounds, mode, seeds))
                row[mode] = _estimated(mean, "share", sql, file_pattern(method, rounds, seeds))
        grid.rows[method] = row
    return [grid]


def _time(results: Results) -> Grid:
    metrics = results.metrics
    # The report's own time is left out: a report made twice should not differ.
    wall = metrics[(metrics["name"] == "wall_s") & ~metrics["stage"].isin(["report", "track"])]
    stages = [stage for stage in STAGES if stage in set(wall["stage"])]
    stages += sorted(set(wall["stage"]) - set(stages))
    grid = Grid(
        name="time",
        title="Time",
        caption=(
            "Wall-clock seconds inside the stages, summed over seeds and rounds. The row 'shared' is paid once for all "
            "methods: games, demonstrations, the SFT policy, its rollouts and its evaluations."
        ),
        columns=[*(Column(stage, stage, f"stage {stage}") for stage in stages), Column("total", "total", "all stages")],
    )
    groups: list[tuple[str, Callable[[pd.DataFrame], pd.Series], str]] = [
        (
            "shared",
            lambda frame: frame["method"].isna() | (frame["method"] == SFT),
            f"(method IS NULL OR method = '{SFT}')",
        )
    ]
    for method in results.methods:
        groups.append((method, lambda frame, method=method: frame["method"] == method, f"method = '{method}'"))
    for name, keep, condition in groups:
        rows = wall[keep(wall)]
        if rows.empty:
            continue
        base = (
            f"SELECT sum(value) FROM metrics WHERE experiment = '{results.folder.name}' AND name = 'wall_s' "
            f"AND {condition} AND stage NOT IN ('report', 'track')"
        )
        grid.rows[name] = {
            stage: Number(
                part["value"].sum(), "seconds", f"{base} AND stage = '{stage}'", "**/metrics/*.json", n=len(part)
            )
            for stage, part in rows.groupby("stage")
        }
        grid.rows[name]["total"] = Number(rows["value"].sum(), "seconds", base, "**/metrics/*.json", n=len(rows))
    return grid


# Words ---------------------------------------------------------------------------------------------------------------


def _progress(results: Results, method: str) -> str:
    if method == SFT:
        return "not evaluated yet"
    rows = results.runs[results.runs["method"] == method]
    done, wanted = sum(len(row) for row in rows["evaluated"]), sum(len(row) for row in rows["wanted"])
    return f"unfinished: {done} of {wanted} evaluations"


def _missing(results: Results) -> list[str]:
    """One line per run that lacks evaluations or that the configuration no longer names."""
    lines = []
    for run in results.runs.itertuples():
        absent = [round_ for round_ in run.wanted if round_ not in run.evaluated]
        if absent:
            rounds = f"round{'s' if len(absent) > 1 else ''} {_spans(absent)}"
            lines.append(f"{run.method}, seed {run.seed}: {rounds} not evaluated yet")
        if not run.configured:
            lines.append(f"{run.method}, seed {run.seed}: on disk, but not in the configuration")
    return lines


def _spans(numbers: Sequence[int]) -> str:
    """`1-3, 7` for 1, 2, 3, 7."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)


def _comparisons(baseline: str, differences: dict[str, Estimate], adjusted: dict[str, float]) -> str:
    """What can be said of all methods together, with the number of comparisons in mind. Empty without any."""
    if not adjusted:
        return ""
    clear = [name for name, p in adjusted.items() if p < 0.05]
    said = ", ".join(f"{name} ({100 * differences[name].value:+.1f})" for name in clear)
    count = f"{len(adjusted)} method{'s' if len(adjusted) > 1 else ''} compared with {baseline} (rails left out)"
    if not clear:
        return f"{count}: none differs at the 5% level after Holm's correction; do not rank them."
    verb = "differs" if len(clear) == 1 else "differ"
    return f"{count}: after Holm's correction at the 5% level, {said} {verb}; the others cannot be told apart from it."
