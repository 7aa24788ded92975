"""The commands `show`, `sql`, `report`, `config` and `track`."""

from __future__ import annotations

import json
import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from turncredit.errors import UserError

ResultsOption = Annotated[Path, typer.Option(help="The results folder, or an experiment's folder in it.")]


class Format(StrEnum):
    """Output format of `sql`."""

    table = "table"
    csv = "csv"
    json = "json"


def sql(
    query: Annotated[
        str, typer.Argument(help="For instance: select method, avg(success::int) from evals group by all")
    ],
    results: ResultsOption = Path("results"),
    format: Annotated[
        Format, typer.Option(help="table prints the first 40 rows; csv and json print all.")
    ] = Format.table,
    out: Annotated[Path | None, typer.Option(help="Write the answer to this .parquet or .csv file instead.")] = None,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Query this Parquet file, as a view of its name, instead of results; repeatable."),
    ] = None,
) -> None:
    """Query all artifacts in SQL (DuckDB).

    Views: turns, measures, credits, run_credits, continuations, forks, labels, hiddens, logprobs, values, branches,
    fidelity, gradients, leaks, invariants, evals, updates, runs, tasks, demos, sft_log, metrics, summary, judge_cache.
    Each has experiment and the keys of its files (policy, method, seed, round, ...); tables about turns have `turn_id`
    to join them. See docs/sql.md.
    """
    from turncredit.results import sql

    sql.run(query, results=results, format=format.value, out=out, files=file or [])


def show(
    what: Annotated[
        str, typer.Argument(help="METHOD/seedK/roundRR, a round's folder in the results, or a Parquet file of turns.")
    ],
    rollout: Annotated[str | None, typer.Argument(help="GROUP/ROLLOUT; without it, all are listed.")] = None,
    turn: Annotated[int | None, typer.Argument(help="Show only this turn, in full.")] = None,
    results: ResultsOption = Path("results"),
    credits: Annotated[
        list[Path] | None, typer.Option(help="Credits tables to show; by default those next to the turns.")
    ] = None,
    components: Annotated[
        bool, typer.Option(help="Show all components of the credit, not only the advantage.")
    ] = False,
) -> None:
    """Show a rollout in the terminal: observation, action, reward, progress, ground truth, each method's credit."""
    from turncredit.pages import show as module

    module.run(what, rollout, turn, results=results, credit_files=credits or [], components=components)


def report(
    results: Annotated[Path, typer.Argument(help="An experiment's folder, such as results/household.")],
    out: Annotated[Path | None, typer.Option(help="Output folder; by default the experiment's report/.")] = None,
) -> None:
    """Build the report (an HTML page, a summary table, the learning curves) and print its table."""
    from turncredit import tables
    from turncredit.outputs import output_folder
    from turncredit.report import report as module
    from turncredit.results import collect

    experiment = collect.read_config(results)
    out = out or results / "report"
    output_folder(out, module.FILES, ours=tables.made_by_stage(out / "summary.parquet", "report"))
    module.report(experiment=experiment, results=results, out=out)
    module.print_table(results)
    print(f"report: {out / 'index.html'}")


def check(
    results: Annotated[Path, typer.Argument(help="The results folder, or one experiment's folder in it.")],
) -> None:
    """Check the invariants of every round (docs/invariants.md). Exit code 1 if one does not hold."""
    from turncredit.cli import check as module

    if module.run(results):
        raise typer.Exit(1)


def config(
    files: Annotated[list[Path], typer.Argument(help="YAML files; later ones override earlier ones.")],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of YAML.")] = False,
) -> None:
    """Validate configuration files and print the resolved configuration, or a one-line error."""
    import yaml

    from turncredit.config import load
    from turncredit.stages.checks import check

    experiment = load(files)
    check(experiment)
    data = experiment.model_dump(mode="json")
    print(
        json.dumps(data, indent=2) if as_json else yaml.safe_dump(data, sort_keys=False),
        end="" if not as_json else "\n",
    )


def track(
    results: Annotated[Path, typer.Argument(help="An experiment's folder, such as results/household.")],
) -> None:
    """Copy the stages' metrics to MLflow (config: tracking.uri). Existing entries are left alone."""
    from turncredit.results import collect, tracking

    experiment = collect.read_config(results)
    if not experiment.tracking.enabled:
        raise UserError(f"{results}/config.json: tracking.enabled is false; nothing is sent to MLflow")
    done = tracking.track(experiment=experiment, results=results)
    print(f"{done['imported']:.0f} stages imported, {done['known']:.0f} already there", file=sys.stderr)
