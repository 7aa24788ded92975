"""An update whose job comes near its time limit stops and keeps its state; another attempt ends with the same bits.

Nothing but the end of the job differs: Slurm gives it in the environment, and so do these tests.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from itertools import count
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiny
from turncredit.data import tables
from turncredit.errors import OutOfTime, UserError
from turncredit.pipeline import failures, retries, slurm
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.job_script import Description
from turncredit.pipeline.plan import load
from turncredit.training import unfinished

ROOT = Path(__file__).parents[2]
AT = JobKeys(method="flat_grpo", seed=0, round=1)
UPDATE = {"minibatch": 4, "epochs": 1, "skip_dead_groups": False, "lr": 1e-3}


@pytest.fixture
def limit(monkeypatch):
    """A function that sets how many seconds are left of the time limit of the job that the tests run in."""
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)

    def ends(left):
        monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + left)))

    return ends


def job_of(world, credits, folder, *, threads=1, policy=None, **update):
    """The stage update, with outputs in `folder`."""
    changes = {"update": {**UPDATE, **update}, "policy": policy or {}}
    return world.job("update", AT, folder, changes, threads=threads, credits=credits)


def run(job):
    return load("update").run(job)


def made(job):
    """The bytes of weights and moments, and the rows of the log."""
    folder = Path(job.output["policy"])
    weights = {path.name: path.read_bytes() for path in folder.glob("*.safetensors")}
    return weights, (folder / "trainer.json").read_text(), tables.read(job.output["updates"], "updates").to_pylist()


def state_of(job):
    return Path(job.output["policy"]).with_name("unfinished_update")


def steps_in(state):
    return len(json.loads((state / "state.json").read_text())["rows"])


@pytest.mark.parametrize(
    ("policy", "update", "threads"),
    [
        ({}, {}, 1),
        ({}, {"shards": 2, "kl": "k3", "kl_coefficient": 0.1, "old_logprobs": "recomputed"}, 2),
        ({"dtype": "bfloat16", "train_dtype": "bfloat16", "moments_dtype": "bfloat16"}, {"keep_optimizer": False}, 1),
        ({"dtype": "bfloat16"}, {"warmup_steps": 5}, 1),
        ({"train_gpus": 2}, {"tokens_per_pass": 400, "old_logprobs": "recomputed"}, 1),
    ],
    ids=["whole", "two processes", "stochastic rounding", "masters", "spread over two"],
)
def test_an_update_that_is_interrupted_ends_with_the_bits_of_one_that_is_not(
    world, credits, tmp_path, limit, policy, update, threads
):
    through, stopped = (
        job_of(world, credits, tmp_path / name, threads=threads, policy=policy, **update) for name in ("a", "b")
    )
    metrics = run(through)
    limit(30)
    with pytest.raises(OutOfTime, match=r"1 of 4 steps are kept in .*unfinished_update"):
        run(stopped)
    assert steps_in(state_of(stopped)) == 1
    assert not Path(stopped.output["policy"]).exists()
    limit(10_000)
    assert run(stopped) == metrics
    assert made(stopped) == made(through)
    assert not state_of(stopped).exists()


def test_attempts_go_on_where_the_one_before_has_stopped(world, credits, tmp_path, limit, monkeypatch):
    through, stopped = (job_of(world, credits, tmp_path / name) for name in ("a", "b"))
    run(through)
    limit(30)
    with pytest.raises(OutOfTime, match="stopped before the job's time limit"):
        run(stopped)
    limit(10_000)
    checks = count()
    with monkeypatch.context() as patched:  # what is to be written becomes too much for the time left
        patched.setattr(unfinished, "_bytes_of", lambda _: 0 if next(checks) < 2 else 10**15)
        with pytest.raises(OutOfTime, match="stopped before the job's time limit"):
            run(stopped)
    assert steps_in(state_of(stopped)) == 3
    run(stopped)
    assert made(stopped) == made(through)


def test_an_attempt_that_has_no_time_for_a_step_is_not_followed_by_another(world, credits, tmp_path, limit):
    job = job_of(world, credits, tmp_path)
    limit(30)
    with pytest.raises(OutOfTime, match="stopped before the job's time limit"):
        run(job)
    with pytest.raises(UserError, match=r"too near for another step; 1 of 4 steps are kept") as error:
        run(job)
    assert failures.status_of(error.value) == failures.USER_ERROR
    assert steps_in(state_of(job)) == 1


def test_a_state_of_other_settings_or_other_credit_is_removed(world, credits, tmp_path, limit):
    limit(30)
    with pytest.raises(OutOfTime, match="stopped before the job's time limit"):
        run(job_of(world, credits, tmp_path / "b"))
    limit(10_000)
    through, other = (job_of(world, credits, tmp_path / name, lr=2e-3) for name in ("a", "b"))
    for job in (through, other):
        run(job)
    assert made(other) == made(through)
    assert not state_of(other).exists()


@pytest.mark.parametrize("name", [unfinished.STATE_FILE, unfinished.TENSORS_FILE])
def test_a_damaged_state_is_removed_and_the_update_begins_anew(world, credits, tmp_path, limit, capsys, name):
    through, job = (job_of(world, credits, tmp_path / one) for one in ("a", "b"))
    limit(30)
    with pytest.raises(OutOfTime, match="stopped before the job's time limit"):
        run(job)
    file = state_of(job) / name
    file.write_bytes(file.read_bytes()[:-3])
    limit(10_000)
    for one in (through, job):
        run(one)
    assert "unfinished_update: removed, because it is damaged" in capsys.readouterr().out
    assert made(job) == made(through)


def test_what_a_process_left_that_was_killed_while_it_wrote_a_state_is_removed(world, credits, tmp_path):
    job = job_of(world, credits, tmp_path)
    left = [state_of(job).with_name(f".unfinished_update.f1ce0799.{ending}") for ending in ("part", "old")]
    for folder in left:
        folder.mkdir(parents=True)
        (folder / "state.safetensors").write_bytes(b"half")
    run(job)
    assert [folder for folder in left if folder.exists()] == []


@pytest.mark.parametrize("leads", [True, False])
def test_of_several_processes_the_first_alone_removes_a_state_and_says_so(tmp_path, capsys, leads):
    folder = tmp_path / "unfinished_update"
    folder.mkdir()
    (folder / unfinished.STATE_FILE).write_text(json.dumps({"made_from": {"seed": 1}, "rows": [{}]}))
    kept = unfinished.Unfinished(folder, {"seed": 2})
    assert kept.restore(SimpleNamespace(leads=leads), None, None) == []
    assert folder.exists() == (not leads)
    assert ("removed" in capsys.readouterr().out) == leads


def test_each_of_several_processes_says_how_many_steps_are_kept(tmp_path):
    """Whichever is the first to raise is heard (`training.processes`), and only the first has the rows."""
    team = SimpleNamespace(leads=False, all_of=lambda due: [due])
    state = SimpleNamespace(weights=lambda **_: {}, state=lambda **_: {})
    kept = unfinished.Unfinished(tmp_path, {})
    for _ in range(3):
        kept.stop_if_due(team, state, state, [], 8)
    team.all_of = lambda _: [True]
    with pytest.raises(OutOfTime, match=r"; 3 of 8 steps are kept"):
        kept.stop_if_due(team, state, state, [], 8)


def test_the_process_of_a_job_ends_with_a_status_after_which_it_is_tried_again(world, credits, tmp_path, limit, capsys):
    through, job = (job_of(world, credits, tmp_path / name) for name in ("a", "b"))
    described = Description(
        stage="update",
        rule="update",
        slice=job.config.model_dump(mode="json"),
        config=tiny.mapping(update=UPDATE),
        input=job.input,
        output={**job.output, "metrics": str(tmp_path / "metrics.json")},
        wildcards={"method": "flat_grpo", "seed": "0", "round": "01"},
        log=str(tmp_path / "update.log"),
    )
    (tmp_path / "update.job.json").write_text(json.dumps(vars(described)), encoding="utf-8")
    limit(30)
    command = [sys.executable, str(ROOT / "workflow_scripts" / "stage.py"), str(tmp_path / "update.job.json")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert ran.returncode == failures.OUT_OF_TIME, ran.stderr
    assert ran.stderr.startswith("update flat_grpo seed0 round01: stopped before the job's time limit; 1 of 4 steps")
    limit(10_000)
    for one in (through, job):
        run(one)
    assert "goes on after step 1" in capsys.readouterr().out
    assert made(job) == made(through)


KEYS, MINE = {"method": "flat_grpo", "seed": "0", "round": "01"}, "results/mine"


def fails(status):
    with pytest.raises(SystemExit), failures.recorded("update", KEYS, MINE):
        raise failures.JobFailed(status, "update", None)


def attempts(*statuses, retries_allowed, since=0.0):
    """How many attempts Snakemake makes of a job whose attempts end so, the last of these again and again.

    As its scheduler: it tries again if a job may be tried again more often than it has been
    (https://github.com/snakemake/snakemake/blob/v9.27.0/src/snakemake/scheduling/job_scheduler.py, `_handle_error`).
    """
    job = SimpleNamespace(rule=SimpleNamespace(name="update", restart_times=retries_allowed), wildcards=KEYS, attempt=1)
    while True:
        fails(statuses[min(job.attempt, len(statuses)) - 1])
        if not retries.attempts_more(job, MINE, preemptions=0, since=since) > job.attempt - 1:
            return job.attempt
        job.attempt += 1


@pytest.fixture
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("allowed", [0, 1, 3])
@pytest.mark.parametrize("stopped", [0, 1, 5])
def test_a_crash_after_stops_before_the_time_limit_is_tried_again_as_often_as_a_first_one(allowed, stopped):
    stops = [failures.OUT_OF_TIME] * stopped
    assert attempts(*stops, failures.OTHER_ERROR, retries_allowed=allowed) == stopped + 1 + allowed


@pytest.mark.usefixtures("elsewhere")
def test_stops_and_crashes_in_turn_use_up_retries_by_the_crashes_alone():
    stop, crash = failures.OUT_OF_TIME, failures.OTHER_ERROR
    assert attempts(crash, stop, stop, crash, stop, crash, retries_allowed=2) == 6
    assert attempts(stop, stop, failures.USER_ERROR, retries_allowed=2) == 3


@pytest.mark.usefixtures("elsewhere")
def test_stops_of_an_earlier_snakemake_or_before_a_success_give_no_more_attempts():
    stops = [failures.OUT_OF_TIME] * 3
    attempts(*stops, failures.OTHER_ERROR, retries_allowed=1)
    began = time.time()
    assert attempts(failures.OTHER_ERROR, retries_allowed=1, since=began) == 2
    with failures.recorded("update", KEYS, MINE):
        pass
    assert attempts(failures.OTHER_ERROR, retries_allowed=1) == 2


@pytest.mark.usefixtures("elsewhere")
@pytest.mark.parametrize("text", ["", "[17", "{}", "[null]"])
def test_a_damaged_record_of_stops_counts_as_none(text):
    fails(failures.OUT_OF_TIME)
    (record,) = failures.FOLDER.glob("*.stops")
    record.write_text(text)
    assert failures.stops("update", KEYS, MINE, since=0.0) == 0


@pytest.mark.usefixtures("elsewhere")
def test_a_job_that_stopped_in_time_is_always_tried_again_and_preempted_attempts_do_not_count_either():
    job = SimpleNamespace(rule=SimpleNamespace(name="update", restart_times=1), wildcards=KEYS)
    assert retries.attempts_more(job, MINE, preemptions=2, since=0.0) == 3
    fails(failures.OUT_OF_TIME)
    assert retries.attempts_more(job, MINE, preemptions=2, since=0.0) == 4


@pytest.mark.parametrize(
    ("squeue", "seconds"),
    [("7:03", 423), ("1:00:00", 3600), ("2-01:00:10", 176410), ("UNLIMITED", None), ("INVALID", None), ("", None)],
)
def test_before_slurm_23_the_time_left_is_what_squeue_says(tmp_path, monkeypatch, squeue, seconds):
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "squeue").write_text(f"#!/bin/sh\necho '{squeue}'\n")
    (tmp_path / "squeue").chmod(0o755)
    assert slurm.end_of_this_job() is None
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    assert slurm.end_of_this_job(now=lambda: 1000.0) == (None if seconds is None else 1000.0 + seconds)
    monkeypatch.setenv("SLURM_JOB_END_TIME", "1795667764")
    assert slurm.end_of_this_job() == 1795667764
