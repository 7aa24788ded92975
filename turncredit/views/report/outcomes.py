"""The policies' results: final success, differences, learning curves, families, turns and tokens, as grids."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from turncredit.audit.collapse import Collapse
from turncredit.config.warm_starts import is_start
from turncredit.data.turns import TASK_SCORE
from turncredit.stats import intervals
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid, Number, computed
from turncredit.views.report.ordering import Corrected
from turncredit.views.report.selection import (
    Checkpoint,
    Sourced,
    at_checkpoint,
    difference,
    eval_files,
    files_of,
    final_evals,
    final_rounds,
    listed,
    mean_success,
    seeds_of,
    where_sql,
)
from turncredit.views.sql_views import quoted


def final(
    results: Results,
    names: Sequence[str],
    baseline: str,
    differences: Mapping[str, Sourced],
    corrected: Corrected,
    collapsed: Sequence[Collapse] = (),
) -> Grid:
    """Final success of each method, paired differences, the last and the best checkpoint, and corrected p-values.

    `collapsed` are the runs that are counted as such.
    """
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    span = f"rounds {rounds[0]} to {rounds[-1]}" if len(rounds) > 1 else f"round {rounds[0]}"
    grid = Grid(
        name="final",
        title="Final success",
        caption=(
            f"Held-out games, mode '{mode}'. Final is the mean of {span}, never the best of them. Intervals are 95%, "
            "over seeds and games together (games alone with one seed). Differences are paired by seed, round and "
            "game. The best checkpoint is selected on these same games, so it is too high by construction; it is here "
            "because papers report it, and its interval is over seeds only. Sorted by difference; this is a ranking "
            "only where a p says so, and p is corrected over families: variants count as one."
        ),
        columns=[
            Column("final", "final success", f"mean of {span}"),
            *([Column("score", "score", f"mean of {span}: the environment's own score")] if _scored(results) else []),
            Column("minus_baseline", f"above {baseline}", f"paired difference to {baseline}, in points"),
            Column("minus_sft", "above SFT", "paired difference to the SFT policy that it began with, in points"),
            Column("last", "last round", "mean over seeds of the last round alone"),
            Column("best", BEST, "mean over seeds of each seed's best round, selected on these games: optimistic"),
            Column("training", "in training", "training success, mean of the rounds after the first quarter"),
            Column("seeds", "seeds", "finished seeds"),
            Column("collapsed", "collapsed", "seeds whose policy collapsed in some round; they count in all figures"),
            Column("holm", "p, families", "p of the difference, corrected over families; one method a family"),
        ],
    )
    if corrected.variants:
        words = "the same for the families' other methods, corrected among these"
        grid.columns.append(Column("holm_variants", "p, variants", words))
    count = Counter(one.method for one in collapsed)
    for method in names:
        row = _final_row(results, method, baseline, differences.get(method), corrected)
        grid.rows[method] = {**row, "collapsed": "" if is_start(method) else str(count[method])}
    return grid


BEST = "best checkpoint (selected on these games)"


def _final_row(
    results: Results, method: str, baseline: str, against: Sourced | None, corrected: Corrected
) -> dict[str, Cell]:
    row: dict[str, Cell] = {"final": checkpoint_cell(results, method, "final")}
    if row["final"] is not None and _scored(results):
        row["score"] = _score(results, method)
    if row["final"] is None:
        return {"final": None, "seeds": _progress(results, method)}
    if is_start(method):
        others = ("minus_sft", "minus_baseline", "last", "best", "training", "holm", "holm_variants")
        return {**row, **dict.fromkeys(others, ""), "seeds": "shared"}
    gain = difference(results, method, results.experiment.start_of(method))
    if gain is not None:
        row["minus_sft"] = estimated(gain, "points")
    if method == baseline:
        row["minus_baseline"] = "baseline"
    elif against is not None:
        row["minus_baseline"] = estimated(against, "points")
    return {
        **row,
        "last": checkpoint_cell(results, method, "last"),
        "best": checkpoint_cell(results, method, "best"),
        "training": _training(results, method),
        "seeds": str(len(results.finished_seeds(method))),
        "holm": _p(corrected.families.get(method)),
        "holm_variants": _p(corrected.variants.get(method), corrected.family_of.get(method, "")),
    }


def _scored(results: Results) -> bool:
    """Whether the environment has a score beside success, as WebShop has."""
    return TASK_SCORE in results.evals and bool(results.evals[TASK_SCORE].notna().any())


def _score(results: Results, method: str) -> Number:
    """The mean score over the rounds and games of the final success."""
    rounds, seeds = final_rounds(results), seeds_of(results, method)
    where, files = where_sql(results, method, rounds, None, seeds), eval_files(method, rounds, seeds)
    n = int(intervals.played(final_evals(results, method)).sum())
    return computed(results, f"SELECT avg({TASK_SCORE}) FROM evals WHERE {where}", "share", files, n=n)


def _p(p: float | None, family: str = "") -> str:
    """A p-value as text, with the family of a variant: `0.080 (triage)`."""
    if p is None:
        return ""
    text = "none" if np.isnan(p) else f"{p:.3f}" if p >= 0.001 else "< 0.001"
    return f"{text} ({family})" if family else text


def checkpoint_cell(
    results: Results, method: str, checkpoint: Checkpoint, among: Mapping[str, Sequence[str]] | None = None
) -> Number | None:
    """A method's success at a checkpoint with its interval, SQL and files; None where there is none (yet)."""
    success = at_checkpoint(results, method, checkpoint, among)
    return success and estimated(success, "share")


