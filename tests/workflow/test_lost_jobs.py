"""Jobs that Snakemake's Slurm plugin would wait for for ever, with a stand-in for squeue on the PATH."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from turncredit.pipeline import failures, slurm
from turncredit.pipeline.lost_jobs import LostJobs

RUN, STATE = "run-a", Path(".snakemake")


class Executor:
    """The plugin's executor as it treats a preempted or forgotten job: it goes on waiting for it."""

    run_uuid = RUN

    def __init__(self) -> None:
        self.failed: list[tuple[str, str]] = []
        self.succeeded: list[str] = []
        self.ended: set[str] = set()
        self.answers = True

    async def check_active_jobs(self, active):
        for job in active if self.answers else ():
            if job.external_jobid in self.ended:
                self.report_job_success(job)
            else:
                yield job

    def report_job_error(self, job, msg=None, **_):
        self.failed.append((job.external_jobid, msg))

    def report_job_success(self, job):
        self.succeeded.append(job.external_jobid)


class Slurm:
    """What squeue lists, and looks at it a minute apart."""

    def __init__(self, folder: Path):
        self._folder, self._time = folder, 0.0
        folder.mkdir()
        command = folder / "squeue"
        command.write_text(f"#!/bin/sh\n[ -f {folder}/broken ] && exit 1\ncat {folder}/jobs\n")
        command.chmod(0o755)
        self.lists()
        self.executor = Executor()
        self.lost = LostJobs(self.executor, STATE, clock=lambda: self._time)

    def lists(self, reason: str = "None", **states: str) -> None:
        lines = [f"{number}|{state}|{reason}|{RUN}|rule_update" for number, state in states.items()]
        (self._folder / "jobs").write_text("\n".join(lines).replace("j", "") + "\n" if lines else "")

    def broken(self, yes: bool) -> None:
        (self._folder / "broken").touch() if yes else (self._folder / "broken").unlink()

    def look(self, *jobs, after: float = 60.0) -> list[str]:
        """The ids of the jobs that are still waited for after a look."""
        self._time += after

        async def waiting() -> list[str]:
            return [job.external_jobid async for job in self.executor.check_active_jobs(jobs)]

        return asyncio.run(waiting())


@pytest.fixture
def cluster(tmp_path, monkeypatch) -> Slurm:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    slurm.remember(STATE, "results/mine", RUN, process=os.getpid())
    return Slurm(tmp_path / "bin")


def submitted(number: str, jobid: int = 1, **resources: str) -> SimpleNamespace:
    return SimpleNamespace(external_jobid=number, job=SimpleNamespace(jobid=jobid, resources=resources), aux={})


def test_a_preempted_job_that_slurm_does_not_run_again_is_lost_and_counted(cluster):
    job = submitted("17")
    cluster.lists(j17="PREEMPTED")
    assert cluster.look(job) == ["17"]  # it may be put back into the queue
    assert cluster.look(job) == []
    assert [(number, "'PREEMPTED'" in said) for number, said in cluster.executor.failed] == [("17", True)]
    assert cluster.lost.preemptions(job.job) == 1
    assert slurm.preempted(STATE, "results/mine") == 1


@pytest.mark.parametrize("then", ["PENDING", "RUNNING"])
def test_a_preempted_job_that_slurm_puts_back_into_the_queue_is_waited_for(cluster, then):
    job = submitted("17")
    for state in ("PREEMPTED", then, "PREEMPTED", then):
        cluster.lists(j17=state)
        assert cluster.look(job) == ["17"]
    assert cluster.lost.preemptions(job.job) == 0


@pytest.mark.parametrize("state", ["NODE_FAIL", "REVOKED", "LAUNCH_FAILED"])
def test_any_other_end_for_which_the_plugin_goes_on_waiting_is_a_failure_that_is_no_preemption(cluster, state):
    job = submitted("17")
    cluster.lists(j17=state)
    assert cluster.look(job) == ["17"]
    assert cluster.look(job) == []
    assert f"'{state}'" in cluster.executor.failed[0][1]
    assert cluster.lost.preemptions(job.job) == 0


@pytest.mark.parametrize(
    ("reason", "stuck"),
    [
        ("launch failed requeued held", True),
        ("JobHeldUser", True),
        ("QOSMaxGRESPerJob", True),
        ("Priority", False),
        ("QOSUsageThreshold", False),
        ("ReqNodeNotAvail, UnavailableNodes:gpu01", False),
    ],
)
def test_a_job_that_does_not_start_by_itself_is_named_once(cluster, capsys, reason, stuck):
    """After a failed prolog, for example, Slurm puts a job back into its queue and holds it."""
    job = submitted("17")
    cluster.lists(reason, j17="PENDING")
    for _ in range(3):
        assert cluster.look(job) == ["17"]
    said = capsys.readouterr().err.splitlines()
    assert [f"Slurm job 17 (rule_update) does not start by itself: {reason}" in line for line in said] == [True] * stuck


