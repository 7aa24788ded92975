"""The stage `eval` where a warm start plays the same games in every round."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pytest

from tests import tiny
from turncredit.config import EvalMode
from turncredit.data import tables
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline.stages import eval as eval_stage

pytestmark = pytest.mark.slow

SHARED = [
    ("tasks", JobKeys(split="train")),
    ("tasks", JobKeys(split="eval")),
    ("demos", JobKeys()),
    ("base", JobKeys()),
    ("sft", JobKeys()),
]


def sft_at(round):
    return JobKeys(method="sft", seed=0, round=round)


@pytest.fixture(scope="module")
def plan(tmp_path_factory):
    """The warm start of an experiment whose rounds are evaluated on the same games, and its first two evaluations."""
    made = Plan(tiny.experiment(eval={"fresh": False, "games": 4}), tmp_path_factory.mktemp("same_games"))
    for stage, at in [*SHARED, ("eval", sft_at(1)), ("eval", sft_at(2))]:
        load(stage).run(made.job(stage, at))
    return made


def test_a_warm_start_plays_the_games_of_all_rounds_once(plan):
    assert plan.experiment.eval_rounds() == [1, 2]
    first, later = (plan.layout.path("evals", method="sft", seed=0, round=round) for round in (1, 2))
    assert plan.job("eval", sft_at(2)).input == {"evals": first}
    assert "policy" in plan.job("eval", sft_at(1)).input
    assert plan.job("eval", sft_at(2)).is_made()
    played, repeated = (tables.read(path, "evals") for path in (first, later))
    assert set(repeated.column("round").to_pylist()) == {2}
    assert repeated.drop_columns("round").equals(played.drop_columns("round"))
    assert played.num_rows == 4 * len(plan.experiment.eval.modes)


def test_a_trained_policy_and_new_games_are_always_played(plan):
    assert "policy" in plan.job("eval", JobKeys(method="rloo", seed=0, round=2)).input
    fresh = Plan(tiny.experiment(eval={"games": 4}), plan.layout.root)
    assert "policy" in fresh.job("eval", sft_at(2)).input


def test_an_evaluation_says_how_many_contexts_were_longer_than_the_model_can_read(plan, tmp_path):
    short = Plan(plan.experiment, shutil.copytree(Path(plan.layout.root).parent, tmp_path / "short"))
    config = Path(short.layout.path("sft_policy", warm_start="sft"), "config.json")
    config.write_text(
        json.dumps({**json.loads(config.read_text(encoding="utf-8")), "max_position_embeddings": 120}), encoding="utf-8"
    )
    (config.parent / "provenance.json").unlink()
    stage = load("eval")
    metrics = stage.run(short.job("eval", sft_at(1)))
    table = tables.read(short.layout.path("evals", method="sft", seed=0, round=1), "evals")
    assert metrics["context_full"] == sum(table.column("context_full").to_pylist()) > 0
    assert f"{metrics['context_full']:.0f} of {table.num_rows} rollouts ended as failures" in stage.warning(metrics)
    assert stage.warning(load("eval").run(plan.job("eval", sft_at(2)))) is None


def test_each_mode_has_a_success_of_its_own():
    modes = tuple(EvalMode(name=name, temperature=heat) for name, heat in (("sampled", 1.0), ("greedy", 0.0)))
    job = SimpleNamespace(write=lambda *_: None, config=SimpleNamespace(modes=modes))
    won = {"mode": ["sampled"] * 4 + ["greedy"] * 2, "success": [True, False, False, False, True, True]}
    assert eval_stage._written(job, pa.table(won)) == {"success_sampled": 0.25, "success_greedy": 1.0}
    cut = eval_stage._written(job, pa.table({**won, "context_full": [False, True, True, False, False, False]}))
    assert (cut["context_full"], cut["rollouts"]) == (2, 6)
