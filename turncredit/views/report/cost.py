"""The costs of an experiment: time by stage, CPU and GPU seconds, turns, tokens and the judge's tokens, as grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from turncredit.config.layout import shell_pattern
from turncredit.config.loading import AUDIT, SHARED
from turncredit.config.stages import stages
from turncredit.config.warm_starts import is_start
from turncredit.views.collect import Results
from turncredit.views.experiments import PLAYED_FOR, played_for
from turncredit.views.report.grid import Column, Grid, Number, computed
from turncredit.views.sql_views import quoted

#: The report's own time is left out: rebuilding a report should not change it.
LEFT_OUT = ("report", "track")
FILES = "**/metrics/*.json"
_WHO = (
    "The row 'shared' is paid once for all methods: games, demonstrations, the SFT policy, its rollouts and their "
    "labels, its evaluations. The row 'audit' is the ground truth and the comparisons with it, which no method needs."
)
#: column, the stage and the name of the metric that it sums, heading, meaning
_COUNTED = (
    ("turns", "rollout", "turns", "training turns", "turns played for training"),
    ("continuations", "continuations", "turns", "continuation turns", "turns played from states of training rollouts"),
    ("forks", "forks", "turns", "fork turns", "turns of training rollouts that forked from states of others"),
    ("tokens", "rollout", "tokens", "training tokens", "tokens that the policy sampled in training rollouts"),
    ("steps", "update", "steps", "optimiser steps", "steps of the policy's optimiser"),
    ("sequences", "update", "sequences", "sequences", "sequences in the update's minibatches"),
    ("learned", "update", "tokens", "tokens updated on", "response tokens in the update's minibatches"),
    ("labels", "label", "labels", "labels", "turns that a judge labelled, including cached labels"),
    ("judge_in", "label", "tokens_in", "judge reads", "input tokens of the judge, without cached answers"),
    ("judge_out", "label", "tokens_out", "judge writes", "output tokens of the judge, without cached answers"),
)


def time(results: Results, names: Sequence[str]) -> Grid:
    """Wall-clock seconds of each stage."""
    timed = set(results.metrics[results.metrics["name"] == "wall_s"]["stage"])
    grid = Grid(
        name="time",
        title="Time by stage",
        caption=f"Wall-clock seconds inside the stages, summed over seeds and rounds. {_WHO}",
        columns=[
            Column(name, name, stage.about)
            for name, stage in stages().items()
            if name in timed and name not in LEFT_OUT
        ],
        closed=True,
    )
    for column in sorted(grid.columns, key=lambda column: column.key):
        of_stage = f" AND stage = {quoted(column.key)}"
        spent = Spent(column.heading, column.meaning, "seconds", "name = 'wall_s'", of_stage)
        _add(grid, column.key, spent, results, names, shell_pattern(stages()[column.key].metrics))
    return _in_order(grid, names)


@dataclass(frozen=True)
class Spent:
    """A column of the costs: the values of the metrics that the SQL `condition` and `of_stage` select, added up.

    `factor` multiplies the values of a stage; empty for none.
    """

    heading: str
    meaning: str
    unit: str
    condition: str
    of_stage: str = ""
    factor: dict[str, int] = field(default_factory=dict)

    @property
    def value(self) -> str:
        """The SQL of what is added up."""
        cases = " ".join(f"WHEN {quoted(stage)} THEN {count}" for stage, count in sorted(self.factor.items()))
        return f"value * CASE stage {cases} END" if cases else "value"


def spending(results: Results, names: Sequence[str]) -> Grid:
    """Time, CPU and GPU seconds, turns and tokens of training, and requests to a judge."""
    spent = _seconds(results) | {
        key: Spent(heading, meaning, "count", f"stage = {quoted(stage)} AND name = {quoted(name)}")
        for key, stage, name, heading, meaning in _COUNTED
    }
    grid = Grid(
        name="spending",
        title="Cost",
        caption=f"Summed over seeds and rounds. {_WHO} Labels and hidden states of a run's own turns stand with that"
        " run, even where only the audit reads them.",
        columns=[],
    )
    played = _environment_turns(results, names)
    if played:
        meaning = "turns played in all rounds of the run: rollouts, also shared ones, continuations and forks"
        grid.columns.append(Column("environment", "environment turns", meaning))
        grid.caption += " Environment turns include shared ones, which the other columns have in the row 'shared'."
    for key, one in spent.items():
        if one.unit == "seconds" or results.value(f"SELECT sum(value) FROM metrics WHERE {one.condition}") > 0:
            grid.columns.append(Column(key, one.heading, one.meaning))
            _add(grid, key, one, results, names, FILES)
    for name, number in played.items():
        grid.rows.setdefault(name, {})["environment"] = number
    return _in_order(grid, names)


def _add(grid: Grid, key: str, spent: Spent, results: Results, names: Sequence[str], files: str) -> None:
    """Add the column's numbers to the rows of all that have any: shared work, the audit, each method."""
    mine, left_out = f"experiment = {quoted(results.folder.name)}", ", ".join(quoted(stage) for stage in LEFT_OUT)
    these = f"{spent.condition} AND stage NOT IN ({left_out}){spent.of_stage}"
    counted = results.rows(f"SELECT paid_by, count(*) AS n FROM metrics WHERE {mine} AND {these} GROUP BY paid_by")
    n_of = dict(zip(counted["paid_by"], counted["n"].tolist(), strict=True))
    for name in (SHARED, AUDIT, *(name for name in names if not is_start(name))):
        if name in n_of:
            sql = f"SELECT sum({spent.value}) FROM metrics WHERE {mine} AND paid_by = {quoted(name)} AND {these}"
            grid.rows.setdefault(name, {})[key] = computed(results, sql, spent.unit, files, n=n_of[name])


