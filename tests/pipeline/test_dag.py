"""The graph of jobs: what is shared, what a round reads, what a mistake in the configuration says. Dry runs only."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tiny
from tests.helpers import cases
from turncredit.config import load
from turncredit.pipeline.all_jobs import every_job, jobs_and_inputs, maker
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.views.tracking import NOT_TRACKED

ROOT = Path(__file__).resolve().parents[2]
TINY = tiny.ARGUMENTS


def counts(run: subprocess.CompletedProcess[str]) -> Counter[str]:
    """Jobs by rule of a dry run."""
    assert run.returncode == 0, run.stdout + run.stderr
    table = run.stdout.partition("Job stats:\n")[2].partition("\n\n")[0]
    found = {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}
    return Counter({name: count for name, count in found.items() if name not in {"total", "all"}})


def options(changes: dict[str, Any]) -> list[str]:
    """The changes as `--config` takes them; the key `target` as what is asked for."""
    given = [f"{key}={json.dumps(value)}" for key, value in changes.items() if key != "target"]
    target = changes.get("target")
    return [*(["--config", *given] if given else []), *(["--", PATHS.get(target, target)] if target else [])]


def counted(table: str) -> list[Any]:
    """Parameters (changes, jobs by stage or rule) of a table."""
    found = [(*case.values, case.id) for case in cases(table)]
    return [pytest.param(changes, yaml.safe_load(f"{{{jobs}}}"), id=name) for changes, jobs, name in found]


#: a change of the tiny experiment -> how often Snakemake runs some of its stages
PLANS = """
# without a method or an audit that reads them there are no such jobs
rounds: 2 -> label: 0, hiddens: 0, credit_model: 0, values: 0, forks: 0, logprobs: 0, branch: 0, pages: 0
# what is shared is made once, a seed's first rollouts too
seeds: [0, 1, 2], methods: [sft, flat_grpo, rloo], rounds: 3, tasks: {eval: 12} -> demos: 1, base: 1, sft: 1, tasks: 2
seeds: [0, 1, 2], methods: [sft, rloo], rounds: 3, tasks: {eval: 12} -> rollout: 9, credit: 9, update: 9, eval: 12
# two ways to sample in round 1, and each run's round 2
define: {hot: {base: rloo, rollout: {temperature: 1.5}}}, methods: [gigpo, hot, rloo] -> rollout: 5
tracking: {enabled: false} -> track: 0, report: 1
# rounds 5, 6, 7 and 8 of the SFT policy and two runs
rounds: 8, eval: {every: 5}, tasks: {eval: 16} -> eval: 12, update: 16
# in round 1 role, progress and score of two seeds' rollouts; in round 2 each run's own
seeds: [0, 1], methods: [gigpo, triage, triage_no_regression, triage_scalar, has_judge] -> label: 14
# hindsight in round 1, and in round 2 of both; istar's in both rounds
methods: [hcapo, hcapo_smooth, istar] -> logprobs: 5, implicit_model: 2
# the authors' code begins with the SFT policy
methods: [istar_code] -> logprobs: 2, implicit_model: 1
# round 1 once for both; then each run's own
define: {a: {base: vineppo}, b: {base: truth, continuations: {per_state: 9}}}, methods: [a, b] -> continuations: 3
define: {a: {base: vineppo}, b: {base: truth, continuations: {per_state: 3}}}, methods: [a, b] -> continuations: 4
# an audit credits the run's rollouts by each method, and adds no run
audit: {rounds: [1, 2], methods: [gigpo, triage, turn_value, ppo]} -> rollout: 3, update: 4, eval: 6, branch: 2
audit: {rounds: [1, 2], methods: [gigpo, triage, turn_value, ppo]} -> credit: 12, credit_model: 4, values: 4, hiddens: 2
# round 1, which both have, and a round 2 of each
methods: [gigpo, rloo], audit: {run: [rloo, gigpo], rounds: [1, 2], methods: [rloo]} -> branch: 3, fidelity: 3, pages: 3
"""
TARGETS = """
target: runs, audit: {rounds: [2], methods: [flat_grpo, gigpo]} -> update: 4, invariants: 2, branch: 0, report: 0
target: audit, audit: {rounds: [2], methods: [flat_grpo, gigpo]} -> credit: 3, report: 0, track: 0, eval: 0
# artifacts, named after their keys; of a method that is not in the list too
target: LABELS, methods: [triage], judge: {kind: llm, model: org/Some-Model_7B} -> label: 1, rollout: 1, credit: 0
target: BRANCHES -> branch: 1, rollout: 2, measures: 1, credit: 1, update: 1, eval: 0
target: CREDITS -> tasks: 1, demos: 1, base: 1, sft: 1, update: 1, rollout: 2, credit: 2, eval: 0, report: 0
target: CREDITS_OF_101, rounds: 101, eval: {every: 101}, tasks: {eval: 12} -> rollout: 101, update: 100, credit: 101
"""
PATHS = {
    "LABELS": tiny.path("labels", judge="some-model-7b-think", question="role"),
    "BRANCHES": tiny.path("branches", "flat_grpo", round=2),
    "CREDITS": tiny.path("credits", "rloo", seed=5, round=2),
    "CREDITS_OF_101": tiny.path("credits", "rloo", round=101),
}


def planned(**changes: Any) -> Counter[str]:
    """Jobs by stage of the tiny experiment, as `turncredit plan`, `status` and `check` find them."""
    return Counter(stage for stage, _ in every_job(Plan(tiny.experiment(**changes))))


@pytest.mark.parametrize(("changes", "expected"), counted(PLANS))
def test_an_experiment_has_these_jobs_and_snakemake_finds_the_same(snakemake, changes, expected):
    jobs = counts(snakemake("-n", *TINY, *options(changes)))
    assert {stage: jobs[stage] for stage in expected} == expected
    assert jobs == planned(**changes)


@pytest.mark.parametrize(("changes", "expected"), counted(TARGETS))
def test_a_target_asks_for_these_jobs(snakemake, changes, expected):
    jobs = counts(snakemake("-n", *TINY, *options(changes)))
    assert {stage: jobs[stage] for stage in expected} == expected


def test_a_part_of_a_large_experiment_is_a_part_of_its_runs(snakemake):
    several = ("--config", "seeds=[0,1,2]", "methods=[flat_grpo,rloo]", "tracking={enabled: false}")
    whole = counts(snakemake("-n", *TINY, *several))
    part = counts(snakemake("-n", tiny.path("report"), *TINY, *several, "--batch", "report=1/3"))
    assert "report" not in part
    for rule in ("invariants", "update", "credit", "eval"):
        assert 0 < part[rule] <= whole[rule] / 2, rule  # a third, and a run that a border falls in


@pytest.mark.parametrize("mistake", ["roudns=3", "methods=[flat_gpro]"])
def test_a_mistake_is_said_in_one_line_before_any_job(snakemake, workdir, mistake):
    run = snakemake("--cores", "1", *TINY, "--config", mistake)
    own = [text for text in run.stderr.splitlines() if text.startswith("turncredit: ")]
    assert run.returncode == 2
    assert len(own) == 1, run.stderr
    assert "did you mean" in own[0]
    assert "Traceback" not in run.stdout + run.stderr
    assert not (workdir / "results").exists()


def test_snakemake_itself_refuses_a_key_that_a_file_gives_twice(snakemake, workdir):
    (workdir / "twice.yaml").write_text("rounds: 1\nrounds: 2\n")
    run = snakemake("-n", *TINY, "twice.yaml")
    assert run.returncode == 2
    assert "twice.yaml: line 2: the key 'rounds' is given twice, first in line 1" in run.stderr


def test_the_slurm_profile_works_as_typed(snakemake):
    run = snakemake("--profile", "slurm", "-n", *TINY)
    assert counts(run)["update"] == 4


CONDA = """#!/bin/sh
case "$1 $2" in
  "info --json") echo '{"conda_prefix": "/none", "platform": "linux-64"}' ;;
  "config --get") echo '{"get": {"channel_priority": "strict"}}' ;;
  *) echo "conda 26.1.0" ;;
