"""What a person sees of a run: how far it is, how long it will take, how it ended."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import tiny
from turncredit.config.experiment import ROUNDS
from turncredit.data.progress import progress
from turncredit.errors import UserError
from turncredit.pipeline import blocks, live_progress, locks, loop, run
from turncredit.pipeline.plan import Plan

STATS = """Building DAG of jobs...
Job stats:
job            count
-----------  -------
tasks              2
sft                1
update             3
all                1
total              7

Select jobs to execute...
"""


def state(**options) -> run.State:
    return run.State(cores=2, wanted=Counter(tasks=2, sft=1, update=4), plan={"runs": 2}, **options)


def ended(rule: str, started: float, seconds: float, **facts) -> dict:
    return {"rule": rule, "label": rule, "started": started, "ended": started + seconds, **facts}


def test_the_jobs_wanted_are_read_from_snakemakes_table():
    assert run.wanted_jobs(STATS) == {"tasks": 2, "sft": 1, "update": 3}
    assert run.wanted_jobs(STATS[:60]) == {}
    assert run.wanted_jobs("") == {}


def test_the_stages_of_jobs_of_rounds_are_counted_and_not_the_jobs(tmp_path):
    """Each stage announces its end: with the jobs as the total, 26 of 13 jobs had ended."""
    plan = Plan(tiny.experiment(granularity="run", audit={"rounds": []}))
    in_rounds = blocks.stages_of_a_job(plan)
    (tmp_path / "output").write_text(STATS.replace("update             3", "rounds             2"))
    (tmp_path / "plan.json").write_text(json.dumps({"results": "r", "runs": 2, "in_rounds": in_rounds}))
    inside = [step for method in plan.experiment.trained() for step in loop.block(plan, method, 0, [1, 2])]
    lines = [json.dumps(ended(stage, 0, 1)) for stage, _ in inside]
    (tmp_path / "ended.jsonl").write_text("\n".join(lines) + "\n")
    found = run.State(cores=1)
    for _ in range(2):
        run.look(tmp_path, found)
    assert ROUNDS == run.ROUNDS
    assert found.units == "stages"
    assert (len(found.done), found.total) == (len(inside), len(inside) + 2 + 1)  # with the games and the warm start


def test_with_a_job_for_each_stage_jobs_are_counted():
    assert blocks.stages_of_a_job(Plan(tiny.experiment())) == {}
    assert state().units == "jobs"


def test_nothing_is_said_about_the_time_left_before_the_plan_is_known():
    assert run.State(cores=2).seconds_left() is None


def test_the_time_left_follows_the_pace_of_the_jobs_that_have_ended():
    usual = run.TYPICAL
    expected = 2 * usual["tasks"] + usual["sft"] + 4 * run.USUAL / 2
    assert state().seconds_left() == pytest.approx(expected)
    patience = run.PATIENCE
    slow = state(ended=[ended("tasks", 0, usual["tasks"] + patience), ended("tasks", 0, usual["tasks"])])
    pace = (2 * usual["tasks"] + 2 * patience) / (2 * usual["tasks"] + patience)
    assert slow.seconds_left() == pytest.approx(pace * (usual["sft"] + 4 * run.USUAL / 2))
    assert state(ended=[ended("tasks", 0, 0.0)]).seconds_left() > usual["sft"] / 2


def test_a_running_job_counts_for_what_it_has_done():
    whole = state().seconds_left()
    running = {"rule": "sft", "label": "sft", "started": time.time(), "share": 0.5}
    assert state(running=[running]).seconds_left() == pytest.approx(whole - run.TYPICAL["sft"] / 2)


def test_what_comes_after_a_slow_job_is_expected_to_be_slow_before_it_has_ended():
    usual, taken = run.TYPICAL["sft"], 400.0
    running = {"rule": "sft", "label": "sft", "started": time.time() - taken, "share": 0.5}
    pace = (taken + run.PATIENCE) / (usual / 2 + run.PATIENCE)
    rest = pace * (2 * run.TYPICAL["tasks"] + 4 * run.USUAL / 2)
    assert state(running=[running]).seconds_left() == pytest.approx(taken + rest, rel=1e-3)


def test_the_first_job_of_a_rule_says_how_long_the_others_take_by_the_share_that_it_has_done():
    """Where an experiment is resumed, short jobs have ended, and say little about its first update."""
    running = {"rule": "update", "label": "update", "started": time.time() - 30, "share": 0.25}
    resumed = run.State(cores=1, wanted=Counter(config=9, update=24), plan={"runs": 1}, running=[running])
    resumed.ended = [ended("config", 0, 0.1) for _ in range(9)]
    assert resumed.seconds_left() == pytest.approx(23 * 120 + 90, rel=0.01)


@pytest.mark.parametrize("share", [{}, {"share": 0.5}])
def test_the_time_left_of_a_job_that_is_late_goes_on_changing_and_never_reaches_zero(monkeypatch, share):
    running = {"rule": "sft", "label": "sft", "started": 0.0, **share}
    left = []
    for now in (10.0, 30.0, 100.0, 200.0, 400.0):
        monkeypatch.setattr(time, "time", lambda now=now: now)
        left.append(run.State(cores=1, wanted=Counter(sft=1), plan={"runs": 1}, running=[running]).seconds_left())
    assert len(set(left)) >= 4
    assert left[2] < left[3] < left[4]
    assert min(left) > 0


@given(st.floats(0.1, 1e3), st.floats(0, 1e4), st.floats(0, 1))
def test_a_running_job_takes_no_less_than_a_quarter_of_its_time_more_where_it_reports_nothing(usual, elapsed, share):
    assert run.seconds_to_go(usual, elapsed, 0.0) >= max(elapsed / 4, usual - elapsed)
    assert run.seconds_to_go(usual, elapsed, share) <= max(usual, elapsed / run.EARLY)
    assert run.seconds_to_go(usual, elapsed, 1.0) == 0


def test_time_in_which_no_stage_ran_is_told_apart_also_where_stages_overlap():
    begun = time.time() - 10
    jobs = [ended("tasks", begun + 1, 3), ended("tasks", begun + 2, 4), ended("sft", begun + 8, 1)]
    assert state(begun=begun, ended=jobs).outside_share() == pytest.approx(0.4, abs=0.02)


def test_a_job_is_seen_while_it_runs_and_when_it_has_ended(tmp_path, monkeypatch):
    monkeypatch.setenv(live_progress.VARIABLE, str(tmp_path))
    monkeypatch.setenv("TURNCREDIT_PROGRESS", "")
    (tmp_path / "output").write_text(STATS)
    seen = run.State(cores=1)
    with live_progress.announced("sft", "sft") as tell:
        with open(os.environ["TURNCREDIT_PROGRESS"], "w", encoding="utf-8") as file:
            json.dump({"done": 3, "total": 4}, file)
        assert run.look(tmp_path, seen) == []
        assert [(job["label"], job["share"]) for job in seen.running] == [("sft", 0.75)]
        tell(metrics={"loss": 1.0})
    new = run.look(tmp_path, seen)
    assert [(job["rule"], job["metrics"]) for job in new] == [("sft", {"loss": 1.0})]
    assert seen.running == []
    assert run.look(tmp_path, seen) == []
    assert seen.total == 6


def test_a_job_that_is_interrupted_or_killed_is_not_counted_as_done(tmp_path, monkeypatch):
    monkeypatch.setenv(live_progress.VARIABLE, str(tmp_path))
    monkeypatch.setenv("TURNCREDIT_PROGRESS", "")
    (tmp_path / "output").write_text(STATS)
    seen = run.State(cores=1)
    with contextlib.suppress(KeyboardInterrupt), live_progress.announced("tasks", "tasks train"):
        raise KeyboardInterrupt
    announce = """
