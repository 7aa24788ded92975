"""`turncredit status`, on the files that Snakemake and the stages leave: nothing is run."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests import tiny
from turncredit.cli import status
from turncredit.cli.plan import gpu_hours, submitted_jobs
from turncredit.data.provenance import config_hash
from turncredit.pipeline import failures, locks, slurm
from turncredit.pipeline.all_jobs import every_job, jobs_and_inputs
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load

SQUEUE = """#!/bin/sh
echo '17|RUNNING|None|run-a|rule_update_wildcards_flat_grpo_0_02'
echo '18|PENDING|Priority|run-a|rule_eval_wildcards_flat_grpo_0_01'
echo '19_[3-8]|PENDING|PartitionTimeLimit|run-a|rule_credit_wildcards_flat_grpo_has_progressive_0_02'
"""


@pytest.fixture
def plan(tmp_path, monkeypatch):
    """The tiny experiment on GPUs, in a folder where nothing has run yet."""
    monkeypatch.chdir(tmp_path)
    return Plan(tiny.experiment(resources={"update": {"gpu": 1}, "eval": {"gpu": 2}}))


def ended(plan, stage, started=1000.0, wall_s=60.0, metrics=None, **keys):
    """Let a job have ended."""
    path = Path(plan.metrics(stage, JobKeys(**keys)))
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"stage": stage, "started": started, "wall_s": wall_s, "peak_mb": 1.0, "metrics": metrics or {}}
    record["settings"] = config_hash(plan.settings(stage, JobKeys(**keys)))
    path.write_text(json.dumps(record), encoding="utf-8")


def being_made(path, job=None):
    """Let Snakemake have marked an output; it does so in folders of names that are not too long, here of 40."""
    name = base64.urlsafe_b64encode(path.encode()).decode()
    parts = [name[at : at + 40] for at in range(0, len(name), 40)]
    mark = Path(".snakemake/incomplete", *(f"@{part}" for part in parts[:-1]), parts[-1])
    mark.parent.mkdir(parents=True, exist_ok=True)
    mark.write_text(json.dumps({"external_jobid": job}), encoding="utf-8")


def cluster(tmp_path, monkeypatch):
    """Put a squeue on the PATH that lists three jobs of this experiment."""
    command = tmp_path / "bin" / "squeue"
    command.parent.mkdir()
    command.write_text(SQUEUE)
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    slurm.remember(Path(".snakemake"), "results/tiny", "run-a", process=os.getpid())


def test_before_anything_has_run_all_is_left_and_no_time_is_promised(plan):
    lines = status.lines_of(plan)
    total = len(every_job(plan))
    assert lines[0] == f"tiny: 0 of {total} stages done, 0 running, 0 queued, 0 failed"
    assert "nothing has ended yet, so the time that is left is not known" in lines
    assert "flat_grpo       seed 0    0 of 2 rounds" in lines


def test_a_run_shows_its_rounds_its_last_success_and_what_it_does_on_the_cluster(plan, tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch)
    ended(plan, "update", method="flat_grpo", seed=0, round=1)
    ended(plan, "eval", metrics={"success_sampled": 0.25}, method="flat_grpo", seed=0, round=1)
    run = {"method": "flat_grpo", "seed": 0}
    being_made(plan.layout.path("policy", **run, round=2), "17")
    being_made(plan.layout.path("credits", policy="flat_grpo", seed=0, round=2, method="has_progressive"), "19_4")
    being_made(plan.layout.path("evals", method="has_progressive", seed=0, round=1), "12")
    lines = status.lines_of(plan)
    assert lines[0].endswith("stages done, 1 running, 1 queued, 0 failed, 1 interrupted")
    flat = next(line for line in lines if line.startswith("flat_grpo"))
    assert "1 of 2 rounds  success 0.250 (round 1)" in flat
    assert flat.endswith("update of round 2 running")
    other = next(line for line in lines if line.startswith("has_progressive"))
    assert "credit of round 2 queued" in other
    assert "eval of round 1 interrupted" in other


def test_why_jobs_wait_is_said_with_their_number(plan, tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch)
    run = {"method": "flat_grpo", "seed": 0}
    being_made(plan.layout.path("evals", **run, round=1), "18")
    assert status.lines_of(plan)[1:3] == ["1 queued: 1 Priority", ""]
    for task, method in enumerate(("flat_grpo", "has_progressive"), start=3):
        being_made(plan.layout.path("credits", policy=method, seed=0, round=2, method=method), f"19_{task}")
    assert status.lines_of(plan)[1] == "3 queued: 2 PartitionTimeLimit, 1 Priority"


def test_jobs_are_not_called_interrupted_where_squeue_does_not_answer(plan, tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch)
    (tmp_path / "bin/squeue").write_text("#!/bin/sh\necho 'slurm_load_jobs error: Socket timed out' >&2; exit 1\n")
    assert not [line for line in status.lines_of(plan) if "squeue" in line]  # nothing was submitted
    being_made(plan.layout.path("policy", method="flat_grpo", seed=0, round=2), "17")
    lines = status.lines_of(plan)
    assert lines[0].endswith("stages done, 0 running, 0 queued, 0 failed, 1 submitted")
    assert lines[1] == (
        "whether submitted jobs wait, run or are gone is not known: squeue does not answer (slurm_load_jobs error: "
        "Socket timed out); run this where Slurm's commands work"
    )
    assert next(line for line in lines if line.startswith("flat_grpo")).endswith("update of round 2 submitted")
    (tmp_path / "bin/squeue").unlink()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    assert status.lines_of(plan)[1].startswith(
        "whether submitted jobs wait, run or are gone is not known: squeue does "
    )


def test_a_job_of_a_run_is_at_its_first_stage_that_has_not_ended(tmp_path, monkeypatch):
    """Its outputs are what the next jobs read: the policy of its last round, and the run's invariants."""
    monkeypatch.chdir(tmp_path)
    cluster(tmp_path, monkeypatch)
    whole = Plan(tiny.experiment(granularity="run", audit={"rounds": []}))
    run = {"method": "flat_grpo", "seed": 0}
    ended(whole, "credit", policy=tiny.SHARED, round=1, **run)
    ended(whole, "update", round=1, **run)
    being_made(whole.layout.path("policy", **run, round=2), "17")
    being_made(whole.layout.path("invariants", **run), "17")
    lines = status.lines_of(whole)
    assert lines[0].endswith("stages done, 1 running, 0 queued, 0 failed")
    assert next(line for line in lines if line.startswith("flat_grpo")).endswith("eval of round 1 running")