esac
"""


def test_the_readmes_command_for_a_cluster_plans_the_experiment_as_typed(snakemake, workdir):
    """With a stand-in for conda, which `--sdm conda` asks for its version: vLLM is in an environment of its own."""
    typed = re.findall(r"^ +snakemake (--profile slurm .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(typed) == 1
    (workdir / "bin").mkdir()
    (workdir / "bin/conda").write_text(CONDA)
    (workdir / "bin/conda").chmod(0o755)
    path = f"{workdir / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (workdir / "json_2.1.1").mkdir()
    run = snakemake("-n", *typed[0].split(), PATH=path, ALFWORLD_DATA=str(workdir))
    experiment = load([ROOT / "config.yaml", ROOT / "config/qwen2.5-1.5b.yaml"])
    jobs = counts(run)
    jobs["update"] += jobs.pop("update_kept")  # the rounds whose policies are kept
    assert jobs == Counter(stage for stage, _ in every_job(Plan(experiment)))
    assert "gpu-rollout.yaml will be created" in run.stdout


def test_a_dry_run_starts_no_process_and_needs_no_torch(snakemake, workdir):
    # A module called torch that cannot be imported stands before the real one.
    (workdir / "no").mkdir()
    for name in ("torch", "transformers", "mlflow", "matplotlib"):
        (workdir / "no" / f"{name}.py").write_text("raise ImportError('a dry run imports this')\n")
    run = snakemake("-n", *TINY, PYTHONPATH=str(workdir / "no"))
    assert counts(run)["update"] == 4


@pytest.mark.parametrize(
    ("limit", "said"),
    [(("--cores", "2", "--resources", "gpu=2"), "--resources gpu=2"), (("--jobs", "2"), "no limit")],
)
def test_on_one_machine_jobs_on_a_gpu_run_one_at_a_time_and_another_limit_is_refused(snakemake, limit, said):
    games = [tiny.LAYOUT.path("tasks", split=split) for split in ("train", "eval")]
    ran = snakemake(*limit, *TINY, "--set-resources", "tasks:gpu=4", "--", *games)
    assert ran.returncode != 0
    assert f"turncredit: tasks asks for a GPU, and with {said} several such jobs would run" in ran.stderr


def test_metrics_are_copied_after_every_job_that_has_some_those_of_audits_included():
    plan = Plan(tiny.experiment(audit={"rounds": [2]}, methods=["flat_grpo", "turn_value"]))
    jobs = jobs_and_inputs(plan)
    before, left = set(), [("track", JobKeys())]
    while left:
        new = {step for path in jobs[left.pop()] if (step := maker(plan, path))} - before
        before |= new
        left += new
    assert {step for step in jobs if step[0] not in NOT_TRACKED} <= before
