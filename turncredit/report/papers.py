"""The papers' own numbers next to ours, if the experiment is a preset of a paper's table (papers.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from turncredit.layout import SFT
from turncredit.report.grid import Cell, Column, Grid, Number
from turncredit.report.selection import eval_files, final_evals, final_rounds, where_sql
from turncredit.results.collect import Results
from turncredit.stats import intervals


@dataclass(frozen=True)
class Paper:
    """One published table: its source, what can be compared, and its numbers by method and column."""

    source: str
    reports: str
    compare: str
    columns: dict[str, tuple[str, ...]]
    numbers: dict[str, dict[str, str]]


def published() -> dict[str, Paper]:
    """All published tables by the name of the preset's experiment."""
    data: dict[str, dict[str, Any]] = yaml.safe_load((files("turncredit.report") / "papers.yaml").read_text())
    return {
        name: Paper(
            source=entry["source"],
            reports=entry["reports"],
            compare=entry["compare"],
            columns={column: tuple(families) for column, families in entry["columns"].items()},
            numbers={method: dict(zip(entry["columns"], row, strict=True)) for method, row in entry["numbers"].items()},
        )
        for name, entry in data.items()
    }


def papers(results: Results, names: Sequence[str]) -> list[Grid]:
    """Our numbers next to the paper's, for experiments that are a paper's preset; no grid for others.

    A column covers the task families that it names, or all. The paper's cells are texts: they have no file and no SQL
    here.
    """
    paper = published().get(results.experiment.experiment)
    if paper is None:
        return []
    grid = Grid(
        name="paper",
        title="Beside the paper",
        caption=f"{paper.source}. {paper.reports} {paper.compare}",
        columns=[
            column
            for key in paper.columns
            for column in (
                Column(f"paper_{key}", f"paper: {key}", f"as the paper reports it ({paper.source}), in percent"),
                Column(key, f"here: {key}", "mean of the last three rounds, finished seeds"),
            )
        ],
    )
    for method in dict.fromkeys([*names, *paper.numbers]):
        theirs = paper.numbers.get(method)
        if theirs is None:
            continue
        row: dict[str, Cell] = {}
        for key, families in paper.columns.items():
            row[f"paper_{key}"] = theirs[key]
            row[key] = _ours(results, method, families)
        grid.rows[method] = row
    return [grid]


def _ours(results: Results, method: str, families: Sequence[str]) -> Number | None:
    """Our final success on some families' games (all if none is named); None if there is none yet."""
    evals = final_evals(results, method)
    if families:
        evals = evals[evals["family"].isin(families)]
    if evals.empty:
        return None
    rate = intervals.rates(evals.assign(one=0), ["one"]).iloc[0]
    seeds = None if method == SFT else results.finished_seeds(method)
    rounds, mode = final_rounds(results), results.experiment.eval.primary
    where = where_sql(results, method, rounds, mode, seeds)
    if families:
        where += f" AND family IN ({', '.join(repr(family) for family in families)})"
    sql = f"SELECT avg(success::INT) FROM evals WHERE {where}"
    files_ = eval_files(method, rounds, seeds)
    return Number(float(rate["success"]), "share", sql, files_, rate["low"], rate["high"], int(rate["rollouts"]))