def test_on_this_machine_a_marked_output_is_being_made_while_a_snakemake_lives(plan):
    being_made(plan.layout.path("sft_policy", warm_start="sft"))
    assert [line for line in status.lines_of(plan) if line == "shared by runs: sft interrupted"]
    records = Path(".snakemake/turncredit-processes")
    records.mkdir()
    (records / "me.json").write_text(json.dumps(locks.identity(os.getpid())))
    assert [line for line in status.lines_of(plan) if line == "shared by runs: sft running"]


def test_the_results_may_be_given_by_their_whole_path(plan, tmp_path, capsys):
    (tmp_path / "config.yaml").write_text((tiny.ROOT / "config.yaml").read_text())
    being_made(plan.layout.path("sft_policy", warm_start="sft"))
    status.status([tiny.ROOT / tiny.CONFIG], None, tmp_path / "results")
    assert "shared by runs: sft interrupted" in capsys.readouterr().out


def test_a_snakemake_on_another_machine_counts_while_it_holds_its_lock(tmp_path):
    (tmp_path / "turncredit-processes").mkdir()
    away = {**locks.identity(os.getpid()), "host": f"not-{socket.gethostname()}"}
    (tmp_path / "turncredit-processes" / "x.json").write_text(json.dumps(away))
    assert locks.holder(tmp_path) is None
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "0.input.lock").touch()
    assert locks.holder(tmp_path) is not None


def fails(rule, log=None, **wildcards):
    """Let a job have failed."""
    with pytest.raises(SystemExit, match="2"), failures.recorded(rule, wildcards, "results/tiny"):
        raise failures.JobFailed(2, "update flat_grpo seed0 round02: no memory", log)


def test_a_job_that_was_killed_is_named_among_the_failed_ones(plan):
    began, update = time.time(), {"method": "flat_grpo", "seed": "0", "round": "02"}
    fails("sft")
    failed = [
        SimpleNamespace(rule=SimpleNamespace(name=rule), wildcards=keys, log=[f"{rule}.log"], is_group=lambda: False)
        for rule, keys in (("update", update), ("sft", {}))
    ]
    said = failures.failure_of("sft", {}, "results/tiny")
    failures.record_killed(failed, "results/tiny", since=began)
    assert failures.failure_of("sft", {}, "results/tiny") == said
    lines = status.lines_of(plan)
    assert lines[0].endswith(", 2 failed")
    assert f"failed: update flat_grpo seed0 round02: {failures.KILLED}" in lines
    failures.record_killed(failed[1:], "results/tiny", since=time.time())
    now = failures.failure_of("sft", {}, "results/tiny")
    assert now is not None
    assert now.line == f"sft: {failures.KILLED}"