def test_a_job_that_squeue_has_forgotten_has_failed_unless_it_has_said_that_its_work_is_done(cluster, monkeypatch):
    dead, done = submitted("17"), submitted("18", jobid=2)
    monkeypatch.setenv("SLURM_JOB_NAME", RUN)
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with failures.recorded("update", {}, "results/mine"):
        pass
    assert cluster.look(dead, done) == ["17", "18"]
    assert cluster.look(dead, done) == []
    assert [number for number, _ in cluster.executor.failed] == ["17"]
    assert cluster.executor.succeeded == ["18"]


@pytest.mark.usefixtures("cluster")
def test_a_job_that_failed_leaves_no_mark_of_success(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NAME", RUN)
    monkeypatch.setenv("SLURM_JOB_ID", "18")
    with pytest.raises(SystemExit, match=r"^1$"), failures.recorded("update", {}, "results/mine"):
        raise failures.JobFailed(1, "no", None)
    assert not slurm.succeeded(STATE, RUN, "18")


def test_tasks_of_an_array_are_found_by_the_plugins_names_for_them(cluster, monkeypatch):
    tasks = [submitted("19_3"), submitted("19_4", jobid=2)]
    cluster.lists(**{"19_[3-8]": "PENDING"})
    assert [cluster.look(*tasks) for _ in range(3)] == [["19_3", "19_4"]] * 3
    for name, value in {"NAME": RUN, "ID": "21"}.items():
        monkeypatch.setenv(f"SLURM_JOB_{name}", value)
    monkeypatch.setenv("SLURM_ARRAY_JOB_ID", "19")
    monkeypatch.setenv("SLURM_ARRAY_TASK_ID", "3")
    slurm.note_success(STATE)
    assert slurm.succeeded(STATE, RUN, "19_3")
    assert not slurm.succeeded(STATE, RUN, "19_4")


def test_looks_are_half_a_minute_apart_and_none_is_a_verdict_while_squeue_does_not_answer(cluster):
    job = submitted("17")
    assert [cluster.look(job, after=10.0) for _ in range(5)] == [["17"]] * 5  # one look, after 30 s
    cluster.broken(True)
    assert [cluster.look(job) for _ in range(3)] == [["17"]] * 3
    cluster.broken(False)
    cluster.lists(j17="RUNNING")
    assert [cluster.look(job) for _ in range(3)] == [["17"]] * 3
    assert not cluster.executor.failed


def test_jobs_are_kept_when_the_plugin_drops_them_because_its_status_command_failed(cluster):
    jobs = [submitted("17"), submitted("18", jobid=2)]
    cluster.lists(j17="RUNNING", j18="COMPLETED")
    cluster.executor.answers = False
    assert cluster.look(*jobs, after=1.0) == ["17", "18"]
    cluster.executor.answers, cluster.executor.ended = True, {"18"}
    assert cluster.look(*jobs, after=1.0) == ["17"]
    assert cluster.executor.succeeded == ["18"]
    assert not cluster.executor.failed


def test_a_job_that_could_not_be_submitted_while_others_are_looked_at_has_no_mark(cluster):
    """Snakemake reports it from another thread, without a number."""
    check = cluster.lost._check

    async def meanwhile(active):
        cluster.executor.report_job_error(SimpleNamespace(external_jobid=None), msg="SLURM sbatch failed.")
        async for job in check(active):
            yield job

    cluster.lost._check = meanwhile
    cluster.lists(j17="RUNNING")
    assert cluster.look(submitted("17")) == ["17"]


def test_jobs_of_another_cluster_are_left_to_the_plugin(cluster):
    job = submitted("17", slurm_cluster="other")
    assert [cluster.look(job) for _ in range(3)] == [["17"]] * 3


def test_the_mark_of_a_job_whose_end_the_plugin_has_seen_is_removed(cluster, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_NAME", RUN)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    slurm.note_success(STATE)
    cluster.executor.ended = {"17"}
    assert cluster.look(submitted("17")) == []
    assert not slurm.succeeded(STATE, RUN, "17")


@pytest.mark.usefixtures("cluster")
def test_outside_of_a_snakemakes_jobs_no_mark_is_left(monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    for name in ("interactive", ""):
        monkeypatch.setenv("SLURM_JOB_NAME", name)
        slurm.note_success(STATE)
    assert sorted(path.name for path in (STATE / slurm.RECORDS).iterdir()) == [f"{RUN}.json"]
