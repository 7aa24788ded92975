"""Learned credit models in the graph: who gets them, what they read, what is shared; and once for real."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from tests.pipeline.test_dag import TINY, counts
from turncredit import tables

LEARNED = ("has_turnrd", "has_turnrd_film", "turn_value", "ppo", "mgr", "value_baseline")
RUN = "results/tiny/runs"
NEXT_MODEL = "round02/credit_model"
SHARED = "results/tiny/sft/rollouts/t4k4T1.0/seed0"


def test_without_a_learned_method_there_are_no_models(snakemake):
    jobs = counts(snakemake("-n", *TINY))
    assert not {"hiddens", "hiddens_sft", "credit_model", "values"} & set(jobs)


def test_a_horizon_beyond_what_a_model_reads_is_refused_before_any_job(snakemake):
    run = snakemake("-n", *TINY, "--config", "methods=[ppo]", "env={settings: {horizon: 60}}")
    assert run.returncode == 2
    assert "reads at most 50 turns (max_turns of its model critic)" in run.stderr
    assert "set define.ppo.model.max_turns" in run.stderr


@pytest.fixture(scope="module")
def learned(pipeline, tmp_path_factory):
    """Every learned method's first round and the model that is trained on it; second rounds of two methods."""
    folder = pipeline.link(tmp_path_factory.mktemp("learned"))
    first = [f"{RUN}/{method}/seed0/{name}" for method in LEARNED for name in ("round01/credits.parquet", NEXT_MODEL)]
    second = [f"{RUN}/{method}/seed0/round02/credits.parquet" for method in ("turn_value", "mine")]
    define = "define={mine: {base: turn_value, model: {read: current, point: action}}}"
    run = pipeline.run(folder, "--cores", "2", *TINY, "--config", define, "--", *first, *second)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def inputs(folder: Path, name: str) -> set[str]:
    """The files that a job read, of those that stages of this experiment make."""
    found = json.loads((folder / "results" / "tiny" / "logs" / f"{name}.job.json").read_text())["input"]
    flat = [path for value in found.values() for path in ([value] if isinstance(value, str) else value)]
    return {path for path in flat if path.startswith("results/")}


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNED)
def test_every_learned_method_runs_a_round_in_the_pipeline(learned, method):
    first = learned / RUN / method / "seed0" / "round01"
    credits, values = (tables.read(first / f"{name}.parquet", name) for name in ("credits", "values"))
    turns = tables.read(learned / SHARED / "turns.parquet", "turns")
    assert all(table.column(key).equals(turns.column(key)) for table in (credits, values) for key in tables.KEYS)
    unknown = values.column("value").null_count
    assert unknown == (turns.num_rows if method in {"turn_value", "value_baseline"} else 0)
    made = json.loads((first.parent / "round02" / "metrics" / "credit_model.json").read_text())
    assert made["metrics"]["replay_turns"] == turns.num_rows
    assert math.isfinite(made["metrics"]["loss"])


@pytest.mark.slow
def test_a_model_learns_from_the_round_before_and_shapes_its_own(learned):
    run = f"{RUN}/turn_value/seed0"
    shared = {f"{SHARED}/turns.parquet", f"{SHARED}/hiddens.parquet"}
    assert inputs(learned, "credit_model/turn_value-seed0-round01") == {f"{SHARED}/hiddens.parquet"}
    assert inputs(learned, "credit_model/turn_value-seed0-round02") == {*shared, f"{run}/round01/credit_model"}
    assert inputs(learned, "credit_model/ppo-seed0-round02") == {
        *shared,
        *(f"{RUN}/ppo/seed0/round01/{name}" for name in ("credits.parquet", "credit_model")),
    }
    assert f"{run}/round02/credit_model" in inputs(learned, "values/turn_value-seed0-round02")
    assert "results/tiny/sft/policy" in inputs(learned, "hiddens/turn_value-seed0-round02")
    second = learned / run / "round02"
    assert tables.read(second / "values.parquet", "values").column("value").null_count == 0
    measured = json.loads((second / "metrics" / "values.json").read_text())["metrics"]
    assert measured["trained"] == 1.0
    assert tables.read(second / "credits.parquet", "credits").column("value").null_count == 0


@pytest.mark.slow
def test_a_method_may_read_the_current_policy_after_its_action(learned):
    run = f"{RUN}/mine/seed0"
    assert f"{run}/round01/policy" in inputs(learned, "hiddens/mine-seed0-round02_action")
    assert f"{SHARED}/hiddens_action.parquet" in inputs(learned, "values/mine-seed0-round01")
    hiddens = tables.read(learned / run / "round02" / "rollouts" / "hiddens_action.parquet", "hiddens")
    assert set(hiddens.column("policy_id").to_pylist()) == {"mine/seed0/round01"}
