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
from tests.pipeline.test_dag import counts
from turncredit.data import tables

TINY = ("--cores", "2", *tiny.ARGUMENTS)
#: secrets that programs find in the environment of a run
SECRETS = {
    name: f"planted-{name}-5d2f"
    for name in ("OPENAI_API_KEY", "HF_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY")
}
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
    run = pipeline.run(folder, *TINY, **SECRETS)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.fixture
def copy(pipeline, finished, tmp_path) -> Path:
    """A copy of the finished experiment that a test may damage."""
    pipeline.link(tmp_path)
    for name in ("results", ".snakemake"):
        shutil.copytree(finished / name, tmp_path / name, symlinks=True)
    return tmp_path


def test_every_artifact_is_there_and_follows_its_schema(finished):
    methods, rounds = ("flat_grpo", "has_progressive"), (1, 2)
    wanted = [("tasks", tiny.path("tasks", split=split)) for split in ("train", "eval")]
    wanted += [(name, tiny.path(name)) for name in ("demos", "sft_log")]
    wanted += [("evals", tiny.path("evals", "sft", round=round)) for round in rounds]
    for method in methods:
        for round in rounds:
            wanted += [
                (name, tiny.path(name, method, round=round)) for name in ("turns", "credits", "updates", "evals")
            ]
            assert (finished / tiny.path("policy", method, round=round) / "model.safetensors").exists()
    for name, path in wanted:
        assert tables.read(finished / path, name).num_rows > 0, path
        assert tables.metadata(finished / path)["config_hash"], path
    assert (finished / tiny.path("report")).stat().st_size > 1000
    assert json.loads((finished / tiny.path("config")).read_text())["rounds"] == 2


def test_no_secret_of_the_environment_is_in_any_file_of_a_run(finished):
    made = [path for name in ("results", ".snakemake", "mlruns") for path in (finished / name).rglob("*")]
    files = [path for path in made if path.is_file()]
    assert {".parquet", ".json", ".log", ".html", ".svg"} <= {path.suffix for path in files}
    leaked = [str(path) for path in files if any(secret.encode() in path.read_bytes() for secret in SECRETS.values())]
    assert leaked == []


def test_methods_share_the_first_rollouts_and_each_round_reads_the_one_before(finished):
    sft = tiny.path("sft_policy")
    for method in ("flat_grpo", "has_progressive"):
        first, second = (
            {stage: tiny.job_inputs(finished, stage, method, round=round) for stage in ("credit", "update", "eval")}
            for round in (1, 2)
        )
        assert first["credit"]["turns"] == first["update"]["turns"] == tiny.path("turns")
        assert first["update"]["policy"] == first["update"]["reference"] == sft
        learned, turns = tiny.path("policy", method), tiny.path("turns", method, round=2)
        assert tiny.job_inputs(finished, "rollout", method, round=2)["policy"] == learned
        assert second["credit"]["turns"] == turns
        assert second["update"]["policy"] == learned
        assert second["update"]["reference"] == sft
        assert second["eval"]["policy"] == tiny.path("policy", method, round=2)


def test_metrics_say_how_long_a_stage_took_and_how_much_memory(finished):
    files = list((finished / "results" / "tiny").rglob("metrics/*.json"))
    shared = {"config": 1, "tasks": 2, "demos": 1, "base": 1, "sft": 1, "rollout": 1, "report": 1, "track": 1}
    run = {"rollout": 1, "credit": 2, "update": 2, "eval": 2, "invariants": 1}
    of_sft, of_progress = {"eval": 2}, {"measures": 2}
    several = (shared, run, run, of_sft, of_progress)
    assert len(files) == sum(number for jobs in several for number in jobs.values())
    for path in files:
        measured = json.loads(path.read_text())
        assert 0 < measured["wall_s"] < 600, path
        assert 10 < measured["peak_mb"] < 4000, path


def test_nothing_is_left_to_do_after_a_finished_run(pipeline, finished):
    run = pipeline.run(finished, "-n", *TINY)
    assert "Nothing to be done" in run.stdout + run.stderr