def test_preempted_jobs_are_shown_and_have_not_failed(plan, tmp_path, monkeypatch):
    cluster(tmp_path, monkeypatch)
    listed = "17|PREEMPTED|None|run-a|rule_update_wildcards_flat_grpo_0_02"
    (tmp_path / "bin/squeue").write_text(f"#!/bin/sh\necho '{listed}'\n")
    being_made(plan.layout.path("policy", method="flat_grpo", seed=0, round=2), "17")
    keys = {"method": "flat_grpo", "seed": "0", "round": "02"}
    job = SimpleNamespace(rule=SimpleNamespace(name="update"), wildcards=keys, log=[], is_group=lambda: False)
    executor = SimpleNamespace(report_job_error=lambda *_, **__: None, _failed_nodes=set())
    failures.record_what_slurm_says(executor, "results/tiny", since=0.0)
    ended_by_slurm = SimpleNamespace(job=job, external_jobid="17", aux={})
    executor.report_job_error(ended_by_slurm, msg="SLURM status is: 'PREEMPTED'.")
    slurm.count_preemption(Path(".snakemake"), "run-a")
    lines = status.lines_of(plan)
    assert lines[0].endswith("stages done, 0 running, 0 queued, 0 failed, 1 preempted")
    assert lines[1] == "1 preempted so far, and submitted again each time"
    assert next(line for line in lines if line.startswith("flat_grpo")).endswith("update of round 2 preempted")


def test_an_update_that_stopped_before_its_time_limit_is_shown_and_has_not_failed(plan):
    line = "update flat_grpo seed0 round02: stopped before the job's time limit; 7 of 20 steps are kept"
    keys = {"method": "flat_grpo", "seed": "0", "round": "02"}
    with pytest.raises(SystemExit, match="4"), failures.recorded("update", keys, "results/tiny"):
        raise failures.JobFailed(failures.OUT_OF_TIME, line, None)
    lines = status.lines_of(plan)
    assert lines[0].endswith(", 0 failed")
    assert lines[1] == line


def test_failures_of_jobs_that_the_configuration_no_longer_has_are_not_counted(plan):
    run = {"method": "flat_grpo", "seed": "0"}
    fails("update_kept", **run, round="02")
    fails("sft")
    fails("update", method="no_longer", seed="0", round="01")
    fails("update", method="flat_grpo", seed="7", round="01")
    fails("update", **run, round="03")
    fails("rounds_01_02_1", **run)
    fails("update", episode="1")
    assert status.lines_of(plan)[0].endswith(", 2 failed")


def test_a_failure_counts_until_the_job_has_ended_well(plan):
    fails("update", method="flat_grpo", seed="0", round="02")
    ended(plan, "update", started=time.time() - 3600, method="flat_grpo", seed=0, round=2)
    assert status.lines_of(plan)[0].endswith(", 1 failed")
    ended(plan, "update", started=time.time(), method="flat_grpo", seed=0, round=2)
    assert status.lines_of(plan)[0].endswith(", 0 failed")


def test_a_failed_job_of_several_rounds_counts_while_its_rounds_are_one_job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    fails("rounds", method="flat_grpo", seed="0")
    fails("rounds", method="no_longer", seed="0")
    assert status.lines_of(Plan(tiny.experiment(granularity="run")))[0].endswith(", 1 failed")
    assert status.lines_of(Plan(tiny.experiment(granularity="round")))[0].endswith(", 0 failed")


def test_a_failure_is_shown_with_the_last_lines_of_its_log(plan):
    log = Path("results/tiny/logs/update.log")
    log.parent.mkdir(parents=True)
    log.write_text("\n".join(f"line {number}" for number in range(20)), encoding="utf-8")
    fails("update", log=str(log), method="flat_grpo", seed="0", round="02")
    lines = status.lines_of(plan)
    at = lines.index("failed: update flat_grpo seed0 round02: no memory")
    assert lines[at + 1 : at + 3] == [f"    {log}:", "    line 15"]
    assert lines[at + 6] == "    line 19"


def test_the_rest_takes_the_measured_times_at_the_measured_pace_and_gpu_hours_count_their_gpus(plan):
    """Two jobs of a minute each, side by side; a day's pause before them does not slow the pace."""
    ended(plan, "config", started=1000.0 - 86400, wall_s=1.0)
    for method in ("flat_grpo", "has_progressive"):
        ended(plan, "update", started=1000.0, wall_s=60.0, method=method, seed=0, round=1)
        ended(plan, "eval", started=1060.0, wall_s=30.0, method=method, seed=0, round=1)
    lines = status.lines_of(plan)
    assert any(line.startswith("nothing runs; about ") and "2.0 jobs at a time" in line for line in lines)
    running = status.rest_lines(plan, [("sft", JobKeys())], {("config", JobKeys()): {"wall_s": 120, "started": 0}})
    assert running[0].startswith("about 2 min left")
    spent = (2 * 60 * 1 + 2 * 30 * 2) / 3600
    hours = next(line for line in lines if line.startswith("GPU hours: "))
    assert hours.startswith(f"GPU hours: {spent:.1f} spent in stages, about ")


