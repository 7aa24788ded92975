"""A new stage is one file: nothing else in the project names it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests import tiny

pytestmark = pytest.mark.slow

STAGE = '''"""Stage `lengths`: how long the audited rollouts are."""

from turncredit.config.stages import ROLLOUTS, Artifact, Stage
from turncredit.data.files import write_json
from turncredit.pipeline.job import Slice


class Config(Slice):
    """Nothing."""


def config(plan, at):
    return Config()


def inputs(plan, at):
    return {"turns": plan.layout.path("turns", at.keys)}


def run(job):
    rollouts = job.table("turns", columns=["rollout_id"]).column("rollout_id").value_counts()
    longest = max(one["counts"].as_py() for one in rollouts)
    write_json(job.output["lengths"], {"longest": longest})
    return {"longest": float(longest)}


STAGE = Stage(
    name="lengths",
    after="leaks",
    phase="audit",
    message="Lengths of the rollouts of {policy}, seed {seed}, round {round}",
    makes={"lengths": Artifact("lengths", f"{ROLLOUTS}/lengths.json")},
    folder=ROLLOUTS,
    file="lengths",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
)
'''


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the project with one file more."""
    folder = tmp_path_factory.mktemp("checkout")
    for name in ("turncredit", "rules", "workflow_scripts", "config", "schemas", "profiles", "envs_conda", "examples"):
        shutil.copytree(tiny.ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("Snakefile", "config.yaml"):
        shutil.copy(tiny.ROOT / name, folder / name)
    (folder / "turncredit/pipeline/stages/lengths.py").write_text(STAGE)
    return folder


def ask(checkout: Path, program: str, *arguments: str) -> str:
    code = {
        "snakemake": "from snakemake.cli import main; main()",
        "turncredit": "from turncredit.cli.main import main; main()",
    }[program]
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, cwd=checkout, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


AUDITED = ("--configfile", "config/test/tiny.yaml", "--config", "audit={rounds: [1]}")


def test_a_new_stage_has_a_rule_its_jobs_are_planned_and_its_row_is_in_the_plan(checkout: Path) -> None:
    assert "lengths" in ask(checkout, "snakemake", "--list-rules").split()
    planned = ask(checkout, "snakemake", "-n", *AUDITED)
    assert "Lengths of the rollouts of sft-t4k4T1.0, seed 0, round 01" in planned
    assert "results/tiny/rollouts/sft-t4k4T1.0/seed0/round01/lengths.json" in planned
    plan = ask(checkout, "turncredit", "plan", *AUDITED)
    assert [line.split()[1] for line in plan.splitlines() if line.startswith("lengths ")] == ["1"]
    where = ask(checkout, "turncredit", "where", "lengths", *AUDITED)
    assert "logs/rollouts/sft-t4k4T1.0/seed0/round01/lengths.log" in where
