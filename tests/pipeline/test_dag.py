"""The graph of jobs: what is shared, what a round reads, what a mistake in the configuration says. Dry runs only."""

from __future__ import annotations

import os
import re
import subprocess
from collections import Counter
from pathlib import Path

import pytest

from tests import tiny
from turncredit.config import load
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
TINY = tiny.ARGUMENTS


def counts(run: subprocess.CompletedProcess[str]) -> Counter[str]:
    """Jobs by rule of a dry run."""
    assert run.returncode == 0, run.stdout + run.stderr
    table = run.stdout.partition("Job stats:\n")[2].partition("\n\n")[0]
    found = {name: int(count) for name, count in re.findall(r"^(\w+)\s+(\d+)$", table, re.MULTILINE)}
    return Counter({name: count for name, count in found.items() if name not in {"total", "all"}})


def test_jobs_fan_out_over_methods_and_seeds_and_what_is_shared_is_made_once(snakemake):
    jobs = counts(
        snakemake(
            "-n", *TINY, "--config", "seeds=[0,1,2]", "methods=[sft,flat_grpo,rloo]", "rounds=3", "tasks={eval: 12}"
        )
    )
    runs, rounds = 2 * 3, 3
    assert jobs == {
        **dict.fromkeys(("config", "demos", "base", "sft", "report", "track"), 1),
        "tasks": 2,
        "rollout": 3 + runs * (rounds - 1),  # a seed's first rollouts are shared by all methods
        **dict.fromkeys(("credit", "update"), runs * rounds),
        "eval": (1 + runs) * rounds,  # the SFT policy's, and each run's
        "invariants": runs,
    }
    assert jobs == planned(seeds=[0, 1, 2], methods=["sft", "flat_grpo", "rloo"], rounds=3, tasks={"eval": 12})


def planned(**changes) -> Counter[str]:
    """Jobs by rule of the tiny experiment, as `turncredit plan`, `status` and `check` find them."""
    return Counter(stage for stage, _ in every_job(Plan(tiny.experiment(**changes))))


def test_a_method_with_its_own_sampling_has_first_rollouts_of_its_own(snakemake):
    define = "define={hot: {base: flat_grpo, rollout: {temperature: 1.5}, update: {lr: 0.01}}}"
    jobs = counts(
        snakemake("-n", *TINY, "--config", define, "methods=[flat_grpo,hot,rloo]", "tracking={enabled: false}")
    )
    assert jobs["rollout"] == 2 + 3  # two ways to sample in round 1, and each run's round 2
    assert "track" not in jobs


def test_a_part_of_a_large_experiment_is_a_part_of_its_runs(snakemake):
    several = ("--config", "seeds=[0,1,2]", "methods=[flat_grpo,rloo]", "tracking={enabled: false}")
    whole = counts(snakemake("-n", *TINY, *several))
    part = counts(snakemake("-n", tiny.path("report"), *TINY, *several, "--batch", "report=1/3"))
    assert "report" not in part
    for rule in ("invariants", "update", "credit", "eval"):
        assert 0 < part[rule] <= whole[rule] / 2, rule  # a third, and a run that a border falls in


def test_only_evaluated_rounds_are_evaluated_and_the_last_three_always(snakemake):
    jobs = counts(snakemake("-n", *TINY, "--config", "rounds=8", "eval={every: 3}", "tasks={eval: 16}"))
    rounds = 4  # 3, 6, 7 and 8
    assert (jobs["eval"], jobs["update"]) == ((1 + 2) * rounds, 2 * 8)


def test_the_target_runs_asks_for_all_runs_without_audits_and_report(snakemake):
    audit = "audit={rounds: [2], methods: [flat_grpo, gigpo]}"
    jobs = counts(snakemake("-n", "runs", *TINY, "--config", audit))
    whole = counts(snakemake("-n", *TINY, "--config", audit))
    assert whole == planned(audit={"rounds": [2], "methods": ["flat_grpo", "gigpo"]})
    assert jobs["runs"] == 1
    assert {rule: jobs[rule] for rule in ("update", "invariants")} == {"update": 4, "invariants": 2}
    assert not {"branch", "fidelity", "gradients", "rollout_invariants", "pages", "report", "track"} & set(jobs)
    assert jobs["credit"] < whole["credit"]


def test_any_stage_can_be_asked_for_by_its_file_also_of_a_method_that_is_not_in_the_list(snakemake):
    jobs = counts(snakemake("-n", tiny.path("credits", "rloo", seed=5, round=2), *TINY))
    assert jobs == {
        "tasks": 1,
        **dict.fromkeys(("demos", "base", "sft", "update"), 1),
        **dict.fromkeys(("rollout", "credit"), 2),
    }


def test_the_hundredth_round_follows_the_ninety_ninth(snakemake):
    long = ("rounds=101", "eval={every: 101}", "tasks={eval: 12}")
    jobs = counts(snakemake("-n", tiny.path("credits", "rloo", round=101), *TINY, "--config", *long))
    assert (jobs["rollout"], jobs["update"], jobs["credit"]) == (101, 100, 101)


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
    typed = re.findall(r"^ +\.venv/bin/snakemake (--profile slurm .*)$", (ROOT / "README.md").read_text(), re.MULTILINE)
    assert len(typed) == 1
    (workdir / "bin").mkdir()
    (workdir / "bin/conda").write_text(CONDA)
    (workdir / "bin/conda").chmod(0o755)
    path = f"{workdir / 'bin'}{os.pathsep}{os.environ['PATH']}"
    (workdir / "json_2.1.1").mkdir()
    run = snakemake("-n", *typed[0].split(), PATH=path, ALFWORLD_DATA=str(workdir))
    experiment = load([ROOT / "config.yaml", ROOT / "config/qwen2.5-1.5b.yaml"])
    jobs = counts(run)
    jobs["update"] += jobs.pop("update_last")  # the rounds whose policies are kept
    assert jobs == Counter(stage for stage, _ in every_job(Plan(experiment)))
    assert "gpu-rollout.yaml will be created" in run.stdout


def test_a_dry_run_starts_no_process_and_needs_no_torch(snakemake, workdir):
    # A module called torch that cannot be imported stands before the real one.
    (workdir / "no").mkdir()
    for name in ("torch", "transformers", "mlflow", "matplotlib"):
        (workdir / "no" / f"{name}.py").write_text("raise ImportError('a dry run imports this')\n")
    run = snakemake("-n", *TINY, PYTHONPATH=str(workdir / "no"))
    assert counts(run)["update"] == 4
