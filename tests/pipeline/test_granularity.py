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
from tests.pipeline.test_dag import counts

TINY = tiny.ARGUMENTS
#: two methods that read the same
ALIKE = "methods=[flat_grpo,gigpo]"
AUDIT = "audit={run: flat_grpo, rounds: [2], methods: [flat_grpo, gigpo], branch: {turns: 4}, pages: 1}"


def planned(snakemake, *config: str):
    return counts(snakemake("-n", *TINY, "--config", *config))


def test_a_job_of_a_round_takes_the_place_of_its_stages(snakemake):
    jobs = planned(snakemake, ALIKE, "granularity=round", "seeds=[0,1]", "rounds=3", "tasks={eval: 12}")
    runs = 2 * 2
    assert jobs["rounds"] == 3 * runs
    assert jobs["rollout"] == 2  # the SFT policy's, one for each seed
    assert jobs["eval"] == 3  # the SFT policy's, one for each round
    assert jobs["invariants"] == runs  # of all rounds of a run
    assert not {"credit", "update"} & set(jobs)


def test_rounds_per_job_cuts_a_run_into_blocks(snakemake):
    jobs = planned(snakemake, ALIKE, "granularity=round", "rounds_per_job=2", "rounds=3", "tasks={eval: 12}")
    assert jobs["rounds"] == 2 * 2


def test_a_run_is_one_job(snakemake):
    jobs = planned(snakemake, ALIKE, "granularity=run", "rounds=3", "tasks={eval: 12}")
    assert jobs["rounds"] == 2
    assert not {"credit", "update", "invariants"} & set(jobs)


def test_a_run_that_reads_measures_makes_them_itself_but_for_those_that_are_shared(snakemake):
    jobs = planned(
        snakemake, "granularity=run", "methods=[has_progressive,oracle_progress]", "rounds=3", "tasks={eval: 12}"
    )
    assert jobs["rounds"] == 2
    assert jobs["measures"] == 1  # of the SFT policy's rollouts


def test_an_audit_reads_what_the_audited_runs_job_makes(snakemake):
    jobs = planned(snakemake, "granularity=run", AUDIT)
    assert jobs["rounds"] == 2
    assert jobs["credit"] == 1  # of gigpo, which has no run: the audited run's own credit is its job's
    assert jobs["branch"] == jobs["fidelity"] == jobs["gradients"] == jobs["pages"] == 1


def test_a_method_with_its_own_sampling_has_first_rollouts_of_its_own(snakemake):
    define = "define={hot: {base: flat_grpo, rollout: {temperature: 1.5}}}"
    jobs = planned(snakemake, "granularity=run", define, "methods=[flat_grpo,hot]")
    assert jobs["rounds"] == 2
    assert jobs["rollout"] == 2


def test_rounds_per_job_without_jobs_of_rounds_is_a_mistake(snakemake):
    run = snakemake("-n", *TINY, "--config", "rounds_per_job=2")
    assert run.returncode != 0
    assert "rounds_per_job belongs to granularity round" in run.stderr


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