def _in_order(grid: Grid, names: Sequence[str]) -> Grid:
    """The grid with its rows in order; a cell is empty where nothing was spent."""
    nothing = {column.key: "" for column in grid.columns}
    grid.rows = {name: {**nothing, **grid.rows[name]} for name in (SHARED, AUDIT, *names) if name in grid.rows}
    return grid


def _seconds(results: Results) -> dict[str, Spent]:
    """Wall-clock and CPU seconds, and GPU seconds where a stage asks for GPUs."""
    spent = {
        "wall": Spent("wall time", "seconds inside all stages", "seconds", "name = 'wall_s'"),
        "cpu": Spent("CPU time", "CPU seconds of all stages", "seconds", "name = 'cpu_s'"),
    }
    gpus = {stage: number for stage in stages() if (number := results.experiment.all_gpus(stage))}
    if gpus:
        meaning = "seconds of the stages that ask for GPUs, times their number (config: resources)"
        condition = f"name = 'wall_s' AND stage IN ({', '.join(quoted(stage) for stage in sorted(gpus))})"
        spent["gpu"] = Spent("GPU time", meaning, "seconds", condition, factor=gpus)
    return spent


def _environment_turns(results: Results, names: Sequence[str]) -> dict[str, Number]:
    """By method, the environment turns that its runs used for training, including those that other runs share.

    What a comparison at equal environment turns counts: rollouts (in round 1 the shared ones), and the continuations
    and forks that the method needs.
    """
    played = played_for(results.experiment)
    numbers = {}
    for name in sorted(set(results.training["method"]) & set(names)):
        conditions = ["stage = 'rollout'"] + [
            f"stage = {quoted(stage)} AND {PLAYED_FOR[stage]} = {quoted(which)}"
            for (stage, which), methods in played.items()
            if name in methods
        ]
        source = (
            "FROM metrics JOIN runs USING (experiment, seed, round, policy) WHERE experiment = "
            f"{quoted(results.folder.name)} AND runs.method = {quoted(name)} AND name = 'turns' "
            f"AND ({' OR '.join(conditions)})"
        )
        if n := int(results.value(f"SELECT count(*) {source}")):
            numbers[name] = computed(results, f"SELECT sum(value) {source}", "count", FILES, n=n)
    return numbers
