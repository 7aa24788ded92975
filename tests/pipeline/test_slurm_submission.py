"""What is submitted to Slurm, with stand-ins for its commands on the PATH."""

from __future__ import annotations

import os

import pytest

from tests import tiny

#: writes down how it was called, and refuses
SBATCH = """#!/bin/sh
echo "$@" >> "{folder}/submitted"
echo "sbatch: error: no" >&2
exit 1
"""


@pytest.fixture
def submitted(snakemake, tmp_path):
    """Runs Snakemake with the profile; returns the calls of sbatch."""
    folder = tmp_path / "bin"
    folder.mkdir()
    commands = {"sbatch": SBATCH.format(folder=folder)}
    commands |= dict.fromkeys(("squeue", "sinfo", "scancel", "scontrol", "sacctmgr"), "#!/bin/sh\n")
    for name, text in commands.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)

    def submit(*arguments: str) -> list[str]:
        profile = ("--profile", "slurm", "--retries", "0", "--slurm-no-account", "--latency-wait", "0")
        run = snakemake(*profile, *tiny.ARGUMENTS, *arguments, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
        assert (folder / "submitted").exists(), run.stdout + run.stderr
        return (folder / "submitted").read_text().splitlines()

    return submit


GAMES = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "eval")]


def test_the_tasks_of_an_array_start_what_the_plugin_passes_for_each_of_them(submitted):
    """The jobs of the second and later tasks are in an option that only the plugin's own executor in the job reads."""
    (call,) = submitted("--slurm-array-jobs", "tasks", "--", *GAMES)
    assert "--array=1-2" in call
    assert "--slurm-jobstep-array-execs=" in call
    assert "--executor slurm-jobstep" in call
    assert "--executor local" not in call


def test_a_job_that_is_no_task_of_an_array_starts_its_stage_without_a_step(submitted):
    calls = submitted("--", *GAMES)
    assert len(calls) == 2
    assert all("--executor local" in call and "jobstep" not in call for call in calls)
