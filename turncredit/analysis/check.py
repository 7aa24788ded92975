"""`turncredit check`: the invariants of everything in a results folder, by hand."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from turncredit.analysis.invariants import RoundFiles
from turncredit.config import Experiment, sampling_slug
from turncredit.credit.configured import configured_method
from turncredit.errors import UserError
from turncredit.results import collect, views


def run(results: str | Path, *, quiet: bool = False) -> int:
    """Check every round of the experiments in `results`; print what fails and a summary. Returns how many failed."""
    from transformers.utils.logging import disable_progress_bar

    from turncredit.analysis.logprobs import check_all

    disable_progress_bar()
    broken = checked = rounds = 0
    for folder in views.experiment_folders(results):
        experiment = collect.read_config(folder)
        for files in rounds_in(folder, experiment):
            if not quiet and sys.stderr.isatty():
                print(f"\r\x1b[K{files.run} seed {files.seed} round {files.round}", end="", file=sys.stderr, flush=True)
            rows = check_all(experiment, files)
            rounds, checked = rounds + 1, checked + len(rows)
            for row in (row for row in rows if not row["holds"]):
                broken += 1
                where = f"{folder.name}: {row['run']} seed {row['seed']} round {row['round']}"
                print(f"FAILS {row['name']:<13} {where}: {row['detail']}")
    if not quiet and sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    if not rounds:
        raise UserError(f"{results}: no rollouts yet (no turns.parquet); there is nothing to check")
    verdict = f"{broken} do not hold" if broken else "all hold"
    print(f"{checked} invariants in {rounds} rounds: {verdict}")
    return broken


def rounds_in(folder: Path, experiment: Experiment) -> Iterator[RoundFiles]:
    """The artifacts of every round that has turns, of the runs and of the audits in an experiment's folder."""
    folder = folder.resolve()
    for method, seed in _runs_in(folder):
        configured_method(experiment, method)  # a run that the configuration knows nothing of can't be checked
        sampled = folder / "sft" / "rollouts" / sampling_slug(experiment.section_for(method, "rollout"))
        for path in sorted((folder / "runs" / method / f"seed{seed}").glob("round*"), key=_number):
            files = _files(folder, method, seed, _number(path), sampled / f"seed{seed}")
            if files is not None:
                yield files
                audit = folder / "audit" / method / f"seed{seed}" / path.name
                if audit.is_dir():
                    yield _audited(files, audit)


def _runs_in(folder: Path) -> list[tuple[str, int]]:
    return sorted((path.parent.name, int(path.name.removeprefix("seed"))) for path in folder.glob("runs/*/seed*"))


def _number(path: Path) -> int:
    return int(path.name.removeprefix("round"))


def _files(folder: Path, method: str, seed: int, round: int, shared: Path) -> RoundFiles | None:
    """A round of a run; round 1's turns are the SFT policy's, shared with other runs. None before it has begun."""
    run = folder / "runs" / method / f"seed{seed}"
    at = run / f"round{round:02d}"
    beside = shared if round == 1 else at / "rollouts"
    credits = _there({method: at / "credits.parquet"})
    if not credits and not (beside / "turns.parquet").exists():
        return None
    policy = folder / "sft" / "policy" if round == 1 else run / f"round{round - 1:02d}" / "policy"
    return RoundFiles(
        run=method,
        seed=seed,
        round=round,
        turns=beside / "turns.parquet",
        credits=credits,
        values=_there({method: at / "values.parquet"}),
        labels=tuple(sorted((beside / "labels").glob("*.parquet"))),
        updates=_file(at / "updates.parquet"),
        evals=_file(at / "evals.parquet"),
        beside=_tables("hiddens", sorted(beside.glob("hiddens*.parquet"))),
        policy=policy if policy.is_dir() else None,
    )


def _audited(files: RoundFiles, audit: Path) -> RoundFiles:
    """The audit of a run's round: other methods' credits on the same turns."""
    named = {
        kind: {path.stem: path for path in sorted((audit / kind).glob("*.parquet"))} for kind in ("credits", "values")
    }
    others = [(name, path) for name in AUDIT_TABLES if (path := audit / f"{name}.parquet").exists()]
    return RoundFiles(
        run=files.run,
        seed=files.seed,
        round=files.round,
        turns=files.turns,
        **named,
        labels=files.labels,
        beside=(*files.beside, *_tables("hiddens", sorted(audit.glob("hiddens*.parquet"))), *others),
    )


def _tables(name: str, paths: Sequence[Path]) -> tuple[tuple[str, Path], ...]:
    return tuple((name, path) for path in paths)


def _there(paths: dict[str, Path]) -> dict[str, Path]:
    return {name: path for name, path in paths.items() if path.exists()}


def _file(path: Path) -> Path | None:
    return path if path.exists() else None


#: what the audit of a round writes beside the credits
AUDIT_TABLES = ("branches", "fidelity", "gradients", "leaks")
