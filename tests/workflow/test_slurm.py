"""Slurm jobs of earlier runs, with a stand-in for squeue and scancel on the PATH: found, cancelled, waited for."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import subprocess
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from turncredit.errors import OutsideFault, UserError
from turncredit.pipeline import failures, preflight, retries, slurm

#: Lists the jobs in the file `jobs`; a job that is being cancelled is listed once more, as the real one does.
SQUEUE = """#!/bin/sh
[ -f "$0.broken" ] && {{ echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; }}
echo "$@" >> {folder}/asked
cat {folder}/jobs
grep -v COMPLETING {folder}/jobs > {folder}/next; mv {folder}/next {folder}/jobs
exit 0
"""
SCANCEL = """#!/bin/sh
echo "$@" >> {folder}/cancelled
[ -f {folder}/stubborn ] || sed -i 's/|RUNNING|/|COMPLETING|/; /|PENDING|/d' {folder}/jobs
"""


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """A folder whose file `jobs` is what squeue lists; the working folder is beside it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"squeue": SQUEUE, "scancel": SCANCEL}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.chdir(tmp_path)
    (folder / "jobs").write_text("")
    return folder


STATE = Path(".snakemake")
ENDED = 2**22 + 1  # Linux gives no process such a number
TWO = (
    "35|RUNNING|None|run-a|rule_update_wildcards_gigpo_0_02\n36|PENDING|Priority|run-a|rule_eval_wildcards_gigpo_0_01\n"
)


def read(path):
    return path.read_text().split() if path.exists() else []


def test_jobs_that_an_earlier_run_left_are_cancelled_and_said_in_one_line(cluster):
    slurm.remember(STATE, "results/mine", "run-a", process=ENDED)
    (cluster / "jobs").write_text(TWO)
    line = slurm.cancel_leftovers(STATE, "results/mine", sleep=lambda _: None)
    assert line == ("2 Slurm jobs of an earlier run (35, 36; 1 running) were cancelled, and run again if still needed")
    assert read(cluster / "cancelled") == ["35", "36"]
    assert (cluster / "jobs").read_text() == ""  # waited for the one that was ending
    assert slurm.cancel_leftovers(STATE, "results/mine") is None  # that run is forgotten


def test_only_jobs_of_the_same_experiment_are_asked_for(cluster):
    slurm.remember(STATE, "results/other", "run-b", process=ENDED)
    (cluster / "jobs").write_text(TWO)
    assert slurm.cancel_leftovers(STATE, "results/mine") is None
    assert not (cluster / "asked").exists()
    slurm.remember(STATE, "results/mine", "run-a", process=ENDED)
    slurm.remember(STATE, "results/mine", "run-c", process=ENDED)
    slurm.cancel_leftovers(STATE, "results/mine", sleep=lambda _: None)
    assert "--name=run-a,run-c" in read(cluster / "asked")
    assert slurm.runs_of(STATE, "results/other") == ["run-b"]


def test_jobs_of_a_snakemake_that_still_runs_are_left_alone(cluster):
    """Parts of an experiment that have no file in common can run at the same time."""
    with subprocess.Popen(["sleep", "60"]) as other:
        slurm.remember(STATE, "results/mine", "run-a", process=other.pid)
        (cluster / "jobs").write_text(TWO)
        assert slurm.cancel_leftovers(STATE, "results/mine", sleep=lambda _: None) is None
        assert read(cluster / "cancelled") == []
        assert slurm.runs_of(STATE, "results/mine") == ["run-a"]
        other.kill()
        time.sleep(0.1)  # it has ended, and this process has not yet asked how
        assert slurm.cancel_leftovers(STATE, "results/mine", sleep=lambda _: None) is not None
    assert read(cluster / "cancelled") == ["35", "36"]


def test_jobs_that_do_not_end_stop_the_start(cluster, monkeypatch):
    monkeypatch.setattr(slurm, "GONE_WITHIN", 4.0)
    slurm.remember(STATE, "results/mine", "run-a", process=ENDED)
    (cluster / "jobs").write_text(TWO)
    (cluster / "stubborn").touch()
    with pytest.raises(UserError, match=r"^Slurm jobs of an earlier run do not end although .* \(35, 36\)"):
        slurm.cancel_leftovers(STATE, "results/mine", sleep=lambda _: None)
    assert slurm.runs_of(STATE, "results/mine") == ["run-a"]


def test_a_controller_that_does_not_answer_is_one_line_and_nothing_is_forgotten(cluster):
    slurm.remember(STATE, "results/mine", "run-a", process=ENDED)
    (cluster / "squeue.broken").touch()
    with pytest.raises(UserError, match=r"^squeue does not answer \(slurm_load_jobs error") as refused:
        slurm.cancel_leftovers(STATE, "results/mine")
    assert "\n" not in str(refused.value)
    assert slurm.runs_of(STATE, "results/mine") == ["run-a"]


