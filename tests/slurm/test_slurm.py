"""The tiny experiment through a real Slurm: the same tables as on one machine, and faults that a cluster has."""

from __future__ import annotations

import os
import re
import signal
import statistics
import subprocess
import sys
import time
from datetime import datetime
from pathlib import Path

import pytest

from tests import tiny
from tests.pipeline.conftest import Pipeline
from tests.pipeline.processes import wait_for
from tests.slurm.cluster import Cluster, cluster, missing
from turncredit.data import tables
from turncredit.pipeline import slurm as slurm_jobs

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(missing()), reason=missing()),
]
#: as the README types it, and faster: nothing waits for a network file system here
ARGUMENTS = ("--profile", "slurm", *tiny.ARGUMENTS, "--latency-wait", "5", "--config", "tracking={enabled: false}")
#: tables by their names, or by their folder's: a method's credits are credits/<method>.parquet
COMPARED = ("turns", "credits", "updates", "evals")
#: Two jobs that wait for no other.
GAMES = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "eval")]
#: the turns of round 1 and of round 2 of two runs; two credits, updates and evaluations of each run; the SFT policy's
NUMBER = 3 + 3 * 4 + 2


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(scope="module")
def pipeline(tmp_path_factory) -> Pipeline:
    return Pipeline(tmp_path_factory.mktemp("pipeline"))


@pytest.fixture(scope="module")
def local(pipeline, tmp_path_factory) -> Path:
    """The experiment on this machine, without Slurm."""
    folder = pipeline.link(tmp_path_factory.mktemp("local"))
    run = pipeline.run(folder, "--cores", "2", *tiny.ARGUMENTS, "--config", "tracking={enabled: false}")
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture
def folder(pipeline, tmp_path) -> Path:
    return pipeline.link(tmp_path)


def started(pipeline: Pipeline, folder: Path, slurm: Cluster, *more: str) -> subprocess.Popen[str]:
    """Snakemake with the profile, running; its output goes to a file, so that no full pipe stops it."""
    with (folder / "said.log").open("a") as said:
        return subprocess.Popen(
            [sys.executable, "-m", "snakemake", *ARGUMENTS, *more],
            cwd=folder,
            env={**pipeline.environment, **slurm.environment},
            stdout=said,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )


def finish(process: subprocess.Popen[str], folder: Path) -> None:
    assert process.wait(timeout=1500) == 0, (folder / "said.log").read_text()[-5000:]


def same_tables(one: Path, other: Path) -> list[str]:
    """The names of the compared tables in both folders; they have equal content."""
    found = []
    for path in sorted(one.glob("results/tiny/**/*.parquet")):
        if path.stem in COMPARED or path.parent.name in COMPARED:
            name = str(path.relative_to(one))
            mine, theirs = (tables.read(where / name) for where in (one, other))
            assert mine.drop_columns(dropped(mine)).equals(theirs.drop_columns(dropped(theirs))), name
            found.append(name)
    return found


def dropped(table) -> list[str]:
    return [name for name in ("created_by", "seconds", "wall_s") if name in table.column_names]


def running(slurm: Cluster) -> list[str]:
    return [number for number, state in slurm.jobs().items() if state == "RUNNING"]


def running_rounds(slurm: Cluster) -> list[str]:
    """The ids of running jobs of rounds."""
    lines = slurm.ask("squeue", "--noheader", "--states=running", "--format=%i %k").splitlines()
    return [number for number, comment in map(str.split, lines) if comment.startswith("rule_rounds")]


def lags(slurm: Cluster, folder: Path) -> list[float]:
    """Seconds from the end of each job to the line in which Snakemake says so."""
    ended = dict(
        re.findall(r"^JobId=(\d+) .*? EndTime=(\S+)", slurm.ask("scontrol", "show", "job", "-o"), re.MULTILINE)
    )
    said = (folder / "said.log").read_text()
    ids = dict(re.findall(r"^Job (\d+) has been submitted with SLURM jobid (\d+)", said, re.MULTILINE))
    noticed = re.findall(r"^\[(.*)\]\nFinished jobid: (\d+) ", said, re.MULTILINE)
    return [
        (datetime.strptime(when, "%c") - datetime.fromisoformat(ended[ids[number]])).total_seconds()
        for when, number in noticed
        if number in ids
    ]


def test_every_stage_is_a_slurm_job_and_the_tables_are_those_of_a_local_run(pipeline, folder, slurm, local):
    begin = time.monotonic()
    finish(started(pipeline, folder, slurm), folder)
    print(f"the tiny experiment through Slurm: {time.monotonic() - begin:.0f} s of wall")
    assert len(same_tables(local, folder)) == NUMBER
    assert slurm.jobs() == {}
    late = lags(slurm, folder)
    print(f"ends of jobs noticed after {statistics.mean(late):.1f} s, at most {max(late):.0f} s")
    assert len(late) >= 20
    assert max(late) < 15


def test_a_cancelled_job_is_submitted_again_and_the_tables_are_the_same(pipeline, folder, slurm, local):
    process = started(pipeline, folder, slurm, "granularity=round")
    assert wait_for(lambda: (folder / tiny.path("sft_policy")).exists() and running(slurm), 300)
    slurm.ask("scancel", running(slurm)[0])
    finish(process, folder)
    assert len(same_tables(local, folder)) == NUMBER


