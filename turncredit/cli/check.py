"""`turncredit check`: compare everything in a results folder with the plan, and check its invariants."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.audit import collapse
from turncredit.audit.checked_round import CheckSettings, RoundFiles
from turncredit.audit.equal_steps import RunUpdate, Spent, counted, unequal
from turncredit.data import tables
from turncredit.data.counts import number_of
from turncredit.errors import UserError, require
from turncredit.pipeline import integrity, locks
from turncredit.pipeline.expected_artifacts import plans_of
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.invariants import check_settings, round_files, run_settings
from turncredit.pipeline.stages.rollout_invariants import audited_files
from turncredit.views.experiments import experiment_folders
from turncredit.views.sql_views import metrics_table

#: Invariants that the comparison with the plan contains; it finds the file that is to blame.
COMPARED = ("schemas", "made_from")


def run(results: str | Path, *, quiet: bool = False, repair: bool = False) -> int:
    """Check the experiments in `results`, print what fails or `repair` it, and a summary. Returns how many failed."""
    folders = experiment_folders(results)  # before the imports, which take seconds
    require("pandas", "transformers")  # the end and the middle of the work need them
    from transformers.utils.logging import disable_progress_bar

    from turncredit.audit.logprobs import check_all

    disable_progress_bar()
    broken = checked = rounds = artifacts = 0
    kinds: set[str] = set()
    for folder, plan in plans_of(folders):
        probed: dict[str, Any] | None = None
        if isinstance(plan, UserError):
            broken += 1
            print(f"FAILS {'config':<13} {folder.name}: {plan}")
            continue
        experiment, comparison = plan.experiment, integrity.compare(plan)
        artifacts += comparison.checked
        broken += len(comparison.problems)
        for problem in comparison.problems:
            print(f"FAILS {problem.kind:<13} {problem.path}: {problem.why}")
        for settings, every in rounds_in(plan):
            files = without(every, comparison.unreadable)
            if not quiet and sys.stderr.isatty():
                print(f"\r\x1b[K{files.run} seed {files.seed} round {files.round}", end="", file=sys.stderr, flush=True)
            rows = check_all(settings, files)
            rounds, checked = rounds + 1, checked + len(rows)
            kinds |= {row["name"] for row in rows}
            probed = max((row for row in (probed, *rows) if row and row["name"] == "states"), key=_worst, default=None)
            for row in (row for row in rows if not row["holds"] and not already_reported(row, comparison)):
                broken += 1
                where = f"{folder.name}: {row['run']} seed {row['seed']} round {row['round']}"
                print(f"FAILS {row['name']:<13} {where}: {row['detail']}")
        if probed and probed["holds"]:
            at = f"{probed['run']} seed {probed['seed']} round {probed['round']}"
            print(f"{folder.name}: hidden states that models read, where they say least ({at}): {probed['detail']}")
        if not comparison.problems:  # metrics that cannot be read were reported above
            for collapsed in collapse.collapses(experiment, metrics_table([plan.layout]).to_pandas()):
                print(f"WARNS {'collapse':<13} {folder.name}: {collapsed}")
        spent = steps_taken(plan, comparison.unreadable)
        checked += bool(spent)
        kinds |= {"equal_steps"} if spent else set()
        for line in unequal(experiment, spent):
            broken += 1
            print(f"FAILS {'equal_steps':<13} {folder.name}: {line}")
        say_what_to_do(plan, comparison, repair=repair)
    if not quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if not rounds:
        raise UserError(f"{results}: no rollouts yet (no turns.parquet); run the experiment first")
    verdict = f"{broken} violated" if broken else "all hold"
    print(f"{artifacts} artifacts compared with the plan, {counted(checked, len(kinds), rounds)}: {verdict}")
    return broken


def rounds_in(plan: Plan) -> Iterator[tuple[CheckSettings, RoundFiles]]:
    """The artifacts of every configured round that has turns, of runs and audits, and the settings of their checks."""
    for method, seed in plan.experiment.runs():
        settings = run_settings(plan, method)
        for round in range(1, plan.experiment.rounds + 1):
            files = round_files(plan, method, seed, round)
            if not files.turns.exists() and not (round == 1 and files.credits[method].exists()):
                break
            yield settings, files.on_disk()
    for at in plan.audited:
        if Path(plan.layout.path("branches", at.keys)).exists():
            yield check_settings(plan, at.policy, plan.audit_methods), audited_files(plan, at).on_disk()


def _worst(row: Mapping[str, Any]) -> float:
    return float(row["worst"] or 0.0)


def already_reported(row: Mapping[str, Any], comparison: integrity.Compared) -> bool:
    """Whether the comparison has already reported the cause: a file that is unreadable or has changed."""
    if not comparison.problems:
        return False
    return row["name"] in COMPARED or any(f"{path}:" in row["detail"] for path in comparison.unreadable)


def say_what_to_do(plan: Plan, comparison: integrity.Compared, *, repair: bool) -> None:
    """Print how to repair what was found, or with `repair` remove what must be made again."""
    root = plan.layout.root
    if comparison.waiting:
        have = "has" if comparison.waiting == 1 else "have"
        print(f"{root.name}: {number_of(comparison.waiting, 'job')} of the configuration {have} not run yet")
    if comparison.unplanned:
        first = comparison.unplanned[0].path.relative_to(root)
        several = f" and {len(comparison.unplanned) - 1} more" if len(comparison.unplanned) > 1 else ""
        print(
            f"{root.name}: the configuration would not make {first}{several}: left out of report and SQL; listed "
            f"by turncredit clean --stale {root}"
        )
    if comparison.problems and not repair:
        print(f"{root.name}: turncredit check --repair {root} removes what must be made again")
    elif comparison.problems:
        locks.refuse_while_running(root)
        paths = integrity.to_remove(plan, comparison.problems)
        integrity.remove(root, paths)
        for path in paths:
            print(f"removed {path}")
        print(f"{root.name}: run the command that made these results again; it makes the removed files again")


def without(files: RoundFiles, unreadable: Collection[str]) -> RoundFiles:
    """The files of a round without the policy if that is damaged: this was reported, and no check could load it."""
    damaged = files.policy is not None and str(files.policy) in unreadable
    return files.model_copy(update={"policy": None}) if damaged else files


def steps_taken(plan: Plan, unreadable: Collection[str]) -> dict[RunUpdate, Spent]:
    """Optimiser steps, sequences and tokens of every update of the configured runs on disk that can be read."""
    spent, configured = {}, set(plan.experiment.runs())
    for artifact in plan.layout.find("updates"):
        at = RunUpdate(str(artifact.keys["method"]), int(artifact.keys["seed"]), int(artifact.keys["round"]))
        if (at.method, at.seed) not in configured or str(artifact.path) in unreadable:
            continue
        log = tables.read(artifact.path, "updates", ["sequences", "tokens"])
        sequences, tokens = (sum(log.column(name).to_pylist()) for name in ("sequences", "tokens"))
        spent[at] = Spent(log.num_rows, sequences, tokens)
    return spent