import sys
from turncredit.pipeline import live_progress
with live_progress.announced("sft", "sft"):
    print("announced", flush=True)
    sys.stdin.read()
"""
    job = subprocess.Popen([sys.executable, "-c", announce], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert job.stdout is not None
    assert job.stdout.readline() == b"announced\n"
    job.kill()
    job.wait()
    assert [run.line_of(ended).split(" after ")[0] for ended in run.look(tmp_path, seen)] == [
        "killed: tasks train",
        "killed: sft",
    ]
    assert (seen.done, seen.running) == ([], [])
    assert run.look(tmp_path, seen) == []


def test_a_job_of_another_machine_is_running_although_no_process_here_has_its_number(tmp_path, monkeypatch):
    monkeypatch.setenv(live_progress.VARIABLE, str(tmp_path))
    monkeypatch.setenv("TURNCREDIT_PROGRESS", "")
    (tmp_path / "output").write_text(STATS)
    with monkeypatch.context() as elsewhere:
        elsewhere.setattr(os, "getpid", lambda: 2**22 + 1)  # above the largest number that Linux gives
        elsewhere.setattr(live_progress.socket, "gethostname", lambda: "node-7.cluster")
        announced = live_progress.announced("sft", "sft")
        announced.__enter__()
    seen = run.State(cores=1)
    assert run.look(tmp_path, seen) == []
    assert [job["label"] for job in seen.running] == ["sft"]


def test_a_display_that_is_gone_or_whose_disk_is_full_ends_no_job(tmp_path, monkeypatch):
    watched = tmp_path / "watch"
    watched.mkdir()
    monkeypatch.setenv(live_progress.VARIABLE, str(watched))
    monkeypatch.setenv("TURNCREDIT_PROGRESS", "")
    with live_progress.announced("sft", "sft"):
        shutil.rmtree(watched)
        watched.touch()  # a file in the folder's place: nothing can be written below it
        progress(1, 1)
    assert watched.is_file()


def test_what_snakemake_prints_may_be_in_any_encoding(tmp_path):
    (tmp_path / "output").write_bytes(b"No such file: caf\xe9\n" + STATS.encode())
    seen = run.State(cores=1)
    assert run.look(tmp_path, seen) == []
    assert seen.total == 6


def test_a_note_does_not_hide_why_a_run_failed_after_its_jobs_had_begun(tmp_path, capsys):
    (tmp_path / "output").write_text("turncredit: settings have changed\nOSError: No space left on device\n")
    state = run.State(cores=1, ended=[ended("update", 0, 2)])
    assert run._finish(1, tmp_path, state, run.Console(width=200)) == 1
    said = capsys.readouterr().out
    assert said.count("turncredit: settings have changed") == 1
    assert "OSError: No space left on device" in said
    assert "Snakemake's full log is the newest file" in said


def test_a_note_does_not_hide_why_a_run_failed_whose_jobs_say_nothing_here_as_on_a_cluster(tmp_path, capsys):
    (tmp_path / "output").write_text(f"turncredit: settings have changed\n{STATS}sbatch: error: invalid qos\n")
    assert run._finish(1, tmp_path, run.State(cores=1), run.Console(width=200)) == 1
    said = capsys.readouterr().out
    assert "sbatch: error: invalid qos" in said
    assert "Snakemake's full log is the newest file" in said


#: What Snakemake prints where a job failed.
FAILED = f"{STATS}Error in rule sft:\nExiting because a job execution failed.\nWorkflowError:\n{run.JOB_FAILED}\n"


def test_a_run_that_ends_since_a_job_was_killed_says_so_and_how_to_go_on(tmp_path, capsys):
    (tmp_path / "output").write_text(FAILED)
    killed = ended("sft", 0, 2, stopped=True)
    assert run._finish(1, tmp_path, run.State(cores=1, ended=[killed]), run.Console(width=200)) == 1
    said = capsys.readouterr().out
    assert "Run the same command to resume." in said
    assert "WorkflowError" not in said
    assert "Snakemake's full log is the newest file" in said


@pytest.mark.parametrize(
    ("output", "after"),
    [(FAILED, [ended("sft", 3, 2)]), ("OSError: No space left on device\nWorkflowError\n", [])],
)
def test_a_killed_job_does_not_hide_another_reason_why_a_run_failed(tmp_path, capsys, output, after):
    """It was tried again and ended well, or more than a job failed."""
    (tmp_path / "output").write_text(output)
    state = run.State(cores=1, ended=[ended("sft", 0, 2, stopped=True), *after])
    assert run._finish(1, tmp_path, state, run.Console(width=200)) == 1
    said = capsys.readouterr().out
    assert "WorkflowError" in said
    assert "resume" not in said


def test_targets_of_the_snakefile_are_no_stages_that_end():
    assert run.wanted_jobs(STATS.replace("all  ", "runs ")) == {"tasks": 2, "sft": 1, "update": 3}


def test_a_file_that_belongs_to_another_option_is_no_forgotten_configuration(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "partitions.yaml").write_text("partitions: {}\n")
    assert run.check_configuration(["--slurm-partition-config", "partitions.yaml", "--cores", "1"]) == []
    with pytest.raises(UserError, match="--configfile partitions"):
        run.check_configuration(["--cores", "1", "partitions.yaml"])


def test_a_job_that_failed_is_not_counted_as_done():
    assert state(ended=[ended("sft", 0, 2, error="sft: no such file"), ended("sft", 0, 2)]).done == [ended("sft", 0, 2)]


def test_without_a_watcher_a_job_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.delenv(live_progress.VARIABLE, raising=False)
    monkeypatch.chdir(tmp_path)
    with live_progress.announced("sft", "sft") as tell:
        tell(metrics={})
    assert list(tmp_path.iterdir()) == []


def test_an_evaluation_says_its_success_and_a_failure_its_reason():
    line = run.line_of(ended("eval", 0, 2, metrics={"success_sampled": 0.25}) | {"label": "eval rloo seed0 round02"})
    assert line is not None
    assert line.split() == ["rloo", "seed0", "round02", "success", "sampled", "0.250"]
    assert run.line_of(ended("update", 0, 2, error="update: no such file")) == "failed: update: no such file"
    assert (
        run.line_of(ended("update", 0, 2, warning="update: warning: nothing", metrics={})) == "update: warning: nothing"
    )
    assert run.line_of(ended("update", 0, 2)) is None


def test_a_rule_that_the_display_does_not_know_is_shown_like_the_others():
    usual = run.State(cores=1, wanted=Counter(some_new_rule=3), plan={"runs": 1})
    assert usual.seconds_left() == pytest.approx(3 * run.USUAL)
    usual.running = [{"rule": "another", "label": "another", "started": time.time()}]
    assert usual.seconds_left() == pytest.approx(3 * run.USUAL)
    assert run.line_of(ended("some_new_rule", 0, 2, metrics={"success_sampled": 1.0})) is None


@pytest.mark.parametrize("options", [
        ["-np"], ["--cores", "2", "-n"], ["--unlock"], ["--version"], ["-nc4"], ["-fn", "a"], ["-Ft"],
        ["--dag=dot"], ["--report=page.html"], ["--list-conda-envs"], ["--print-compilation"],
    ],
)  # fmt: skip
def test_where_snakemake_runs_no_job_what_it_prints_is_the_answer(options, monkeypatch, tmp_path):
    """Without a display, which would say that nothing was left to do."""
    monkeypatch.chdir(tmp_path)
    asked = []
    monkeypatch.setattr(subprocess, "run", lambda command, **_: asked.append(command) or SimpleNamespace(returncode=0))
    assert run.main(options) == 0
    assert asked == [[sys.executable, "-P", "-m", "snakemake", *options]]


@pytest.mark.parametrize("launcher", ["warm", "plain"])
def test_a_file_beside_the_snakefile_is_never_taken_for_a_module_of_its_name(pipeline, workdir, launcher):
    for name in ("random", "bottleneck", "pandas", "turns"):  # as a method of one's own may be called
        (workdir / f"{name}.py").write_text("raise SystemExit('a method was imported as a module')")
    options = ["--configfile", "config/test/tiny.yaml", "--config", f"launcher={launcher}", "--", "config"]
    done = pipeline.python(workdir, "-P", "-m", "turncredit.pipeline.run", "--cores", "1", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (workdir / "results/tiny/config.json").exists()


@pytest.mark.parametrize("given", ["--config", "own/mine.yaml"])
def test_a_mistake_in_the_configuration_is_one_line_that_names_where_it_is_given_and_status_2(pipeline, workdir, given):
    (workdir / "own").mkdir()
    (workdir / "own" / "mine.yaml").write_text("roudns: 3")
    options = ["--config", "roudns=3"] if given == "--config" else ["--configfile", "config/test/tiny.yaml", given]
    done = pipeline.python(workdir, "-m", "turncredit.pipeline.run", "--cores", "1", *options)
    assert done.returncode == 2
    assert done.stdout == f"turncredit: {given}: unknown key 'roudns' (did you mean 'rounds'?)\n"
    assert done.stderr == ""


@pytest.mark.slow
def test_a_run_ends_with_the_table_and_where_things_lie_and_a_failed_job_with_its_reason(pipeline, workdir):
    options = ("-m", "turncredit.pipeline.run", "--cores", "2")
    target = "results/tiny/tasks/train.parquet"
    config = tiny.ARGUMENTS
    done = pipeline.python(workdir, *options, target, *config)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "\ntasks train " in f"\n{done.stdout}"
    assert str(workdir / "results/tiny") in done.stdout
    (workdir / target).write_bytes(b"PAR1")
    failed = pipeline.python(workdir, *options, "results/tiny/demos/demos.parquet", *config)
    assert failed.returncode == 1
    assert f"failed: demos: {target}: not a readable Parquet file" in failed.stdout
    assert "Traceback" not in failed.stdout


#: In place of the script of every rule: a job that announces itself, and is killed.
KILLED_JOB = """
import os, signal
from turncredit.pipeline import live_progress
with live_progress.announced("tasks", "tasks train"):
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.slow
def test_a_killed_job_is_named_when_the_run_ends_and_by_the_status(pipeline, workdir):
    for name in ("rules", "workflow_scripts"):
        (workdir / name).unlink()
    shutil.copytree(pipeline.source / "rules", workdir / "rules")
    (workdir / "workflow_scripts").mkdir()
    (workdir / "workflow_scripts" / "stage.py").write_text(KILLED_JOB, encoding="utf-8")
    target = "results/tiny/tasks/train.parquet"
    done = pipeline.python(workdir, "-m", "turncredit.pipeline.run", "--cores", "1", target, *tiny.ARGUMENTS)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "killed: tasks train after " in done.stdout
    assert "Run the same command to resume." in done.stdout
    assert "WorkflowError" not in done.stdout
    main = "from turncredit.cli.main import main; main()"
    told = pipeline.python(workdir, "-c", main, "status", *tiny.ARGUMENTS).stdout
    assert ", 1 failed\n" in told
    assert "failed: tasks train: nothing says why it failed; it may have been killed" in told