@pytest.mark.parametrize("partition", ["cpu", "requeued"])
def test_a_preempted_job_runs_again_without_using_up_a_retry(pipeline, folder, slurm, local, partition):
    """In the partition `cpu` Slurm ends a preempted job for good, in `requeued` it puts it back into its queue."""
    asked = f"resources={{rounds: {{slurm_partition: {partition}}}}}"
    every = ("--default-resources", f"slurm_partition={partition}")
    process = started(pipeline, folder, slurm, "granularity=round", asked, "--retries", "0", *every)
    assert wait_for(lambda: running_rounds(slurm), 900)
    preempted = running_rounds(slurm)
    time.sleep(3)
    urgent = ("--partition=urgent", "--exclusive", "--output=/dev/null", "--wrap=sleep 3")
    slurm.ask("sbatch", "--wait", *urgent)
    states = slurm.ask("squeue", "--noheader", "--states=all", "--format=%i %T")
    print("preempted:", [line for line in states.splitlines() if line.split()[0] in preempted])
    finish(process, folder)
    assert len(same_tables(local, folder)) == NUMBER
    counted = slurm_jobs.preempted(folder / ".snakemake", "results/tiny")
    assert counted >= 1 if partition == "cpu" else counted == 0


def test_stages_that_are_submitted_as_arrays_make_the_same_tables(pipeline, folder, slurm, local):
    finish(started(pipeline, folder, slurm, "--slurm-array-jobs", "tasks,credit,eval"), folder)
    assert "Submitted array job" in (folder / "said.log").read_text()
    assert len(same_tables(local, folder)) == NUMBER


def test_jobs_wait_while_the_node_is_drained(pipeline, folder, slurm, local):
    process = started(pipeline, folder, slurm, "granularity=round")
    assert wait_for(lambda: running(slurm), 300)
    slurm.ask("scontrol", "update", f"nodename={slurm.host}", "state=drain", "reason=test")
    assert wait_for(lambda: not running(slurm) and "PENDING" in slurm.jobs().values(), 300)
    time.sleep(5)
    assert process.poll() is None
    slurm.ask("scontrol", "update", f"nodename={slurm.host}", "state=resume")
    finish(process, folder)
    assert len(same_tables(local, folder)) == NUMBER


def test_after_a_killed_snakemake_the_same_command_goes_on_beside_no_second_writer(pipeline, folder, slurm, local):
    first = started(pipeline, folder, slurm, "granularity=round")
    assert wait_for(lambda: (folder / tiny.path("sft_policy")).exists() and running(slurm), 300)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait(timeout=30)
    left = set(slurm.jobs())
    assert left
    again = started(pipeline, folder, slurm, "granularity=round", "--rerun-incomplete")
    finish(again, folder)
    assert len(same_tables(local, folder)) == NUMBER
    assert slurm.jobs() == {}


def test_jobs_wait_while_the_controller_does_not_answer_and_use_up_no_retry(pipeline, folder, slurm):
    slurm.stop("slurmctld")
    try:
        process = started(pipeline, folder, slurm, "--retries", "0", "--", *GAMES)
        assert wait_for(lambda: "Slurm takes no jobs now" in (folder / "said.log").read_text(), 300)
    finally:
        slurm.start("slurmctld")
    finish(process, folder)
    assert "Slurm takes jobs again" in (folder / "said.log").read_text()
    assert all((folder / path).exists() for path in GAMES)


def test_a_job_whose_node_dies_runs_again_without_using_up_a_retry(pipeline, folder, slurm):
    process = started(pipeline, folder, slurm, "--retries", "0", "--", *GAMES)
    assert wait_for(lambda: running(slurm), 300)
    died = set(running(slurm))
    slurm.ask("scontrol", "update", f"nodename={slurm.host}", "state=down", "reason=test")
    assert wait_for(lambda: not running(slurm), 60)
    slurm.ask("scontrol", "update", f"nodename={slurm.host}", "state=resume")
    finish(process, folder)
    assert all((folder / path).exists() for path in GAMES)
    restarts = dict(
        re.findall(r"^JobId=(\d+) .*? Restarts=(\d+)", slurm.ask("scontrol", "show", "job", "-o"), re.MULTILINE)
    )
    assert {restarts[number] for number in died} == {"1"}


def test_the_doctor_runs_every_kind_of_job_on_the_cluster_and_leaves_nothing(pipeline, folder, slurm):
    """With GPUs asked for by none: the node's are only files."""
    doctor = pipeline.python(
        folder,
        *("-c", "from turncredit.cli.main import main; main()"),
        *("doctor", "--cluster", "--profile", "slurm", *tiny.ARGUMENTS),
        **slurm.environment,
    )
    assert doctor.returncode == 0, doctor.stdout + doctor.stderr
    said = doctor.stdout.splitlines()
    ran = {line.split()[1] for line in said if re.match(r"ok +\w+ +\d+ jobs, ", line)}
    assert {"tasks", "demos", "base", "sft", "rollout", "credit", "measures", "update", "eval", "invariants"} <= ran
    assert not (folder / "results/tiny_doctor").exists()
    assert slurm.jobs() == {}
