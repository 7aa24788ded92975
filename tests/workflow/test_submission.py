"""Jobs that Slurm does not take now are submitted again, with the plugin's own executor and a stand-in for Slurm."""

from __future__ import annotations

import logging
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Wildcards

from turncredit.pipeline.submission import Submission

LIMIT = "sbatch: error: QOSMaxSubmitJobPerUserLimit\nsbatch: error: Batch job submission failed: Job violates policy"
AWAY = "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)"
LOST = "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation"
WRONG = "sbatch: error: invalid partition specified: a100\nsbatch: error: Batch job submission failed: Invalid name"
#: Refuses with the first file's text as long as there is one, and then takes the job as number 17.
SBATCH = """#!/bin/sh
echo >> {folder}/calls
refusal=$(ls {folder}/refusal* 2>/dev/null | head -1)
[ -z "$refusal" ] && {{ echo 17; exit 0; }}
cat $refusal >&2; rm $refusal; exit 1
"""


@pytest.fixture
def slurm(tmp_path, monkeypatch):
    """A folder of Slurm's commands: `refuse` tells sbatch what to say the next times, `jobs` is what squeue lists."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name, text in {"sbatch": SBATCH, "squeue": "#!/bin/sh\ncat {folder}/jobs\n", "sinfo": "#!/bin/sh\n"}.items():
        (folder / name).write_text(text.format(folder=folder))
        (folder / name).chmod(0o755)
    (folder / "jobs").write_text("")
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")

    def refuse(*texts):
        for number, text in enumerate(texts):
            (folder / f"refusal{number}").write_text(text)

    calls = lambda: len((folder / "calls").read_text().splitlines())  # noqa: E731
    return SimpleNamespace(refuse=refuse, calls=calls, jobs=folder / "jobs")


@pytest.fixture
def executor(tmp_path):
    """The plugin's executor without Snakemake's part of it; what it reports is kept."""
    from snakemake_executor_plugin_slurm import Executor

    made = Executor.__new__(Executor)
    made.submitted, made.failed, made.ended = [], [], threading.Event()
    settings = SimpleNamespace(pass_command_as_script=False, requeue=True, no_requeue=False, qos=None, reservation=None)
    made.workflow = SimpleNamespace(executor_settings=settings, workdir_init=tmp_path)
    made.logger = logging.getLogger("plugin")
    made.run_uuid, made.slurm_logdir = "run-a", tmp_path / "logs"
    made._failed_nodes, made._main_event_loop, made._partitions = set(), None, None
    made._fallback_account_arg = made._fallback_partition = ""
    made._submitted_job_clusters = set()
    made._job_submission_executor = ThreadPoolExecutor(max_workers=2)
    made.format_job_exec = lambda _: "true"
    made.run_job_pre = lambda _: None
    made.report_job_submission = made.submitted.append
    made.report_job_error = lambda _, msg=None: made.failed.append(msg)
    made.shutdown = made.ended.set
    yield made
    made._job_submission_executor.shutdown()


class Resources(dict):
    __getattr__ = dict.get


def job():
    """A job of the rule update."""
    made = SimpleNamespace(name="update", jobid=3, threads=1, is_group=lambda: False)
    made.rule, made.wildcards = SimpleNamespace(name="update"), Wildcards(fromdict={"method": "gigpo", "seed": "0"})
    made.resources = Resources(mem_mb=1000, runtime=60)
    return made


@pytest.mark.parametrize("refusal", [LIMIT, AWAY, LOST, "Failed to run sinfo: Unable to contact slurm controller"])
def test_a_job_that_slurm_does_not_take_now_is_submitted_again_until_it_does(slurm, executor, refusal, capsys):
    slurm.refuse(refusal, refusal)
    Submission(executor, every=0.01).run_job(job())
    assert [one.external_jobid for one in executor.submitted] == ["17"]
    assert executor.failed == []
    assert slurm.calls() == 3
    said = capsys.readouterr().err.splitlines()
    assert len(said) == 2
    assert said[0].startswith("turncredit: Slurm takes no jobs now (")
    assert said[1] == "turncredit: Slurm takes jobs again"


def test_a_group_of_jobs_that_slurm_does_not_take_now_is_submitted_again(slurm, executor):
    slurm.refuse(LIMIT)
    group = job()
    group.is_group = lambda: True
    del group.rule, group.wildcards  # as of Snakemake's
    Submission(executor, every=0.01).run_job(group)
    assert [one.external_jobid for one in executor.submitted] == ["17"]


def test_a_job_that_slurm_refuses_for_good_fails_at_once(slurm, executor, capsys):
    slurm.refuse(WRONG)
    Submission(executor, every=60).run_job(job())
    assert "invalid partition specified" in executor.failed[0]
    assert (executor.submitted, slurm.calls()) == ([], 1)
    assert capsys.readouterr().err == ""


def test_a_refusal_that_lasts_too_long_is_a_failure(slurm, executor):
    slurm.refuse(AWAY, AWAY, AWAY, AWAY)
    times = iter([0.0, 0.0, 40.0, 100.0])
    Submission(executor, every=0.01, at_most=60, clock=lambda: next(times)).run_job(job())
    assert len(executor.failed) == 1
    assert slurm.calls() == 3


def test_a_job_that_slurm_took_although_its_answer_was_lost_is_not_submitted_a_second_time(slurm, executor):
    slurm.refuse(LOST)
    slurm.jobs.write_text(
        "40|COMPLETED|None|run-a|rule_update_wildcards_gigpo_0\n41|RUNNING|None|run-a|rule_update_wildcards_gigpo_0\n"
    )
    Submission(executor, every=0.01).run_job(job())
    (taken,) = executor.submitted
    assert taken.external_jobid == "41"
    assert taken.aux["slurm_logfile"] == executor.slurm_logdir / "rule_update" / "gigpo_0" / "41.log"
    assert (executor.failed, slurm.calls()) == ([], 1)


def test_the_plugin_submits_through_it_and_the_end_of_snakemake_ends_the_wait(slurm, executor):
    slurm.refuse(*[LIMIT] * 9)
    Submission(executor, every=600)
    executor._submit_job(job())
    executor._submit_job(job())
    while not (slurm.jobs.parent / "calls").exists():
        time.sleep(0.01)
    begin = time.monotonic()
    executor.shutdown()
    executor._job_submission_executor.shutdown(wait=True)
    assert time.monotonic() - begin < 60
    assert executor.ended.is_set()
    assert len(executor.failed) == 2


def test_other_failures_of_the_plugin_are_reported_as_before(executor):
    Submission(executor)
    executor._report_job_error_threadsafe("array", "Part of failed array sbatch submission: QOSMaxSubmitJobLimit")
    assert executor.failed == ["Part of failed array sbatch submission: QOSMaxSubmitJobLimit"]