@pytest.mark.slow
def test_a_run_writes_its_configuration_first_and_says_where_its_results_are_in_another_directory(
    pipeline, workdir, tmp_path_factory
):
    """Whatever reads results while they are made needs their configuration."""
    options = ("-m", "turncredit.pipeline.run", "--cores", "1", "-s", workdir / "Snakefile", "-d", workdir)
    targets = (workdir / "results/tiny/tasks/train.parquet", workdir / "results/tiny/config.json")
    config = ("--configfile", workdir / tiny.ARGUMENTS[1])
    asked = [str(target.relative_to(workdir)) for target in targets]
    done = pipeline.python(tmp_path_factory.mktemp("elsewhere"), *map(str, (*options, *asked, *config)))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"artifacts  {workdir / 'results/tiny'}\n" in done.stdout
    tasks, configuration = (target.stat().st_mtime_ns for target in targets)
    assert configuration < tasks


@pytest.mark.parametrize(
    ("output", "lines"),
    [
        ("turncredit: config: rounds: too few\nexit\n", ["turncredit: config: rounds: too few"]),
        (
            "InputFunctionException in rule credit:\nError:\n  UserError: unknown method 'rlooo'\nTraceback:\n  File\n",
            ["turncredit: unknown method 'rlooo'"],
        ),
        (
            "MissingRuleException:\nNo rule to produce results/tiny/a.parquet (if you use input functions ...)\n",
            ["turncredit: no stage makes results/tiny/a.parquet; `turncredit where STAGE` prints the paths of a stage"],
        ),
        (
            "MissingRuleException:\nNo rule to produce update (if you use input functions ...)\n",  # --forcerun update
            [
                "turncredit: no rule runs update alone: with granularity round or run it is a part of jobs of the rule "
                "rounds, which skip what is there; to repeat it, remove its outputs (`turncredit where update`)"
            ],
        ),
        ("Error in rule update:\n    UserError: printed by a job\n", []),
    ],
)
def test_a_mistake_in_what_was_asked_for_is_one_line_without_a_traceback(output, lines):
    assert run.mistakes_in(output) == lines


