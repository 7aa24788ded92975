"""The commands `show`, `sql`, `report`, `track`, `check` and `clean`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Annotated, Literal

import typer

from turncredit.errors import UserError

ResultsOption = Annotated[Path, typer.Option(help="The results folder, or an experiment's folder in it.")]


def sql(
    query: Annotated[
        str, typer.Argument(help="For instance: select method, round, seed, success, low, high from success")
    ],
    results: ResultsOption = Path("results"),
    format: Annotated[
        Literal["table", "csv", "json"], typer.Option(help="table prints the first 40 rows; csv and json print all.")
    ] = "table",
    out: Annotated[Path | None, typer.Option(help="Write the answer to this .parquet or .csv file instead.")] = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Include artifacts that the configuration would not make.")
    ] = False,
    file: Annotated[
        list[Path] | None,
        typer.Option(help="Query this Parquet file, as a view of its name, instead of results; repeatable."),
    ] = None,
) -> None:
    """Query all artifacts in SQL (DuckDB).

    "show tables" lists the views, "describe turns" the columns of one. Each has experiment and the keys of its files
    (policy, method, seed, round, ...); tables about turns have `turn_id` to join them. See docs/sql.md.
    """
    from turncredit.config.layout import Layout
    from turncredit.views import sql

    make_layout: Callable[[Path], Layout] = Layout
    if not everything and not file:
        from turncredit.pipeline import expected_artifacts

        make_layout = expected_artifacts.current
    sql.run(query, results=results, format=format, out=out, make_layout=make_layout, files=file or [])


def show(
    what: Annotated[
        str, typer.Argument(help="METHOD/seedK/roundRR, a round's folder in the results, or a Parquet file of turns.")
    ],
    rollout: Annotated[
        str | None, typer.Argument(help="GROUP/ROLLOUT. Without it all are listed, those with ground truth first.")
    ] = None,
    turn: Annotated[int | None, typer.Argument(help="Show only this turn, in full.")] = None,
    results: ResultsOption = Path("results"),
    credits: Annotated[
        list[Path] | None, typer.Option(help="Credits tables to show; by default those of the configured methods.")
    ] = None,
    components: Annotated[
        bool, typer.Option(help="Show all components of the credit, not only the advantage.")
    ] = False,
) -> None:
    """Show a rollout in the terminal: observation, action, reward, progress, ground truth, each method's credit."""
    from turncredit.pipeline import expected_artifacts
    from turncredit.views.show import command

    command.run(
        what,
        rollout,
        turn,
        results=results,
        credit_files=credits or [],
        components=components,
        make_layout=expected_artifacts.current,
    )


def report(
    results: Annotated[Path, typer.Argument(help="An experiment's folder, such as results/household.")],
    out: Annotated[Path | None, typer.Option(help="Output folder; by default the experiment's report/.")] = None,
) -> None:
    """Build the report (an HTML page, a summary table, the learning curves) and print its table."""
    from turncredit.data import provenance
    from turncredit.data.output_paths import output_folder
    from turncredit.pipeline import expected_artifacts, job_script
    from turncredit.pipeline.job import JobKeys
    from turncredit.views import collect
    from turncredit.views.report import report as module

    experiment = collect.read_config(results)
    out = out or results / "report"
    output_folder(out, module.FILES, ours=provenance.made_by_stage(out / "summary.parquet", "report"))
    module.report(experiment=experiment, results=results, out=out, make_layout=expected_artifacts.current)
    if out.resolve() == (results / "report").resolve():
        with suppress(UserError):  # a method of one's own that is gone: the plan is not known
            job_script.rewritten(expected_artifacts.plan_of(results), "report", JobKeys())
    module.print_table(results, expected_artifacts.current)
    print(f"report: {out / 'index.html'}")


def check(
    results: Annotated[Path, typer.Argument(help="The results folder, or one experiment's folder in it.")] = Path(
        "results"
    ),
    repair: Annotated[
        bool, typer.Option("--repair", help="Remove the files that must be made again; then run the experiment.")
    ] = False,
) -> None:
    """Compare the artifacts with the configuration, and check the invariants of every round (docs/audit.md).

    Exit code 1 if an artifact is missing, damaged, changed or stale, or an invariant does not hold.
    """
    from turncredit.cli import check as module

    if module.run(results, repair=repair):
        raise typer.Exit(1)


def clean(
    results: Annotated[Path, typer.Argument(help="The results folder, or one experiment's folder in it.")],
    stale: Annotated[
        bool, typer.Option("--stale", help="The artifacts that the current configuration would not make.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove them; without this option they are only listed.")] = False,
) -> None:
    """List or remove artifacts that an experiment's configuration would not make, with their metrics and logs.

    Also the states of unfinished updates that no job would go on from. They are left by methods, rounds, seeds or
    settings that the configuration no longer has, or were requested by path.
    """
    from turncredit.pipeline import integrity, locks
    from turncredit.pipeline.expected_artifacts import plans_of
    from turncredit.views.experiments import experiment_folders

    if not stale:
        raise UserError("clean: add --stale, to list the artifacts that the configuration would not make")
    count = 0
    for folder, plan in plans_of(experiment_folders(results)):
        if isinstance(plan, UserError):
            print(f"left alone {folder}: {plan}")
            continue
        paths = integrity.unplanned_files(plan)
        if yes and paths:
            locks.refuse_while_running(plan.layout.root)
            integrity.remove(plan.layout.root, paths)
        for path in paths:
            print(f"{'removed' if yes else 'would remove'} {path}")
        count += len(paths)
    if not count:
        print("nothing to remove: the configuration would make every artifact there is")
    elif not yes:
        print(f"{count} files and folders; --yes removes them")


def track(results: Annotated[Path, typer.Argument(help="An experiment's folder, such as results/household.")]) -> None:
    """Copy the stages' metrics to MLflow (config: tracking.uri). Existing entries are left alone.

    Metrics of jobs that the experiment's configuration would not run are left out, as in report and SQL.
    """
    from turncredit.pipeline import expected_artifacts
    from turncredit.views import tracking
    from turncredit.views.experiments import read_config

    experiment = read_config(results)
    if not experiment.tracking.enabled:
        raise UserError(
            f"{results}/config.json: tracking.enabled is false, so nothing is sent to MLflow; set it to true"
        )
    done = tracking.track(experiment=experiment, results=results, make_layout=expected_artifacts.current)
    print(f"{done['imported']:.0f} stages imported, {done['known']:.0f} already there", file=sys.stderr)