@pytest.mark.long
@pytest.mark.slow
def test_plain_processes_make_the_same_bytes(pipeline, finished, tmp_path):
    pipeline.link(tmp_path)
    target = tiny.path("evals", "has_progressive")
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
    path = copy / tiny.path("credits", "has_progressive")
    before = path.read_bytes()
    path.unlink()
    described = tiny.description("credit", "has_progressive")
    run = pipeline.python(copy, "workflow_scripts/stage.py", described)
    assert run.returncode == 0, run.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda path: path.write_bytes(path.read_bytes()[:-100]), "not a readable Parquet file"),
        (lambda path: pq.write_table(pq.read_table(path).drop_columns(["reward"]), path), "'reward', which is missing"),
        (
            lambda path: shutil.copy(path.parents[4] / "sft" / "log.parquet", path),
            "is a 'sft_log' table, not a 'turns' table",
        ),
    ],
)
def test_a_damaged_table_is_named_with_the_stage_and_leaves_no_output(pipeline, copy, damage, said):
    turns = copy / tiny.path("turns")
    damage(turns)
    os.utime(turns, (time.time() + 2, time.time() + 2))
    target = tiny.path("credits", "flat_grpo")
    run = pipeline.run(copy, "--cores", "1", "--retries", "2", target, *TINY[2:], "--config", "launcher=plain")
    assert run.returncode != 0
    assert "Trying to restart" not in run.stdout + run.stderr  # the same job would end in the same way
    lines = [line for line in run.stderr.splitlines() if said in line]
    assert lines
    assert lines[0].startswith(f"credit {tiny.SHARED} flat_grpo seed0 round01: {tiny.path('turns')}")
    assert "Traceback" not in run.stderr
    assert not (copy / target).exists()


#: what follows the configuration itself
ALWAYS = {"config": 1, "report": 1, "track": 1}
#: everything that the SFT policy's rollouts lead to
AFTER_SFT = {"rollout": 3, "measures": 2, "credit": 4, "update": 4, "eval": 6, "invariants": 2}


@pytest.mark.parametrize(
    ("change", "again"),
    [
        ("demos={seed: 1}", {"demos": 1, "base": 1, "sft": 1, **AFTER_SFT}),
        ("update={tokens_per_pass: 2000}", {"sft": 1, **AFTER_SFT}),
        ("policy={engine: transformers}", AFTER_SFT),
        ("update={lr: 0.002}", {"rollout": 2, "measures": 1, "credit": 2, "update": 4, "eval": 4, "invariants": 2}),
        ("eval={games: 3}", {"eval": 6, "invariants": 2}),
        ("rounds=1", {"invariants": 2}),  # they are checked over all rounds that the run has
        ("methods=[has_progressive]", {}),
        ("methods=[flat_grpo]", {}),  # though nothing reads the measures any more
        ("rollout={processes: 2}", {}),
        ("judge={concurrency: 2}", {}),
        ("tracking={uri: 'sqlite:///elsewhere.db'}", {}),
        ("resources={update: {mem_mb: 9000}}", {}),
        ("launcher=plain", {}),
    ],
)
def test_a_change_of_the_configuration_runs_again_what_reads_it_and_what_follows_and_nothing_else(
    pipeline, finished, change, again
):
    run = pipeline.run(finished, "-n", *TINY, "--config", change)
    assert counts(run) == {**ALWAYS, **again}


def test_more_rounds_only_add_jobs(pipeline, finished):
    run = pipeline.run(finished, "-n", *TINY, "--config", "rounds=3", "tasks={eval: 8}", "eval={games: 2}")
    assert run.returncode == 0, run.stdout + run.stderr
    # With fewer games an evaluation is another one, but no policy is made again.
    assert "Policy update of flat_grpo, seed 0, round 03" in run.stdout
    assert "Policy update of flat_grpo, seed 0, round 02" not in run.stdout


def test_with_keep_policies_last_only_the_last_policy_stays_and_nothing_is_made_twice(pipeline, started, tmp_path):
    started(tmp_path)
    options = (*TINY, "--config", "keep_policies=last", "rounds=3", "methods=[rloo]", "eval={games: 2}")
    run = pipeline.run(tmp_path, *options)
    assert run.returncode == 0, run.stdout + run.stderr
    folder = (tmp_path / tiny.path("policy", "rloo")).parents[1]
    assert sorted(path.parent.name for path in folder.glob("round*/policy")) == ["round03"]
    assert len(list(folder.glob("round*/evals.parquet"))) == 3
    again = pipeline.run(tmp_path, "-n", *options)
    assert "Nothing to be done" in again.stdout + again.stderr
