from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIPELINE = ("Snakefile", "rules", "workflow_scripts", "config.yaml", "config", "profiles", "slurm", "envs_conda")


def snakemake_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", *arguments]


def link_pipeline(folder: Path) -> None:
    """Make `folder` one in which the pipeline can be run, with results of its own."""
    for name in PIPELINE:
        (folder / name).symlink_to(ROOT / name)


def run_snakemake(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run snakemake in `folder`; returns the finished process, its output as text."""
    return subprocess.run(
        snakemake_command(*arguments),
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A folder with the pipeline in it."""
    link_pipeline(tmp_path)
    return tmp_path


@pytest.fixture
def snakemake(workdir: Path):
    """`run_snakemake` in `workdir`."""
    return lambda *arguments, **environment: run_snakemake(workdir, *arguments, **environment)
