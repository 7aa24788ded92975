"""`turncredit view`: the artifacts in a browser."""

from __future__ import annotations

import sys
import webbrowser
from pathlib import Path
from typing import Annotated

import typer

from turncredit.cli import status
from turncredit.config.stages import stages
from turncredit.data.counts import number_of
from turncredit.errors import UserError
from turncredit.pipeline import failures, locks
from turncredit.pipeline.expected_artifacts import plan_of
from turncredit.pipeline.plan import Plan
from turncredit.views.viewer.activity import NOTHING, Activity, Failed, Work
from turncredit.views.viewer.export import export as write
from turncredit.views.viewer.given import Given
from turncredit.views.viewer.server import LOOPBACK, PORT, is_loopback, serve
from turncredit.views.viewer.viewer import Viewer

#: What the pages of an export are about, by their kind.
KINDS = {
    "round": "rounds",
    "group": "groups",
    "rollout": "rollouts",
    "pair": "pairs",
    "methods": "two methods",
    "rounds": "two rounds",
    "numbers": "reports' numbers",
    "number": "single numbers",
    "file": "files",
}
#: Where Snakemake keeps its state, below the folder in which it runs.
STATE = ".snakemake"


def view(
    what: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A results folder, experiments' folders, folders of tables, or tables of turns, each with credits, "
            "branches and labels after it. By default results."
        ),
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=1, max=65535, help=f"The port; by default the first free one from {PORT} on.")
    ] = None,
    browser: Annotated[bool, typer.Option("--browser/--no-browser", help="Open the browser.")] = True,
    host: Annotated[
        str, typer.Option(help="The address to listen on. Any other than the default can be reached from outside.")
    ] = LOOPBACK,
    export: Annotated[
        Path | None, typer.Option(help="Write pages as files into this folder instead, to send or to put on a server.")
    ] = None,
    round_: Annotated[
        list[str] | None,
        typer.Option(
            "--round",
            help="With --export: a round, such as gigpo/seed0/round03; repeatable. By default those with ground truth, "
            "or the last round of each run.",
        ),
    ] = None,
    rollouts: Annotated[int, typer.Option(min=1, help="With --export: the most rollouts of a round with a page.")] = 24,
    max_size: Annotated[float, typer.Option(min=0.1, help="With --export: the most megabytes of all pages.")] = 50.0,
) -> None:
    """Look at any rollout of any run in the browser, also while it trains. Read-only; Ctrl-C ends it."""
    viewer = Viewer(Given(what or [Path("results")]), activity_of=activity_of)
    for line in viewer.given.problems():
        print(f"turncredit: {line}", file=sys.stderr)
    if export is not None:
        limits = f"at most {rollouts} rollouts of each and {max_size:g} MB in all"

        def begun(rounds: int) -> None:
            print(f"{export}: writing pages of {number_of(rounds, 'round')}, {limits}", file=sys.stderr)

        made = write(viewer, export, rounds=round_ or [], count=rollouts, megabytes=max_size, started=begun)
        print(f"{export / 'index.html'}: {made.pages} pages, {made.size / 1e6:.1f} MB")
        if made.left_out:
            kinds = ", ".join(f"{count} {KINDS[kind]}" for kind, count in made.left_out.items())
            print(f"left out, because --max-size is {max_size:g}: pages of {kinds}", file=sys.stderr)
        return
    if not is_loopback(host):
        print(
            f"turncredit: warning: other machines can reach {host}; whoever has the address with its token sees all "
            "that is shown, unencrypted",
            file=sys.stderr,
        )

    def started(address: str) -> None:
        print("the viewer is at this address until Ctrl-C ends it:", file=sys.stderr)
        print(address, flush=True)
        if browser:
            webbrowser.open(address)

    serve(viewer, host, port, started)


def activity_of(folder: Path) -> Activity:
    """What Snakemake does in the experiment's folder, and which of its jobs have failed since they last ended well."""
    base = next(iter(locks.workplaces(folder)), None)
    if base is None:
        return NOTHING
    try:
        plan = plan_of(folder)
    except UserError:
        return NOTHING
    working = locks.holder(base / STATE, f"results/{folder.name}") is not None
    stage_of = {kind.name: one.name for one in stages().values() for kind in one.makes.values()}
    works = []
    for path, job in locks.being_made(base / STATE).items():
        located = plan.layout.locate(base / path)
        if located is None or "round" not in located.keys:
            continue
        keys = located.keys
        state = "submitted" if job is not None else "running" if working else "interrupted"
        who = str(keys.get("method") or keys.get("policy"))
        works.append(Work(stage_of[located.artifact], who, int(keys["seed"]), int(keys["round"]), state))
    failed = [
        shown
        for failure in failures.failures_in(str(folder), base)
        if (shown := _failed(plan, failure, base)) is not None
    ]
    return Activity(works, failed, working)


def _failed(plan: Plan, failure: failures.Failure, base: Path) -> Failed | None:
    """A failed job as the page shows it; None if it has ended well since, or is of another version."""
    try:
        steps = status.steps_of(plan, failure)
    except (TypeError, ValueError):
        return None
    if not status.still_failed(plan, steps, failure):
        return None
    at = steps[0][1]
    log = (base / failure.log).resolve() if failure.log else None
    tail = status.tail(log) if log is not None and log.is_relative_to(plan.layout.root) else []
    return Failed(failure.line, failure.log or "", tail, at.method or at.policy, at.seed, at.round)
