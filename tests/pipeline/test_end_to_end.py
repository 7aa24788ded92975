"""The whole pipeline on a tiny experiment: it runs, it repeats itself byte for byte, and it survives being killed."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests import tiny
from tests.pipeline.processes import processes_with, wait_for
from turncredit import tables

TINY = ("--cores", "2", *tiny.ARGUMENTS)
pytestmark = pytest.mark.slow


def artifacts(folder: Path) -> dict[str, bytes]:
    """Every table and model file below `results/tiny`, by name; what holds times is left out."""
    root = folder / "results" / "tiny"
    kept = [path for path in sorted(root.rglob("*")) if path.is_file() and path.suffix in {".parquet", ".safetensors"}]
    kept += [
        path for path in sorted(root.rglob("*.json")) if "/metrics/" not in str(path) and "/logs/" not in str(path)
    ]
    # The report's summary has wall times in it.
    return {str(path.relative_to(root)): path.read_bytes() for path in kept if "report" not in path.parts}


@pytest.fixture(scope="module")
def finished(pipeline, tmp_path_factory) -> Path:
    """A folder in which the tiny experiment has been run, jobs started warm."""
    folder = pipeline.link(tmp_path_factory.mktemp("finished"))
    run = pipeline.run(folder, *TINY)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture
def copy(pipeline, finished, tmp_path) -> Path:
    """A copy of the finished experiment that a test may damage."""
    pipeline.link(tmp_path)
    for name in ("results", ".snakemake"):
        shutil.copytree(finished / name, tmp_path / name, symlinks=True)
    return tmp_path


def job(folder: Path, name: str) -> dict:
    return json.loads((folder / "results" / "tiny" / "logs" / f"{name}.job.json").read_text())


def test_every_artifact_is_there_and_follows_its_schema(finished):
    root = finished / "results" / "tiny"
    wanted = {
        "tasks": ["tasks/train.parquet", "tasks/eval.parquet"],
        "demos": ["demos/demos.parquet"],
        "sft_log": ["sft/log.parquet"],
        "turns": ["sft/rollouts/t4k4T1.0/seed0/turns.parquet"],
        "evals": ["sft/evals/round01.parquet", "sft/evals/round02.parquet"],
    }
    for method in ("flat_grpo", "has_progressive"):
        for number in ("01", "02"):
            run = f"runs/{method}/seed0/round{number}"
            for name in ("credits", "updates", "evals"):
                wanted.setdefault(name, []).append(f"{run}/{name}.parquet")
            assert (root / run / "policy" / "model.safetensors").exists()
        wanted["turns"].append(f"runs/{method}/seed0/round02/rollouts/turns.parquet")
    for name, paths in wanted.items():
        for path in paths:
            assert tables.read(root / path, name).num_rows > 0, path
            assert tables.metadata(root / path)["config_hash"], path
    assert (root / "report" / "index.html").stat().st_size > 1000
    assert json.loads((root / "config.json").read_text())["rounds"] == 2


def test_methods_share_the_first_rollouts_and_each_round_reads_the_one_before(finished):
    root = "results/tiny"
    for method in ("flat_grpo", "has_progressive"):
        run = f"{root}/runs/{method}/seed0"
        first, second = (
            {
                stage: job(finished, f"{stage}/{method}-seed0-round{n}")["input"]
                for stage in ("credit", "update", "eval")
            }
            for n in ("01", "02")
        )
        assert (
            first["credit"]["turns"] == first["update"]["turns"] == f"{root}/sft/rollouts/t4k4T1.0/seed0/turns.parquet"
        )
        assert first["update"]["policy"] == first["update"]["reference"] == f"{root}/sft/policy"
        assert job(finished, f"rollout/{method}-seed0-round02")["input"]["policy"] == f"{run}/round01/policy"
        assert second["credit"]["turns"] == f"{run}/round02/rollouts/turns.parquet"
        assert second["update"]["policy"] == f"{run}/round01/policy"
        assert second["update"]["reference"] == f"{root}/sft/policy"
        assert second["eval"]["policy"] == f"{run}/round02/policy"


def test_metrics_say_how_long_a_stage_took_and_how_much_memory(finished):
    files = list((finished / "results" / "tiny").rglob("metrics/*.json"))
    assert len(files) == 2 + 1 + 1 + 1 + 2 + 1 + 2 * (2 + 2 + 2 + 1 + 1) + 1
    for path in files:
        measured = json.loads(path.read_text())
        assert 0 < measured["wall_s"] < 600, path
        assert 10 < measured["peak_mb"] < 4000, path


def test_nothing_is_left_to_do_after_a_finished_run(pipeline, finished):
    run = pipeline.run(finished, "-n", *TINY)
    assert "Nothing to be done" in run.stdout + run.stderr


def test_plain_processes_make_the_same_bytes(pipeline, finished, tmp_path):
    pipeline.link(tmp_path)
    target = "results/tiny/runs/has_progressive/seed0/round01/evals.parquet"
    run = pipeline.run(tmp_path, "--cores", "1", target, *TINY[2:], "--config", "launcher=plain")
    assert run.returncode == 0, run.stdout + run.stderr
    warm, plain = artifacts(finished), artifacts(tmp_path)
    assert len(plain) >= 10
    assert [name for name in plain if warm[name] != plain[name]] == []


def test_a_run_that_is_killed_again_and_again_ends_with_the_same_bytes(pipeline, finished, tmp_path):
    pipeline.link(tmp_path)
    moments = random.Random(7)
    killed = 0
    for _ in range(4):
        process = subprocess.Popen(
            pipeline.command(*TINY),
            cwd=tmp_path,
            env={**pipeline.environment, "STARTED_BY": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            output, _ = process.communicate(timeout=moments.uniform(4, 8))
            assert process.returncode == 0, output
            break
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.communicate()
            killed += 1
        assert wait_for(lambda: not processes_with(str(tmp_path)), 20)
    assert killed >= 2
    # The same command, nothing added: the lock and the half-made files of the killed runs are no obstacle.
    run = pipeline.run(tmp_path, *TINY)
    assert run.returncode == 0, run.stdout + run.stderr
    once, again = artifacts(finished), artifacts(tmp_path)
    assert sorted(once) == sorted(again)
    assert [name for name in once if once[name] != again[name]] == []
    assert not [path for path in (tmp_path / "results").rglob("*") if path.suffix in {".old", ".part"}]


def test_a_job_is_repeated_by_hand_from_its_own_description(pipeline, copy):
    path = copy / "results/tiny/runs/has_progressive/seed0/round01/credits.parquet"
    before = path.read_bytes()
    path.unlink()
    described = "results/tiny/logs/credit/has_progressive-seed0-round01.job.json"
    run = pipeline.python(copy, "workflow_scripts/credit.py", described)
    assert run.returncode == 0, run.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a readable Parquet file"),
        (lambda path: pq.write_table(pq.read_table(path).drop_columns(["reward"]), path), "'reward', which is missing"),
        (lambda path: shutil.copy(path.parents[3] / "log.parquet", path), "is a 'sft_log' table, not a 'turns' table"),
    ],
)
def test_a_damaged_table_is_named_with_the_stage_and_leaves_no_output(pipeline, copy, damage, said):
    turns = copy / "results/tiny/sft/rollouts/t4k4T1.0/seed0/turns.parquet"
    damage(turns)
    os.utime(turns, (time.time() + 2, time.time() + 2))
    target = "results/tiny/runs/flat_grpo/seed0/round01/credits.parquet"
    run = pipeline.run(copy, "--cores", "1", target, *TINY[2:], "--config", "launcher=plain")
    assert run.returncode != 0
    lines = [line for line in run.stderr.splitlines() if said in line]
    assert lines
    assert lines[0].startswith("credit flat_grpo seed0 round01: results/tiny/sft/rollouts/t4k4T1.0/seed0/turns.parquet")
    assert "Traceback" not in run.stderr
    assert not (copy / target).exists()


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("eval={games: 3}", {"eval_sft", "eval", "invariants"}),
        ("update={lr: 0.002}", {"rollout", "credit", "update", "eval", "invariants"}),
        ("rounds=1", {"invariants"}),  # they are checked over all rounds that the run has
        ("methods=[flat_grpo]", set()),
        ("resources={update: {mem_mb: 9000}}", set()),
        ("launcher=plain", set()),
    ],
)
def test_a_change_of_the_configuration_runs_again_what_reads_it_and_nothing_else(pipeline, finished, change, again):
    run = pipeline.run(finished, "-n", *TINY, "--config", change)
    assert run.returncode == 0, run.stdout + run.stderr
    table = run.stdout.partition("Job stats:\n")[2].partition("\n\n")[0]
    rules = {line.split()[0] for line in table.splitlines()[2:]} - {
        "all",
        "total",
        "resolved_config",
        "report",
        "track",
    }
    assert rules == again


def test_more_rounds_only_add_jobs(pipeline, finished):
    run = pipeline.run(finished, "-n", *TINY, "--config", "rounds=3", "tasks={eval: 8}", "eval={games: 2}")
    assert run.returncode == 0, run.stdout + run.stderr
    # With fewer games an evaluation is another one, but no policy is made again.
    assert "Policy update of flat_grpo, seed 0, round 03" in run.stdout
    assert "Policy update of flat_grpo, seed 0, round 02" not in run.stdout


def test_with_keep_policies_last_only_the_last_policy_stays_and_nothing_is_made_twice(pipeline, tmp_path):
    pipeline.link(tmp_path)
    options = (*TINY, "--config", "keep_policies=last", "rounds=3", "methods=[rloo]", "eval={games: 2}")
    run = pipeline.run(tmp_path, *options)
    assert run.returncode == 0, run.stdout + run.stderr
    folder = tmp_path / "results/tiny/runs/rloo/seed0"
    assert sorted(path.parent.name for path in folder.glob("round*/policy")) == ["round03"]
    assert len(list(folder.glob("round*/evals.parquet"))) == 3
    again = pipeline.run(tmp_path, "-n", *options)
    assert "Nothing to be done" in again.stdout + again.stderr