def _training(results: Results, method: str) -> Number | None:
    """Mean training success of the rounds after the first quarter (and after round 1, which all methods share)."""
    seeds, first = results.finished_seeds(method), max(2, results.experiment.rounds // 4 + 1)
    # From round 2 on a run learns from turns that it samples itself.
    where = f"experiment = {quoted(results.folder.name)} AND policy = {quoted(method)} AND seed IN ({listed(seeds)})"
    rollouts = (
        "SELECT seed, round, group_id, rollout_id, bool_or(success) AS success FROM turns "
        f"WHERE {where} AND round >= {first} GROUP BY ALL"
    )
    found = results.rows(f"SELECT round, count(*) AS rollouts FROM ({rollouts}) GROUP BY round ORDER BY round")
    if found.empty:
        return None
    sql = (
        "SELECT avg(success) FROM (SELECT seed, round, avg(success::INT) AS success FROM "
        f"({rollouts}) GROUP BY seed, round)"
    )
    path = files_of("turns", policy=[method], seed=seeds, round=found["round"].tolist())
    return computed(results, sql, "share", path, n=int(found["rollouts"].sum()))


def estimated(found: Sourced, unit: str) -> Number:
    """A cell with its interval, which ends at 0 and 1 for a share."""
    estimate = found.estimate
    ends = np.clip([estimate.low, estimate.high], 0, 1) if unit == "share" else (estimate.low, estimate.high)
    low, high = (None if np.isnan(end) else float(end) for end in ends)
    counted = f"{estimate.seeds} seed{'s' if estimate.seeds > 1 else ''}, {estimate.games} games"
    note = f"{counted}; interval over {estimate.covers}"
    return Number(estimate.value, unit, found.sql, found.files, low, high, estimate.rollouts, note)


def own_games(results: Results) -> str:
    """How to read success by round where every round has its own games; empty where all have the same."""
    if not results.experiment.eval.fresh:
        return ""
    return " Each round has its own games: compare methods within a round, not rounds along a line."


def curve(results: Results, names: Sequence[str], points: pd.DataFrame) -> Grid:
    """The learning curves as numbers: success after each evaluated round; round 0 is the SFT policy."""
    grid = Grid(
        name="curve",
        title="The curves in numbers",
        caption=(
            "Success on held-out games after each round; round 0 is the SFT policy, over all rounds' games."
            f"{own_games(results)}"
        ),
        columns=[
            Column(f"round{round_:02d}", str(round_), f"after round {round_}")
            for round_ in [0, *results.experiment.eval_rounds()]
        ],
        closed=True,
    )
    for method in names:
        # Round 0 is the SFT policy's, which has one level in all rounds where these have the same games.
        whole = is_start(method) and not results.experiment.eval.fresh
        apart = [column.key for column in grid.columns if column.key != "round00"] if whole else []
        never: dict[str, Cell] = dict.fromkeys(apart if is_start(method) else ["round00"], "")
        cells: dict[str, Cell] = {}
        for point in points[points["method"] == method].itertuples():
            low, high = (None if np.isnan(end) else end for end in (point.low, point.high))
            note = f"interval over {point.covers}"
            cells[f"round{point.round:02d}"] = Number(
                point.success, "share", point.sql, point.files, low, high, point.rollouts, note
            )
        if cells:
            grid.rows[method] = never | cells
    return grid


def curve_points(results: Results) -> pd.DataFrame:
    """The learning curves: method, round, success, low, high, rollouts, covers, sql, files; an SFT policy is a point at
    round 0, over all rounds' games, and one in every round that has games of its own (`eval.fresh`).

    Intervals are those of the final table, over seeds and games; if only one seed has reached a round, over games.
    """
    primary = results.evals[results.evals["mode"] == results.experiment.eval.primary]
    points, fresh = [], results.experiment.eval.fresh
    for method, evals in primary.groupby("method"):
        rounds = sorted(set(evals["round"]))
        each = {round_: [round_] for round_ in rounds}
        for at, pooled in {0: rounds, **(each if fresh else {})}.items() if is_start(method) else each.items():
            seeds = None if is_start(method) else sorted(set(evals[evals["round"] == at]["seed"]))
            found = mean_success(results, str(method), pooled, seeds=seeds)
            assert found is not None  # these rounds have evaluations
            mean, sql, files = found
            low, high = np.clip([mean.low, mean.high], 0, 1)  # NaN where there is no interval
            points.append((method, at, mean.value, low, high, mean.rollouts, mean.covers, sql, files))
    names = ["method", "round", "success", "low", "high", "rollouts", "covers", "sql", "files"]
    return pd.DataFrame(points, columns=names)


def families(results: Results, names: Sequence[str]) -> Grid:
    """Success by family of task."""
    families = sorted(set(results.evals["family"]))
    grid = Grid(
        name="families",
        title="Success per family",
        caption="The same rounds and games, by family of task; intervals as above.",
        columns=[Column(family, family, f"success on '{family}' games") for family in families],
    )
    for method in names:
        grid.rows[method] = {
            family: checkpoint_cell(results, method, "final", {"family": [family]}) for family in families
        }
    return grid


def splits(results: Results, names: Sequence[str]) -> list[Grid]:
    """Success by split of the held-out games; none where there is one split."""
    found = sorted(set(results.evals["split"]))
    if len(found) < 2:
        return []
    grid = Grid(
        name="splits",
        title="Success per split",
        caption="The same rounds, by split of the held-out games; intervals as above.",
        columns=[Column(split, split, f"success on games of the split '{split}'") for split in found],
    )
    for method in names:
        grid.rows[method] = {split: checkpoint_cell(results, method, "final", {"split": [split]}) for split in found}
    return [grid]


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
        "all turns divided by all successes: the cost of one success",
        "number",
        "sum(turns) / sum(success::INT)",
    ),
    "invalid_rate": ("invalid actions", "share of invalid turns", "share", "sum(invalid) / sum(turns)"),
    "tokens_per_rollout": ("tokens per rollout", "tokens that the policy sampled per rollout", "number", "avg(tokens)"),
}


