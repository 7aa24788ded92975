"""The papers' own numbers next to ours, if the experiment is a preset of a paper's table (papers.yaml)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any

import yaml

from turncredit.config.warm_starts import is_start
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid
from turncredit.views.report.outcomes import checkpoint_cell
from turncredit.views.report.selection import Checkpoint


@dataclass(frozen=True)
class Paper:
    """One published table: its source, what can be compared, and its numbers by method and column.

    checkpoint   our checkpoint that corresponds to the paper's: `best`, `last`, or None if the paper does not say
    """

    source: str
    reports: str
    compare: str
    checkpoint: Checkpoint | None
    columns: dict[str, tuple[str, ...]]
    numbers: dict[str, dict[str, str]]


def published() -> dict[str, Paper]:
    """All published tables by the name of the preset's experiment."""
    text = (files("turncredit.views.report") / "papers.yaml").read_text(encoding="utf-8")
    data: dict[str, dict[str, Any]] = next(yaml.safe_load_all(text))  # the settings, which follow, are not parsed
    return {
        name: Paper(
            source=entry["source"],
            reports=entry["reports"],
            compare=entry["compare"],
            checkpoint=entry["checkpoint"],
            columns={column: tuple(families) for column, families in entry["columns"].items()},
            numbers={method: dict(zip(entry["columns"], row, strict=True)) for method, row in entry["numbers"].items()},
        )
        for name, entry in data.items()
    }


#: checkpoint -> the table's name, its title, what ours is, and the heading of our columns
_TABLES: dict[Checkpoint, tuple[str, str, str, str]] = {
    "final": ("paper", "Beside the paper", "mean of the last three evaluated rounds", "here"),
    "last": ("paper_last", "Beside the paper, by our last round", "the last round alone", "here, last"),
    "best": (
        "paper_best",
        "Beside the paper, by our best checkpoint",
        "each seed's best round, selected on these same games: too high by construction, never the headline",
        "here, best",
    ),
}


def papers(results: Results, names: Sequence[str]) -> list[Grid]:
    """Our numbers next to the paper's, by each checkpoint, for experiments that are a paper's preset; else no grid.

    A column covers the task families that it names, or all. The paper's cells are texts: they have no file and no SQL
    here. Checkpoints other than the mean of the last three and the paper's own are folded.
    """
    paper = published().get(results.experiment.experiment)
    if paper is None:
        return []
    methods = [method for method in dict.fromkeys([*names, *paper.numbers]) if method in paper.numbers]
    return [_grid(results, paper, checkpoint, methods) for checkpoint in _TABLES]


def _grid(results: Results, paper: Paper, checkpoint: Checkpoint, methods: Sequence[str]) -> Grid:
    name, title, meaning, heading = _TABLES[checkpoint]
    theirs = f"the {paper.checkpoint} one, where it says so" if paper.checkpoint else "not stated"
    interval = "over seeds only" if checkpoint == "best" else "over seeds and games (games alone with one seed)"
    grid = Grid(
        name=name,
        title=title,
        caption=(
            f"{paper.source}. {paper.reports} {paper.compare} Checkpoint of the paper's numbers: "
            f"{theirs}. Of ours here: {meaning}; 95% intervals {interval}."
        ),
        columns=[
            column
            for key in paper.columns
            for column in (
                Column(f"paper_{key}", f"paper: {key}", f"as the paper reports it ({paper.source}), in percent"),
                Column(key, f"{heading}: {key}", f"{meaning}; finished seeds"),
            )
        ],
        closed=checkpoint not in ("final", paper.checkpoint),
    )
    for method in methods:
        # The SFT policy is one policy: the same in all three tables.
        ours: Checkpoint = "final" if is_start(method) else checkpoint
        row: dict[str, Cell] = {}
        for key, families in paper.columns.items():
            row[f"paper_{key}"] = paper.numbers[method][key]
            row[key] = checkpoint_cell(results, method, ours, {"family": families})
        grid.rows[method] = row
    return grid