def test_without_squeue_one_line_says_that_jobs_may_be_running(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    slurm.remember(STATE, "results/mine", "run-a", process=ENDED)
    assert "may still be running" in slurm.cancel_leftovers(STATE, "results/mine")
    assert slurm.cancel_leftovers(STATE, "results/another") is None


def test_a_jobs_rule_is_in_its_comment():
    assert (
        slurm.SlurmJob("1", "RUNNING", "None", "a", "rule_credit_model_wildcards_sft_turn_value_0_01").rule
        == "credit_model"
    )
    assert slurm.SlurmJob("1", "RUNNING", "None", "a", "rule_demos").rule == "demos"
    assert slurm.SlurmJob("1", "RUNNING", "None", "a", "group_x").rule == ""


# ---------------------------------------------------------------- trying again

KEYS = {"method": "gigpo", "seed": "0", "round": "02"}
MINE = "results/mine"


def fails(status, wildcards=KEYS, rule="update", results=MINE):
    """Let a job fail."""
    with pytest.raises(SystemExit), failures.recorded(rule, wildcards, results):
        raise failures.JobFailed(status, "update gigpo: no", "logs/update.log")


def factor(attempt, wildcards=KEYS, **more):
    """The memory of an attempt on Slurm relative to the first."""
    return retries.memory_factor("update", wildcards, attempt, MINE, **{"since": 0.0, "on_slurm": True, **more})


def test_memory_is_doubled_for_a_job_that_ran_out_of_it_and_for_no_other(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rloo = {**KEYS, "method": "rloo"}
    told("SLURM status is: 'OUT_OF_MEMORY'.")
    told("SLURM status is: 'NODE_FAIL'.", wildcards=rloo)
    assert (factor(1), factor(2), factor(2, rloo)) == (1, 2, 1)
    told("SLURM status is: 'TIMEOUT'.")
    assert factor(3) == 2


def test_each_attempt_that_ran_out_of_memory_doubles_it_also_where_slurm_has_forgotten_the_first(tmp_path, monkeypatch):
    """By default squeue lists a job for five minutes after its end, and the second attempt may run for hours."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", "")
    for number in ("17", "18"):
        told("SLURM status is: 'OUT_OF_MEMORY'.", number=number)
    assert factor(3) == 4
    assert factor(3, since=failures.failure_of("update", KEYS, MINE).when + 1) == 1  # an earlier run asked for less
    with failures.recorded("update", KEYS, MINE):
        pass
    assert factor(3) == 1


def test_where_nobody_tells_a_job_that_could_not_say_why_it_failed_gets_more_memory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert factor(2, on_slurm=False) == 2
    assert factor(3, on_slurm=False) == 4
    fails(failures.OTHER_ERROR)
    assert factor(2, on_slurm=False) == 1


def test_memory_stays_where_a_failure_is_not_known_here(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert factor(2, on_slurm=False, known=False) == 1


def test_a_users_mistake_is_not_tried_again_and_any_other_error_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(failures.USER_ERROR)
    assert retries.is_users_mistake("update", KEYS, MINE, since=0.0)
    assert not retries.is_users_mistake("update", {**KEYS, "seed": "1"}, MINE, since=0.0)
    fails(failures.OTHER_ERROR)
    assert not retries.is_users_mistake("update", KEYS, MINE, since=0.0)


def test_a_fault_from_outside_is_tried_again_as_often_as_retries_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def more(fault, allowed):
        fails(failures.status_of(fault))
        job = SimpleNamespace(rule=SimpleNamespace(name="update", restart_times=allowed), wildcards=KEYS)
        return retries.attempts_more(job, MINE, preemptions=0, since=0.0)

    assert [more(OutsideFault("the server is gone"), allowed) for allowed in (0, 3)] == [0, 3]
    assert factor(2, on_slurm=False) == 1, "with the memory that it had"
    assert more(UserError("no such key"), 3) == 0


def test_the_failures_of_another_experiment_in_the_same_folder_are_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(failures.OTHER_ERROR)
    fails(failures.USER_ERROR, results="results/other")
    assert not retries.is_users_mistake("update", KEYS, MINE, since=0.0)
    assert retries.is_users_mistake("update", KEYS, "results/other", since=0.0)
    assert [one.status for one in failures.failures_in(MINE)] == [failures.OTHER_ERROR]


def test_a_failure_is_forgotten_when_the_job_runs_again(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(failures.USER_ERROR)
    fails(failures.OTHER_ERROR, {**KEYS, "seed": "1"})
    found = failures.failures_in("results/mine")
    assert [(one.wildcards["seed"], one.status, one.line) for one in found] == [
        ("0", 2, "update gigpo: no"),
        ("1", 1, "update gigpo: no"),
    ]
    assert failures.failures_in("results/other") == []
    with failures.recorded("update", KEYS, "results/mine"):
        pass
    assert [one.wildcards["seed"] for one in failures.failures_in("results/mine")] == ["1"]
    assert json.loads(next(failures.FOLDER.glob("*.json")).read_text())["log"] == "logs/update.log"


def told(said, wildcards=KEYS, number="17", excluded=None, since=0.0):
    """Let the executor of a Snakemake that began at `since` tell of a failure; returns what it reports further."""
    reported = []
    job = SimpleNamespace(
        rule=SimpleNamespace(name="update"), wildcards=wildcards, log=["logs/update.log"], is_group=lambda: False
    )
    executor = SimpleNamespace(
        report_job_error=lambda _, msg=None, **__: reported.append(msg),
        _failed_nodes=set() if excluded is None else excluded,
    )
    failures.record_what_slurm_says(executor, MINE, since=since)
    executor.report_job_error(SimpleNamespace(job=job, external_jobid=number, aux={}), msg=said, aux_logs=[])
    return reported


def test_what_slurm_says_of_a_job_is_recorded_unless_the_job_has_said_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = "SLURM-job '17' failed, SLURM status is: 'CANCELLED'. Detailed failure reason unavailable"
    assert told(said) == [said]
    found = failures.failure_of("update", KEYS, MINE)
    assert (found.state, found.status) == ("CANCELLED", failures.OTHER_ERROR)
    assert found.line == "update gigpo seed0 round02: Slurm job 17 ended: CANCELLED"
    fails(failures.USER_ERROR)
    told("SLURM-job '17' failed, SLURM status is: 'FAILED'.")
    assert failures.failure_of("update", KEYS, MINE).line == "update gigpo: no"
    told("SLURM sbatch failed.\nThe error message was ...", number=None)
    assert failures.failure_of("update", KEYS, MINE).line == "update gigpo seed0 round02: SLURM sbatch failed."


def test_a_failure_of_an_earlier_run_says_nothing_of_a_job_that_ended_before_its_stage_began(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails(failures.USER_ERROR)
    began = failures.failure_of("update", KEYS, MINE).when + 1
    assert not retries.is_users_mistake("update", KEYS, MINE, since=began)
    told("SLURM-job '17' failed, SLURM status is: 'FAILED'.", since=began)
    assert failures.failure_of("update", KEYS, MINE).line == "update gigpo seed0 round02: Slurm job 17 ended: FAILED"


# ---------------------------------------------------------------- unfit nodes


def blind(monkeypatch, cuda="13.0"):
    """A node of Slurm's on which torch, of this build, sees no GPU."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.version, "cuda", cuda)
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURMD_NODENAME", "gpu07")


def fails_without_a_gpu():
    """Let a job look for its GPU; returns its exit status."""
    with pytest.raises(UserError) as fault:
        preflight.check_gpu("update", 1)
    status = failures.status_of(fault.value)
    with pytest.raises(SystemExit), failures.recorded("update", KEYS, MINE):
        raise failures.JobFailed(status, f"update: {fault.value}", None)
    return status


def test_a_job_that_sees_no_gpu_is_tried_again_and_its_node_gets_no_more_jobs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    blind(monkeypatch)
    assert fails_without_a_gpu() == failures.NODE_ERROR
    assert not retries.is_users_mistake("update", KEYS, MINE, since=0.0)
    excluded: set[str] = set()
    for _ in range(2):
        told("SLURM-job '17' failed, SLURM status is: 'FAILED'.", excluded=excluded)
    assert excluded == {"gpu07"}
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 1
    assert said[0].startswith("turncredit: node gpu07 gets no more jobs of this run: update: asks for 1 GPU on")


def test_torchs_build_for_cpus_is_a_users_mistake_on_every_node(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blind(monkeypatch, cuda=None)
    assert fails_without_a_gpu() == failures.USER_ERROR
    assert retries.is_users_mistake("update", KEYS, MINE, since=0.0)


def test_outside_of_slurm_a_missing_gpu_is_a_users_mistake(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blind(monkeypatch)
    monkeypatch.delenv("SLURM_JOB_ID")
    assert fails_without_a_gpu() == failures.USER_ERROR


def test_the_plugin_excludes_the_nodes_in_the_set_that_is_added_to():
    from snakemake_executor_plugin_slurm import Executor

    assert "failed_nodes=self._failed_nodes" in inspect.getsource(Executor)


# ---------------------------------------------------------------- how jobs start and are polled


@pytest.fixture
def executor():
    """The plugin's executor, without a workflow and its thread."""
    from snakemake_executor_plugin_slurm import Executor

    made = Executor.__new__(Executor)
    made._next_seconds_between_status_checks = None
    return made


def test_jobs_are_polled_at_the_profiles_interval_however_long_nothing_ends(executor):
    executor.next_seconds_between_status_checks = 180  # as the plugin does itself, after hours
    assert executor.next_seconds_between_status_checks == 180
    slurm.poll_every(executor, 0.01)
    asyncio.run(asyncio.wait_for(executor.sleep(), 10))


def test_a_job_starts_one_snakemake_and_no_step(executor):
    executor.workflow = SimpleNamespace(
        executor_settings=SimpleNamespace(pass_command_as_script=False, array_jobs=None)
    )
    assert executor.additional_general_args() == "--executor slurm-jobstep --jobs 1"
    slurm.without_job_step(executor)
    assert executor.additional_general_args() == "--executor local"
