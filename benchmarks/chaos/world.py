"""The experiment that faults are injected into, made once without any; copies of it; and what must be the same after.

The experiment is the tests' (config/test/tiny.yaml) with `CHANGES`, which add methods and an audit so that every kind
of artifact is among its files. Everything runs from a copy of the repository, `source`, so that edits to the checkout
while faults are injected change nothing: tables name the version of the code.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import yaml

from turncredit.config import from_mapping, merge
from turncredit.data.files import write_text
from turncredit.pipeline import rounds
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.job import Store
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
TINY = "config/test/tiny.yaml"
CHANGES: dict[str, Any] = {
    "experiment": "chaos",
    "methods": ["flat_grpo", "vine", "tree", "istar"],
    "define": {
        "vine": {"base": "vineppo", "continuations": {"per_state": 1}},
        "tree": {"base": "carl", "rollout": {"group_size": 1}, "forks": {"per_task": 3}, "update": {"minibatch": 4}},
    },
    "audit": {
        "rounds": [2],
        "methods": ["flat_grpo", "has_progressive", "has_judge", "turn_value", "hcapo"],
        "pages": 2,
        "branch": {"turns": 6, "min_continuations": 2, "max_continuations": 4, "reference_continuations": 2},
    },
    "keep_policies": "all",
}
#: What a folder needs for Snakemake to run in it.
PIPELINE = ("Snakefile", "rules", "workflow_scripts", "config.yaml", "config", "profiles", "slurm", "envs_conda")
#: Files that hold times, or are no results.
NOT_COMPARED = ("metrics", "logs", "report")


def copy_of_source(folder: Path) -> Path:
    """A copy of the library, the pipeline and this benchmark in `folder`, made once."""
    source = folder / "source"
    if not source.exists():
        part = folder / "source.part"
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        for name in (*PIPELINE, "turncredit", "benchmarks/chaos"):
            path, ignore = ROOT / name, shutil.ignore_patterns("__pycache__")
            shutil.copytree(path, part / name, ignore=ignore) if path.is_dir() else shutil.copy(path, part / name)
        part.rename(source)
    return source


def experiment(**changes: Any) -> dict[str, Any]:
    """The experiment's configuration as plain data, with `changes` merged over it."""
    files = (yaml.safe_load((ROOT / name).read_text(encoding="utf-8")) for name in ("config.yaml", TINY))
    return merge(*files, CHANGES, changes)


def plan_in(folder: Path, **changes: Any) -> Plan:
    """The plan of the experiment whose results are in `folder`/results."""
    return Plan(from_mapping(experiment(**changes)), folder / "results")


def perform(plan: Plan, steps: Iterable[Step]) -> None:
    """Run these jobs in this process, each as in a process of its own; those that are up to date are skipped."""
    for stage, at in steps:
        job = plan.job(stage, at, store=Store())
        if not job.is_made() or not os.path.exists(plan.metrics(stage, at)):
            rounds.run_stage(plan, job)


def make(folder: Path) -> Plan:
    """The experiment in `folder`, all of it made; what is there already is kept."""
    plan = plan_in(folder)
    # MLflow's copy last: nothing else counts what was tracked.
    jobs = sorted(every_job(plan), key=lambda step: step[0] == "track")
    perform(plan, (step for step in jobs if not os.path.exists(plan.metrics(*step))))
    write_text(folder / "chaos.yaml", yaml.safe_dump(CHANGES))
    return plan


def copy(baseline: Path, folder: Path, gone: Iterable[str | Path] = ()) -> Path:
    """A fresh copy of the results in `baseline`, without the paths `gone` (below `baseline`), in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    return copy_into(baseline, folder, gone)


def copy_into(baseline: Path, folder: Path, gone: Iterable[str | Path] = ()) -> Path:
    """The same in a folder that is there and empty."""
    shutil.copytree(baseline / "results", folder / "results", symlinks=True)
    for path in gone:
        target = folder / Path(path).relative_to(baseline)
        shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
    return folder


def content(results: Path) -> dict[str, str]:
    """The hash of every result below a folder by its path: tables, weights and records, without what holds times."""
    hashes = {}
    for path in sorted(results.rglob("*")):
        relative = path.relative_to(results)
        hidden = any(part.startswith(".") for part in relative.parts)
        compared = not hidden and not set(relative.parts) & set(NOT_COMPARED)
        if compared and path.suffix in (".parquet", ".safetensors", ".json") and path.is_file():
            hashes[str(relative)] = hashlib.sha256(path.read_bytes()).hexdigest()[:16]
    return hashes


def leftovers(results: Path) -> list[str]:
    """Files and folders with temporary names."""
    return [str(path.relative_to(results)) for path in results.rglob(".*") if path.suffix in (".part", ".old")]


def differences(results: Path, expected: dict[str, str], *, complete: bool) -> list[str]:
    """The results that differ from those made without a fault; `complete`: also those that are not there."""
    now = content(results)
    missing = [name for name in expected if complete and name not in now]
    return [name for name in now if expected.get(name) != now[name]] + missing


def same_rows(path: Path, other: Path) -> bool:
    """Whether two tables have the same columns and values, whatever they say of what they were made from."""
    one, two = (pq.ParquetFile(each).read() for each in (path, other))
    return one.replace_schema_metadata(None).equals(two.replace_schema_metadata(None)) or _equal_text(one, two)


def _equal_text(one: Any, two: Any) -> bool:
    """As `equals`, with NaN equal to NaN."""
    return one.column_names == two.column_names and one.to_pydict().__repr__() == two.to_pydict().__repr__()