def test_a_run_that_works_in_the_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = tmp_path / ".snakemake/turncredit-processes"
    records.mkdir(parents=True)
    (records / "me.json").write_text(json.dumps(locks.identity(os.getpid())))
    (line,) = run.mistakes_in("LockException:\nError: Directory cannot be locked. Please make sure ...\n")
    assert line.startswith(f"turncredit: another run works in this folder (process {os.getpid()} on ")


def test_a_run_on_another_machine_is_left_to_the_user(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("turncredit-processes", "locks"):
        (tmp_path / ".snakemake" / name).mkdir(parents=True)
    (tmp_path / ".snakemake/locks/0.input.lock").touch()
    record = {"host": "login1", "pid": 4242, "started": "1", "boot": "b"}
    (tmp_path / ".snakemake/turncredit-processes/other.json").write_text(json.dumps(record))
    (line,) = run.mistakes_in("LockException:\nError: Directory cannot be locked. Please make sure ...\n")
    assert "process 4242 on login1" in line
    assert line.endswith("wait until it ends, or, if it has, run: snakemake --unlock")


@pytest.mark.parametrize(
    ("arguments", "with_it"),
    [
        (["--cores", "2"], ["--config", "a=1", "--cores", "2"]),
        (["target", "--cores", "2"], ["target", "--config", "a=1", "--cores", "2"]),
        (["target"], ["target", "--config", "a=1"]),
        (["-n", "--config", "b=2", "c=3", "-k"], ["--config", "b=2", "c=3", "a=1", "-n", "-k"]),
        (["--config", "b=2", "-n", "-C", "c=3"], ["--config", "b=2", "c=3", "a=1", "-n"]),
        (["--config=b=2", "-k", "--", "target"], ["--config", "b=2", "a=1", "-k", "--", "target"]),
        (["--", "runs"], ["--config", "a=1", "--", "runs"]),
    ],
)
def test_all_keys_are_in_one_option_that_takes_no_other_argument(arguments, with_it):
    assert run.with_keys(arguments, "a=1") == with_it
    assert run.values_of(with_it, "--config") == [*run.values_of(arguments, "--config", "-C"), "a=1"]


@pytest.mark.parametrize("arguments", [["--cores", "2", "--", "runs"], ["-n", "--config", "a=1", "--cores", "2"]])
def test_arguments_with_one_option_for_keys_or_none_stay_as_they_are(arguments):
    assert run.with_keys(arguments) == arguments


@pytest.fixture
def sweep(pipeline, workdir):
    """turncredit, with the tiny experiment at two learning rates."""
    (workdir / "sweep.yaml").write_text("experiment: two\nsweep: {grid: {update.lr: [1.0e-4, 2.0e-4]}}")

    def turncredit(command: str, *more: str) -> subprocess.CompletedProcess[str]:
        options = ["--configfile", tiny.CONFIG, "--configfile", "sweep.yaml"]
        options = options if command != "run" else ["--cores", "2", "--configfile", tiny.CONFIG, "sweep.yaml"]
        main = "from turncredit.cli.main import main; main()"
        return pipeline.python(workdir, "-c", main, command, *options, *more)

    return turncredit


def test_the_experiments_of_a_sweep_run_one_after_another_and_each_is_seen(sweep, workdir):
    ran = sweep("run", "--", "config")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    headings = [line for line in ran.stdout.splitlines() if line.startswith("experiment ")]
    assert headings == ["experiment 1 of 2: two_lr_0_0001", "experiment 2 of 2: two_lr_0_0002"]
    rates = {}
    for path in workdir.glob("results/*/config.json"):
        rates[path.parent.name] = json.loads(path.read_text())["update"]["lr"]
    assert rates == {"two_lr_0_0001": 1.0e-4, "two_lr_0_0002": 2.0e-4}
    done = [line.partition(" stages")[0] for line in sweep("status").stdout.splitlines() if " stages done" in line]
    assert done == ["two_lr_0_0001: 1 of 29", "two_lr_0_0002: 1 of 29"]


@pytest.mark.parametrize("asked", [(), ("--keep-going",), ("--profile", "going")])
def test_after_an_experiment_that_fails_the_next_runs_only_if_asked(sweep, workdir, asked):
    (workdir / "going").mkdir()
    (workdir / "going" / "config.yaml").write_text("keep-going: true")
    ran = sweep("run", *asked, "--", "results/two_lr_0_0002/config.json")
    assert ran.returncode == 1
    assert ("experiment 2 of 2" in ran.stdout) is bool(asked)
    assert (workdir / "results" / "two_lr_0_0002" / "config.json").exists() is bool(asked)


def test_a_mistake_in_any_experiment_of_a_sweep_is_said_before_the_first_begins(sweep, workdir):
    (workdir / "sweep.yaml").write_text("experiment: two\nsweep: {grid: {sft.epochs: [1, many]}}")
    ran = sweep("run", "-n")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr.startswith("turncredit: sweep: sft.epochs: input should be a valid number")


def test_snakemake_refuses_a_key_that_the_chosen_experiment_of_a_list_would_win_over(sweep, workdir):
    (workdir / "sweep.yaml").write_text("experiment: two\nsweep: {experiments: {a: {update.lr: 0.1}, b: {seeds: [1]}}}")
    lost = sweep("run", "-n", "--config", "sweep={only: two_a}", "update={lr: 0.2}")
    assert lost.returncode == 2
    assert "turncredit: update.lr is 0.2, but the experiment 'two_a' sets it to 0.1" in lost.stderr
    assert sweep("run", "-n", "--config", "sweep={only: two_b}", "update={lr: 0.2}", "--", "config").returncode == 0
