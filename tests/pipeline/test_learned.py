"""Learned credit models in the graph: who gets them, what they read, what is shared; and once for real."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from tests import tiny
from tests.pipeline.test_dag import TINY
from turncredit.data import tables

LEARNED = (
    "has_turnrd", "has_turnrd_film", "has_turnrd_outcome_only", "turn_value", "agentprm", "agentprm_td", "ppo", "mgr",
    "value_baseline",
)  # fmt: skip
#: those whose models say nothing before their first training
WAITING = {"turn_value", "agentprm", "agentprm_td", "value_baseline"}
OBSERVED, ACTED = ({"hidden_policy": "sft", "hidden_position": point} for point in ("observation", "action"))


@pytest.fixture(scope="module")
def learned(pipeline, started, tmp_path_factory):
    """Every learned method's first round and the model that is trained on it; second rounds of four methods."""
    folder = started(tmp_path_factory.mktemp("learned"))
    first = [tiny.path("credits", method) for method in LEARNED]
    models = [tiny.path("model", method, round=2) for method in LEARNED]
    second = [tiny.path("credits", method, round=2) for method in ("turn_value", "agentprm", "agentprm_td", "mine")]
    define = "define={mine: {base: turn_value, model: {hidden_policy: current, hidden_position: action}}}"
    run = pipeline.run(folder, "--cores", "2", *TINY, "--config", define, "--", *first, *models, *second)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def inputs(folder: Path, stage: str, method: str, **keys: str | int) -> set[str]:
    """The files that a job read, of those that stages of this experiment make."""
    found = tiny.job_inputs(folder, stage, method, **keys).values()
    flat = [path for value in found for path in ([value] if isinstance(value, str) else value)]
    return {path for path in flat if path.startswith("results/")}


@pytest.mark.slow
@pytest.mark.parametrize("method", LEARNED)
def test_every_learned_method_runs_a_round_in_the_pipeline(learned, method):
    turns, credits, values = (
        tables.read(learned / tiny.path(name, method), name) for name in ("turns", "credits", "values")
    )
    assert all(table.column(key).equals(turns.column(key)) for table in (credits, values) for key in tables.KEYS)
    unknown = values.column("value").null_count
    assert unknown == (turns.num_rows if method in WAITING else 0)
    metrics = tiny.measured(learned, "credit_model", method, round=2)
    assert metrics["replay_turns"] == turns.num_rows
    assert math.isfinite(metrics["loss"])


@pytest.mark.slow
def test_a_model_learns_from_the_round_before_and_shapes_its_own(learned):
    turns, hiddens = tiny.path("turns"), tiny.path("hiddens", **OBSERVED)
    assert inputs(learned, "credit_model", "turn_value") == {hiddens}
    assert inputs(learned, "credit_model", "turn_value", round=2) == {turns, hiddens, tiny.path("model", "turn_value")}
    assert inputs(learned, "credit_model", "ppo", round=2) == {
        turns,
        hiddens,
        tiny.path("credits", "ppo"),
        tiny.path("model", "ppo"),
    }
    assert tiny.path("model", "turn_value", round=2) in inputs(learned, "values", "turn_value", round=2)
    assert tiny.path("sft_policy") in inputs(learned, "hiddens", "turn_value", round=2, **OBSERVED)
    values, credits = (
        tables.read(learned / tiny.path(name, "turn_value", round=2), name) for name in ("values", "credits")
    )
    assert values.column("value").null_count == 0
    assert tiny.measured(learned, "values", "turn_value", round=2)["trained"] == 1.0
    assert credits.column("value").null_count == 0


@pytest.mark.slow
@pytest.mark.parametrize("method", ["agentprm", "agentprm_td"])
def test_a_learned_q_credits_the_second_round_from_states_after_the_action(learned, method):
    assert inputs(learned, "credit_model", method, round=2) >= {tiny.path("turns"), tiny.path("hiddens", **ACTED)}
    values, credits = (tables.read(learned / tiny.path(name, method, round=2), name) for name in ("values", "credits"))
    assert values.column("value").null_count == credits.column("value").null_count == 0
    assert tiny.measured(learned, "values", method, round=2)["trained"] == 1.0


@pytest.mark.slow
def test_a_method_may_read_the_current_policy_after_its_action(learned):
    current = {"round": 2, "hidden_policy": "current", "hidden_position": "action"}
    assert tiny.path("policy", "mine") in inputs(learned, "hiddens", "mine", **current)
    assert tiny.path("hiddens", **ACTED) in inputs(learned, "values", "mine")
    hiddens = tables.read(learned / tiny.path("hiddens", "mine", **current), "hiddens")
    assert set(hiddens.column("policy_id").to_pylist()) == {"mine/seed0/round01"}
