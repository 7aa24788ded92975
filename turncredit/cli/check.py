"""`turncredit check`: check the invariants of everything in a results folder."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

from turncredit import tables
from turncredit.analysis.equal_steps import RunRound, Spent, unequal
from turncredit.analysis.invariants import CheckSettings, RoundFiles
from turncredit.config import Experiment
from turncredit.errors import UserError
from turncredit.layout import ARTIFACTS, Layout, refuse_old
from turncredit.results import collect, views
from turncredit.stages.invariants import check_settings, round_files, run_settings
from turncredit.stages.job import PROVENANCE_FILE, At, content_hash
from turncredit.stages.plan import Plan
from turncredit.stages.rollout_invariants import audited_files
from turncredit.starts import SFT


def run(results: str | Path, *, quiet: bool = False) -> int:
    """Check every round of the experiments in `results`; print what fails and a summary. Returns how many failed."""
    from transformers.utils.logging import disable_progress_bar

    from turncredit.analysis.logprobs import check_all

    disable_progress_bar()
    broken = checked = rounds = 0
    for folder in views.experiment_folders(results):
        refuse_old(folder)
        experiment = collect.read_config(folder)
        for settings, files in rounds_in(folder, experiment):
            if not quiet and sys.stderr.isatty():
                print(f"\r\x1b[K{files.run} seed {files.seed} round {files.round}", end="", file=sys.stderr, flush=True)
            rows = check_all(settings, files)
            rounds, checked = rounds + 1, checked + len(rows)
            for row in (row for row in rows if not row["holds"]):
                broken += 1
                where = f"{folder.name}: {row['run']} seed {row['seed']} round {row['round']}"
                print(f"FAILS {row['name']:<13} {where}: {row['detail']}")
        for path in folders_written(folder):
            checked += 1
            if tables.file_hash(path, without=PROVENANCE_FILE) != content_hash(path):
                broken += 1
                print(f"FAILS {'content':<13} {path}: changed since it was written; delete it and run again")
        spent = steps_taken(folder)
        checked += bool(spent)
        for line in unequal(experiment, spent):
            broken += 1
            print(f"FAILS {'equal_steps':<13} {folder.name}: {line}")
    if not quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if not rounds:
        raise UserError(f"{results}: no rollouts yet (no turns.parquet); there is nothing to check")
    verdict = f"{broken} violated" if broken else "all hold"
    print(f"{checked} invariants in {rounds} rounds: {verdict}")
    return broken


def rounds_in(folder: Path, experiment: Experiment) -> Iterator[tuple[CheckSettings, RoundFiles]]:
    """The artifacts of every round that has turns, of runs and audits, and the settings of their checks.

    Raises UserError for a run that is not in the configuration: it cannot be checked.
    """
    plan = Plan(experiment.model_copy(update={"experiment": folder.name}), folder.parent)
    runs = sorted({(str(found.keys["method"]), int(found.keys["seed"])) for found in plan.layout.find("updates")})
    for method, seed in (run for run in runs if run[0] != SFT):
        settings = run_settings(plan, method)
        for round in range(1, 1000):
            files = round_files(plan, method, seed, round)
            if not files.turns.exists() and not (round == 1 and files.credits[method].exists()):
                break
            yield settings, there(files)
    for found in plan.layout.find("branches"):
        at = At(**found.keys)  # type: ignore[arg-type]
        yield check_settings(plan, at.policy, plan.audit_methods), there(audited_files(plan, at))


def folders_written(folder: Path) -> Iterator[Path]:
    """The policies, and other folders, whose content was hashed when they were written."""
    for artifact in ARTIFACTS.values():
        if artifact.folder:
            paths = (found.path for found in Layout(folder).find(artifact.name))
            yield from (path for path in paths if (path / PROVENANCE_FILE).is_file())


def steps_taken(folder: Path) -> dict[RunRound, Spent]:
    """Optimiser steps, sequences and tokens of every update on disk."""
    spent = {}
    for found in Layout(folder).find("updates"):
        log = tables.read(found.path, "updates", ["sequences", "tokens"])
        run = RunRound(str(found.keys["method"]), int(found.keys["seed"]), int(found.keys["round"]))
        sequences, tokens = (sum(log.column(name).to_pylist()) for name in ("sequences", "tokens"))
        spent[run] = Spent(log.num_rows, sequences, tokens)
    return spent


def there(files: RoundFiles) -> RoundFiles:
    """Only the files that are on disk; the turns in any case."""
    return files.model_copy(
        update={
            **{name: {key: path for key, path in getattr(files, name).items() if path.exists()} for name in _BY_METHOD},
            **{name: path if path and path.exists() else None for name in _SINGLE if (path := getattr(files, name))},
            "labels": tuple(path for path in files.labels if path.exists()),
            "beside": tuple((name, path) for name, path in files.beside if path.exists()),
        }
    )


_BY_METHOD = ("credits", "values", "continuations", "forks")
_SINGLE = ("updates", "evals", "policy")
