"""The costs of an experiment: time by stage, CPU and GPU seconds, turns, tokens and the judge's tokens, as grids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import pandas as pd

from turncredit.config.layout import sampled_by, shell_pattern
from turncredit.config.stages import stages as stage_records
from turncredit.config.warm_starts import is_start
from turncredit.views.collect import Results
from turncredit.views.experiments import AUDIT, PLAYED_FOR, SHARED, played_for
from turncredit.views.report.grid import Column, Grid, Number
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
    ("continued", "continuations", "turns", "continuation turns", "turns played from states of training rollouts"),
    ("forked", "forks", "turns", "fork turns", "turns of training rollouts that forked from states of others"),
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
    wall = results.metrics[(results.metrics["name"] == "wall_s") & ~results.metrics["stage"].isin(LEFT_OUT)]
    stages = [stage for stage in stage_records() if stage in set(wall["stage"])]
    grid = Grid(
        name="time",
        title="Time by stage",
        caption=f"Wall-clock seconds inside the stages, summed over seeds and rounds. {_WHO}",
        columns=[Column(stage, stage, f"stage {stage}") for stage in stages],
        closed=True,
    )
    for name, rows, where in _payers(names, wall):
        base = _sum(results, where, "name = 'wall_s'")
        grid.rows[name] = {
            str(stage): Number(
                float(part["value"].sum()),
                "seconds",
                f"{base} AND stage = {quoted(stage)}",
                shell_pattern(stage_records()[str(stage)].metrics),
                n=len(part),
            )
            for stage, part in rows.groupby("stage")
        }
    return grid


@dataclass(frozen=True)
class _Spent:
    """A column of the costs, summed over rows of the metrics: `kept` says which, and `condition` says the same in SQL.

    `factor` multiplies the values of a stage; empty for none.
    """

    heading: str
    meaning: str
    unit: str
    kept: pd.Series
    condition: str
    factor: dict[str, int] = field(default_factory=dict)


def spending(results: Results, names: Sequence[str]) -> Grid:
    """Time, CPU and GPU seconds, turns and tokens of training, and requests to a judge."""
    metrics = results.metrics[~results.metrics["stage"].isin(LEFT_OUT)]
    spent = {**_seconds(results, metrics), **_counts(metrics)}
    grid = Grid(
        name="spending",
        title="Cost",
        caption=f"Summed over seeds and rounds. {_WHO} Labels and hidden states of a run's own turns stand with that"
        " run, even where only the audit reads them.",
        columns=[Column(key, column.heading, column.meaning) for key, column in spent.items()],
    )
    for key, column in spent.items():
        for name, rows, where in _payers(names, metrics[column.kept]):
            weight = rows["stage"].map(column.factor) if column.factor else 1
            sql = _sum(results, where, column.condition, column.factor)
            grid.rows.setdefault(name, {})[key] = Number(
                float((rows["value"] * weight).sum()), column.unit, sql, FILES, n=len(rows)
            )
    played = _environment_turns(results, names)
    if played:
        meaning = "turns played in all rounds of the run: rollouts, also shared ones, continuations and forks"
        grid.columns.insert(0, Column("environment", "environment turns", meaning))
    for name, number in played.items():
        grid.rows.setdefault(name, {})["environment"] = number
    order = [SHARED, AUDIT, *names]
    grid.rows = {name: grid.rows[name] for name in order if name in grid.rows}
    return grid


def _seconds(results: Results, metrics: pd.DataFrame) -> dict[str, _Spent]:
    """Wall-clock and CPU seconds, and GPU seconds where a stage asks for GPUs."""
    is_wall = metrics["name"] == "wall_s"
    spent = {
        "wall": _Spent("wall time", "seconds inside all stages", "seconds", is_wall, "name = 'wall_s'"),
        "cpu": _Spent("CPU time", "CPU seconds of all stages", "seconds", metrics["name"] == "cpu_s", "name = 'cpu_s'"),
    }
    gpus = {stage: number for stage in stage_records() if (number := results.experiment.gpus(stage))}
    if gpus:
        listed = ", ".join(quoted(stage) for stage in sorted(gpus))
        spent["gpu"] = _Spent(
            "GPU time",
            "seconds of the stages that ask for GPUs, times their number (config: resources)",
            "seconds",
            is_wall & metrics["stage"].isin(gpus),
            f"name = 'wall_s' AND stage IN ({listed})",
            gpus,
        )
    return spent


def _counts(metrics: pd.DataFrame) -> dict[str, _Spent]:
    """Those of `_COUNTED` of which there are any."""
    spent = {}
    for key, stage, name, heading, meaning in _COUNTED:
        kept = (metrics["stage"] == stage) & (metrics["name"] == name)
        if metrics[kept]["value"].sum() > 0:
            spent[key] = _Spent(heading, meaning, "count", kept, f"stage = {quoted(stage)} AND name = {quoted(name)}")
    return spent


def _environment_turns(results: Results, names: Sequence[str]) -> dict[str, Number]:
    """By method, the environment turns that its runs used for training, including those that other runs share.

    What a comparison at equal environment turns counts: rollouts (in round 1 the shared ones), and the continuations
    and forks that the method needs.
    """
    turns = results.metrics[results.metrics["name"] == "turns"]
    played = played_for(results.experiment)
    numbers = {}
    for name, rounds in results.training.groupby("method"):
        sampled = [sampled_by(results.experiment, str(name), round_) for round_ in rounds["round"]]
        own = turns.merge(rounds[["seed", "round"]].assign(policy=sampled), on=["seed", "round", "policy"])
        read = own["stage"] == "rollout"
        conditions = ["stage = 'rollout'"]
        for stage, which in (played_by for played_by, methods in played.items() if name in methods):
            key = PLAYED_FOR[stage]
            read |= (own["stage"] == stage) & (own[key] == which)
            conditions.append(f"stage = {quoted(stage)} AND {key} = {quoted(which)}")
        if name in names and read.any():
            sql = (
                "SELECT sum(value) FROM metrics JOIN runs USING (experiment, seed, round, policy) WHERE experiment = "
                f"{quoted(results.folder.name)} AND runs.method = {quoted(name)} AND name = 'turns' "
                f"AND ({' OR '.join(conditions)})"
            )
            numbers[str(name)] = Number(float(own[read]["value"].sum()), "count", sql, FILES, n=int(read.sum()))
    return numbers


def _payers(names: Sequence[str], metrics: pd.DataFrame) -> list[tuple[str, pd.DataFrame, str]]:
    """(name, rows, SQL condition) of everything with rows in `metrics`: shared work, each method, the audit."""
    payers = [SHARED, AUDIT, *(name for name in names if not is_start(name))]
    kept = [(name, metrics[metrics["paid_by"] == name], f"paid_by = {quoted(name)}") for name in payers]
    return [(name, rows, where) for name, rows, where in kept if len(rows)]


def _sum(results: Results, where: str, condition: str, factor: dict[str, int] | None = None) -> str:
    cases = " ".join(f"WHEN {quoted(stage)} THEN {count}" for stage, count in sorted((factor or {}).items()))
    value = f"value * CASE stage {cases} END" if factor else "value"
    left_out = ", ".join(quoted(stage) for stage in LEFT_OUT)
    return (
        f"SELECT sum({value}) FROM metrics WHERE experiment = {quoted(results.folder.name)} AND {where} "
        f"AND {condition} AND stage NOT IN ({left_out})"
    )
