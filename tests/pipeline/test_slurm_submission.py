"""What is submitted to Slurm, with stand-ins for its commands on the PATH."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import tiny
from turncredit.cli import status
from turncredit.pipeline.plan import Plan

#: writes down how it was called, and refuses
REFUSES = """#!/bin/sh
echo "$@" >> "{folder}/submitted"
echo "sbatch: error: no" >&2
exit 1
"""


#: writes down how it was called, and takes it as job 17
ACCEPTS = """#!/bin/sh
echo "$@" >> "{folder}/submitted"
echo 17
"""
PROFILE = ("--profile", "slurm", "--retries", "0", "--slurm-no-account", "--latency-wait", "0", *tiny.ARGUMENTS)


@pytest.fixture
def run(snakemake, tmp_path) -> Callable[..., list[str]]:
    """Runs Snakemake with the profile and these commands; returns the calls of sbatch."""

    def submit(*arguments: str, **commands: str) -> list[str]:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        nothing = dict.fromkeys(
            ("sbatch", "squeue", "sinfo", "scancel", "scontrol", "sacct", "sacctmgr"), "#!/bin/sh\n"
        )
        settings = "#!/bin/sh\necho 'MinJobAge = 300 sec'\n"
        for name, text in {**nothing, "scontrol": settings, **commands}.items():
            (folder / name).write_text(text.format(folder=folder))
            (folder / name).chmod(0o755)
        ran = snakemake(*PROFILE, *arguments, PATH=f"{folder}{os.pathsep}{os.environ['PATH']}")
        assert (folder / "submitted").exists(), ran.stdout + ran.stderr
        return (folder / "submitted").read_text().splitlines()

    return submit


GAMES = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "demos")]  # neither waits for the other


def test_the_tasks_of_an_array_start_what_the_plugin_passes_for_each_of_them(run):
    """The jobs of the second and later tasks are in an option that only the plugin's own executor in the job reads."""
    (call,) = run("--slurm-array-jobs", "tasks", "--", *GAMES, sbatch=REFUSES)
    assert "--array=1-2" in call
    assert "--slurm-jobstep-array-execs=" in call
    assert "--executor slurm-jobstep" in call
    assert "--executor local" not in call


def test_a_job_that_is_no_task_of_an_array_starts_its_stage_without_a_step(run):
    calls = run("--", *GAMES, sbatch=REFUSES)
    assert len(calls) == 2
    assert all("--executor local" in call and "jobstep" not in call for call in calls)


def test_what_the_configuration_asks_of_slurm_reaches_sbatch(run):
    slurm = (
        "slurm_partition: gpu, slurm_account: lab, slurm_qos: long, slurm_constraint: a100, slurm_extra: --exclusive"
    )
    (call,) = run(
        *("--config", f"resources={{tasks: {{{slurm}}}}}", "--", GAMES[0]),
        sbatch=REFUSES,
        sacctmgr="#!/bin/sh\necho lab\n",
    )
    for option in ("-p gpu", "-A lab", "--qos=long", "-C a100", "--exclusive"):
        assert f" {option} " in f"{call} ", call


def test_a_misspelt_rule_is_refused_and_nothing_is_submitted(run):
    for option, value in (("--set-resources", "rollouts:mem_mb=9000"), ("--set-threads", "rollouts=4")):
        with pytest.raises(
            AssertionError, match=f"turncredit: {option}: there is no rule 'rollouts' .did you mean 'roll"
        ):
            run(option, value, "--", GAMES[0], sbatch=REFUSES)


SINFO = "#!/bin/sh\necho 'cpu*|(null)|1-00:00:00|64000|8'\necho 'gpu|gpu:a100:4|infinite|64000|8'\n"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("tasks:gpu=1", "tasks asks for a GPU, and no node of the default partition cpu has one"),
        ("tasks:runtime=2000", "tasks asks for 2,000 minutes, and a job in the default partition cpu gets 1,440"),
    ],
)
def test_a_rule_that_no_node_of_its_partition_can_run_is_refused_and_nothing_is_submitted(run, asked, said):
    with pytest.raises(AssertionError, match=f"turncredit: {said}"):
        run("--set-resources", asked, "--", GAMES[0], sbatch=REFUSES, sinfo=SINFO)


def test_a_job_of_several_rounds_that_is_longer_than_its_partition_allows_is_refused(run):
    rounds = ("--config", "granularity=run", "audit={rounds: []}")
    with pytest.raises(AssertionError, match=r"turncredit: rounds asks for [\d,]+ minutes, and a job in the def"):
        run(*rounds, "--", "runs", sbatch=REFUSES, sinfo=SINFO.replace("1-00:00:00", "1:30:00"))


def test_a_job_that_slurm_ended_has_failed_with_slurms_reason_and_log(run, workdir: Path, monkeypatch):
    """Its own process was killed and could record nothing."""
    squeue = "#!/bin/sh\necho '17|TIMEOUT'\n"
    soon = ("--slurm-init-seconds-before-status-checks", "1", "--seconds-between-status-checks", "1")
    monkeypatch.chdir(workdir)
    log = workdir / ".snakemake/slurm_logs/rule_tasks/train/17.log"
    log.parent.mkdir(parents=True)
    log.write_text("slurmstepd: error: *** JOB 17 CANCELLED DUE TO TIME LIMIT ***\n")
    run(*soon, "--", GAMES[0], sbatch=ACCEPTS, squeue=squeue)
    lines = status.lines_of(Plan(tiny.experiment()))
    assert lines[0].endswith(", 1 failed")
    at = lines.index("failed: tasks train: Slurm job 17 ended: TIMEOUT")
    assert lines[at + 1].endswith("rule_tasks/train/17.log:")
    assert lines[at + 2].endswith("CANCELLED DUE TO TIME LIMIT ***")