def test_what_a_changed_file_of_the_users_made_is_to_do_again(tmp_path, monkeypatch):
    """An environment of the user's own: after an edit, nothing that was played in it counts as done."""
    monkeypatch.chdir(tmp_path)
    shutil.copy(tiny.ROOT / "examples/counting_env.py", tmp_path / "mine.py")
    plan = Plan(tiny.experiment(methods=["flat_grpo"], env={"name": "mine.py"}, agent={"name": "window"}))
    load("tasks").run(plan.job("tasks", JobKeys(split="train")))
    for stage, at in every_job(plan):
        ended(plan, stage, started=time.time(), **at.keys)
    assert status.ended(plan, jobs_and_inputs(plan))[1] == 0
    before = Path("mine.py").read_text(encoding="utf-8")
    Path("mine.py").write_text(before + "# changed\n", encoding="utf-8")
    os.utime("mine.py", (time.time() + 5, time.time() + 5))
    again = status.ended(plan, jobs_and_inputs(plan))[1]
    assert again == sum(stage != "config" for stage, _ in every_job(plan))


def test_when_all_is_done_nothing_is_left(plan):
    for stage, at in every_job(plan):
        ended(plan, stage, **at.keys)
    lines = status.lines_of(plan)
    assert "nothing is left to do" in lines
    assert "flat_grpo       seed 0    2 of 2 rounds" in lines


def test_what_ended_with_other_settings_or_before_what_it_reads_was_made_anew_is_to_do_again(plan):
    before = Plan(tiny.experiment(update={"lr": 0.5}))
    for round in (1, 2):
        ended(before, "update", method="flat_grpo", seed=0, round=round)
        ended(plan, "eval", metrics={"success_sampled": 0.25}, method="flat_grpo", seed=0, round=round)
    lines = status.lines_of(plan)
    assert lines[0].startswith("tiny: 0 of ")
    assert lines[0].endswith(", 4 to do again because settings or inputs changed")
    assert "flat_grpo       seed 0    0 of 2 rounds" in lines
    ended(plan, "update", started=2000.0, method="flat_grpo", seed=0, round=1)
    lines = status.lines_of(plan)
    assert lines[0].startswith("tiny: 1 of ")
    assert lines[0].endswith(", 3 to do again because settings or inputs changed")
    ended(plan, "eval", started=3000.0, method="flat_grpo", seed=0, round=1)
    assert status.lines_of(plan)[0].startswith("tiny: 2 of ")


def test_the_hours_to_come_are_those_of_the_plan_also_where_one_job_runs_a_run(plan):
    together = Plan(plan.experiment.model_copy(update={"granularity": "run"}))
    coming = []
    for one in (plan, together):
        ended(one, "config")
        hours = next(line for line in status.lines_of(one) if line.startswith("GPU hours: "))
        planned = sum(gpu_hours(one, submitted_jobs(one, every_job(one))).values())
        assert hours.endswith(f"about {planned:.1f} to come")
        coming.append(planned)
    assert coming[1] < coming[0]


def test_files_that_a_copy_has_given_other_times_are_what_snakemake_would_make_again(plan):
    jobs = jobs_and_inputs(plan)
    outputs = [path for job in jobs for path in plan.outputs(*job).values()]
    for time_, path in enumerate(outputs, start=1_000_000):
        Path(path).parent.mkdir(parents=True, exist_ok=True)
        Path(path).touch()
        os.utime(path, (time_, time_))
    assert status.made_before_their_inputs(plan, jobs, set(jobs)) == 0
    turns = plan.layout.path("turns", policy="flat_grpo", seed=0, round=2)
    os.utime(turns, (2_000_000, 2_000_000))
    after = {stage for stage, at in jobs if "flat_grpo" in (at.policy, at.method) and at.round == 2} - {"rollout"}
    again = status.made_before_their_inputs(plan, jobs, set(jobs))
    assert len(after) <= again < len(jobs) / 2
    os.utime(outputs[0], (2_000_000, 2_000_000))
    assert status.made_before_their_inputs(plan, jobs, set(jobs)) > again