def costs(results: Results, names: Sequence[str]) -> Grid:
    """The cost of a success in turns and tokens."""
    grid = Grid(
        name="costs",
        title="Turns, invalid actions and tokens",
        caption="The same rounds and games.",
        columns=[Column(key, heading, meaning) for key, (heading, meaning, _, _) in _COSTS.items()],
    )
    for method in names:
        evals = final_evals(results, method)
        rounds, seeds, n = final_rounds(results), seeds_of(results, method), int(intervals.played(evals).sum())
        where, files = where_sql(results, method, rounds, None, seeds), eval_files(method, rounds, seeds)
        grid.rows[method] = {
            key: None if evals.empty else computed(results, f"SELECT {sql} FROM evals WHERE {where}", unit, files, n=n)
            for key, (_, _, unit, sql) in _COSTS.items()
        }
    return grid


def modes(results: Results, names: Sequence[str]) -> list[Grid]:
    """Final success in every evaluation mode, if there are several."""
    modes = results.experiment.eval.modes
    if len(modes) < 2:
        return []
    grid = Grid(
        name="modes",
        title="Final success by evaluation mode",
        caption="The same policies and games, sampled in different ways.",
        columns=[Column(mode.name, mode.name, f"temperature {mode.temperature:g}") for mode in modes],
    )
    for method in names:
        found = {mode.name: at_checkpoint(results, method, "final", mode=mode.name) for mode in modes}
        grid.rows[method] = {name: success and estimated(success, "share") for name, success in found.items()}
    return [grid]


def _progress(results: Results, method: str) -> str:
    if is_start(method):
        return "not evaluated yet"
    rows = results.runs[results.runs["method"] == method]
    done, total = sum(len(row) for row in rows["evaluated"]), sum(len(row) for row in rows["wanted"])
    return f"unfinished: {done} of {total} evaluations"
