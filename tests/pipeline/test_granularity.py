"""Jobs of a round and of a whole run: what is planned, and that a killed one goes on with the same bytes."""

from __future__ import annotations

import hashlib
import os
import signal
import subprocess
import time

import pytest

from tests import tiny
from tests.pipeline.processes import processes_with
from tests.pipeline.test_dag import counted, counts, options
from turncredit.config import merge

TINY = tiny.ARGUMENTS
#: a change -> how often Snakemake runs some rules
PLANS = """
# the SFT policy's rollouts, one for each seed; its evaluations, one for each round; the invariants of a run's rounds
methods: [gigpo, rloo], granularity: round, seeds: [0, 1], rounds: 3, tasks: {eval: 12} -> rounds: 12, rollout: 2
methods: [gigpo, rloo], granularity: round, rounds: 3 -> eval: 3, credit: 0, update: 0, invariants: 2
methods: [gigpo, rloo], granularity: round, rounds_per_job: 2, rounds: 3 -> rounds: 4
methods: [gigpo, rloo], granularity: run, rounds: 3 -> rounds: 2, credit: 0, update: 0, invariants: 0
# a run makes its measures itself, but for those of the SFT policy's rollouts
methods: [has_progressive, oracle_progress], granularity: run, rounds: 3 -> rounds: 2, measures: 1
# the audited run's own credit is its job's
granularity: run, audit: {rounds: [2], methods: [flat_grpo, gigpo], branch: {turns: 4}} -> rounds: 2, credit: 1
granularity: run, audit: {rounds: [2], methods: [flat_grpo]} -> branch: 1, fidelity: 1, gradients: 1, pages: 1
define: {hot: {base: rloo, rollout: {temperature: 1.5}}}, methods: [rloo, hot], granularity: run -> rollout: 2
# in hindsight, round 1 and round 2; what istar itself reads is its job's
methods: [istar], granularity: round, audit: {rounds: [1, 2], methods: [istar, hcapo]} -> logprobs: 2, implicit_model: 0
methods: [istar], granularity: run, audit: {rounds: [1, 2], methods: [istar, hcapo]} -> logprobs: 2, implicit_model: 0
# round 2, whose policy plays round 3, and the last of each run
keep_policies: last, rounds: 4, audit: {rounds: [3], methods: [flat_grpo]} -> update_kept: 3, update: 5
"""


@pytest.mark.parametrize(("changes", "expected"), counted(PLANS))
def test_an_experiment_has_these_jobs(snakemake, changes, expected):
    jobs = counts(snakemake("-n", *TINY, *options(merge({"eval": {"games": 2}}, changes))))
    assert {rule: jobs[rule] for rule in expected} == expected


def test_rounds_per_job_without_jobs_of_rounds_is_a_mistake(snakemake):
    run = snakemake("-n", *TINY, "--config", "rounds_per_job=2")
    assert run.returncode != 0
    assert "set granularity to round, or remove rounds_per_job" in run.stderr


def content(results) -> dict[str, str]:
    """The hash of every table and of all weights of an experiment, by path."""
    return {
        str(path.relative_to(results)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(results.rglob("*"))
        if path.suffix in {".parquet", ".safetensors"} and "report" not in path.parts
    }


@pytest.mark.long
@pytest.mark.slow
def test_a_killed_run_goes_on_with_the_bytes_of_job_by_job(pipeline, tmp_path_factory):
    """kill -9 of everything in the second round; the same command goes on, and the first round is not made again."""
    settings = ("--cores", "1", "--config", "methods=[gigpo]", "tracking={enabled: false}")
    apart = pipeline.link(tmp_path_factory.mktemp("apart"))
    run = pipeline.run(apart, *TINY, *settings)
    assert run.returncode == 0, run.stdout + run.stderr

    together = pipeline.link(tmp_path_factory.mktemp("together"))
    command = pipeline.command(*TINY, *settings, "granularity=run")
    process = subprocess.Popen(
        command, cwd=together, env=pipeline.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    first = together / "results/tiny/runs/gigpo/seed0/round01/updates.parquet"
    second = together / "results/tiny/rollouts/gigpo/seed0/round02/turns.parquet"
    deadline = time.monotonic() + 600
    while not second.exists() and process.poll() is None and time.monotonic() < deadline:
        time.sleep(0.02)
    assert second.exists(), "the run ended before it could be killed"
    for pid in [process.pid, *processes_with(str(together))]:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    process.wait()
    assert not (together / "results/tiny/report").exists()
    made = first.stat().st_mtime_ns

    run = pipeline.run(together, *TINY, *settings, "granularity=run")
    assert run.returncode == 0, run.stdout + run.stderr
    assert first.stat().st_mtime_ns == made
    assert content(together / "results/tiny") == content(apart / "results/tiny")
