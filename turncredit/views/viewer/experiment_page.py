"""An experiment's page: its learning curves, and its runs round by round."""

from __future__ import annotations

from typing import Any

from markupsafe import Markup

from turncredit.config import Experiment
from turncredit.views.pages.frame import Place, render
from turncredit.views.viewer.activity import Activity
from turncredit.views.viewer.charts import Chart, chart
from turncredit.views.viewer.context import REFRESH, Context
from turncredit.views.viewer.records import Cell, Overview

#: Rounds with ground truth that are named.
NAMED = 6
#: What a learning curve does not show.
OWN_GAMES = "Each round has its own games: compare methods within a round, not rounds along a line."


def page(context: Context, name: str) -> str:
    """An experiment: its learning curves, and its runs round by round. Raises UserError."""
    source = context.given.experiment(name)
    overview = context.overview(source)
    doing = context.activity_of(source.folder)
    experiment = overview.experiment
    frame = context.frame([*context.home_place(), Place(name, None)], refresh=REFRESH if context.addresses.live else 0)
    done = sum(cell.state == "done" for cells in overview.runs.values() for cell in cells)
    return render(
        "experiment.html.j2",
        frame,
        name=name,
        facts=_facts(experiment, overview, doing, done),
        charts=_charts(overview),
        measured=_measured(context, name, overview),
        grid=_grid(context, name, overview, doing),
        rounds=experiment.rounds,
        failed=doing.failed,
        collapsed=[str(one) for one in overview.collapsed],
        complete=overview.complete,
        whole=context.addresses.live,
        compare=context.addresses.compare(name),
        trail=context.addresses.trail(name) if source.layout.path("summary") else None,
    )


def _facts(experiment: Experiment, overview: Overview, doing: Activity, done: int) -> list[str]:
    total = sum(len(cells) for cells in overview.runs.values())
    facts = [f"{done:,} of {total:,} rounds done", f"{len(experiment.trained())} methods"]
    facts += [f"{len(experiment.seeds)} seeds", f"{experiment.rounds} rounds"]
    running = sum(work.state == "running" for work in doing.works)
    facts += [f"{running} running"] if running else []
    facts += [f"{len(doing.failed)} failed"] if doing.failed else []
    return facts


def _measured(context: Context, name: str, overview: Overview) -> dict[str, Any]:
    """The rounds whose turns have a measured true advantage, by words and address, and how many are not named."""
    turns = dict.fromkeys(cell.turns for cells in overview.runs.values() for cell in cells if cell.branched)
    found = [(context.round_words(name, one), context.addresses.round(name, one)) for one in turns]
    return {"rounds": found[:NAMED], "more": len(found[NAMED:])}


def _grid(context: Context, name: str, overview: Overview, doing: Activity) -> list[dict[str, Any]]:
    """A row for each run: its name, and its rounds as links."""
    at_work = {(work.who, work.seed, work.round): work for work in doing.works}
    failed = {(one.who, one.seed, one.round) for one in doing.failed}
    collapsed = {(one.method, one.seed, one.round) for one in overview.collapsed}
    rows = []
    for (method, seed), cells in overview.runs.items():
        texts, behind = [], False  # a job of several rounds is at the first of them that is not done
        for cell in cells:
            at = (method, seed, cell.round)
            work = at_work.get(at) or at_work.get((cell.turns.split("/")[0], seed, cell.round))
            doing_it = "queued" if behind else work.state if work else ""
            behind = behind or bool(work and cell.state != "done")
            state = "failed" if at in failed else doing_it if work else cell.state
            texts.append(_cell(context, name, method, cell, state, at in collapsed, work.stage if work else ""))
        known = [cell for cell in cells if cell.evaluated is not None]
        rows.append(
            {
                "method": method,
                "seed": seed,
                "again": bool(rows) and rows[-1]["method"] == method,
                "done": sum(cell.state == "done" for cell in cells),
                "success": f"{100 * (known[-1].evaluated or 0):.0f}%" if known else "",
                "cells": Markup("").join(texts),
            }
        )
    return rows


def _cell(context: Context, name: str, method: str, cell: Cell, state: str, collapsed: bool, stage: str) -> Markup:
    words = [f"round {cell.round}: {stage + ' ' if stage else ''}{state}"]
    words += [f"training {100 * cell.training:.0f}%"] if cell.training is not None else []
    words += [f"held out {100 * cell.evaluated:.0f}%"] if cell.evaluated is not None else []
    words += ["not evaluated"] if cell.state == "done" and cell.evaluated is None else []
    words += ["ground truth"] if cell.branched else []
    words += ["collapsed"] if collapsed else []
    unknown = ["unevaluated"] if cell.evaluated is None and cell.state != "missing" else []
    classes = " ".join([state, *unknown, *(["truth"] if cell.branched else []), *(["collapsed"] if collapsed else [])])
    share = f"{cell.evaluated or 0:.2f}"
    address = context.addresses.round(name, cell.turns, {"method": method}) if cell.state != "missing" else None
    if address is None:
        words += ["not in this export"] if cell.state != "missing" else []
        return Markup('<span class="k {}" title="{}"></span>').format(classes, ", ".join(words))
    return Markup('<a class="k {}" href="{}" title="{}" style="--s:{}"></a>').format(
        classes, address, ", ".join(words), share
    )


def _charts(overview: Overview) -> list[Chart]:
    """Success on held-out games and in training, by round. A warm start is round 0; training begins with round 1."""
    rounds, found = overview.experiment.rounds, []
    games = OWN_GAMES if overview.experiment.eval.fresh else ""
    for title, what, caption, first in (
        ("Success on held-out games", "evaluated", games, 0),
        ("Success of training rollouts", "training", OWN_GAMES, 1),
    ):
        points: dict[str, dict[int, list[float]]] = {}
        for (method, _), cells in overview.runs.items():
            for cell in cells:
                if (value := getattr(cell, what)) is not None:
                    points.setdefault(method, {}).setdefault(cell.round, []).append(value)
        methods = list(dict.fromkeys(method for method, _ in overview.runs))
        marks = overview.starts if what == "evaluated" else {}
        drawn = chart(title, caption, points, (first, rounds), marks, methods)
        found += [drawn] if drawn else []
    return found
