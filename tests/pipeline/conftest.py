from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def snakemake_command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "snakemake", *arguments]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    """A folder with the pipeline in it (links) and results of its own."""
    for name in ("Snakefile", "rules", "workflow_scripts", "config.yaml", "config", "profiles", "slurm"):
        (tmp_path / name).symlink_to(ROOT / name)
    return tmp_path


@pytest.fixture
def snakemake(workdir: Path):
    """Run snakemake in `workdir`; returns the finished process, its output as text."""

    def call(*arguments: str, timeout: float = 600, **environment: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            snakemake_command(*arguments),
            cwd=workdir,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            timeout=timeout,
            check=False,
        )

    return call
