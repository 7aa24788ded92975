"""Numbers that are not finite stop the stage that computes or reads them, in one line, and nothing is saved."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from tests.training.test_update import run, with_zeros
from turncredit.credit import compute, resolve
from turncredit.data import tables
from turncredit.data.turns import Turns, check_logprobs
from turncredit.errors import UserError
from turncredit.pipeline.stages import update as stage
from turncredit.policy import models
from turncredit.policy.sampling import draw
from turncredit.training.optimizers import check_step


def damaged(turns: pa.Table, value: float) -> pa.Table:
    """The turns with another log-probability for one token of the fourth turn."""
    column = turns.column("response_logprobs").to_pylist()
    column[3][-1] = value
    place = turns.column_names.index("response_logprobs")
    return turns.set_column(place, "response_logprobs", pa.array(column, pa.list_(pa.float32())))


@pytest.mark.parametrize("value", [4.97e35, 0.5, float("nan"), float("inf"), float("-inf"), None])
def test_a_log_probability_that_is_none_is_refused_with_its_turn(world, value):
    turns = tables.read(world.path("turns"), "turns")
    check_logprobs(turns, "turns")
    with pytest.raises(UserError, match=r"a token's log-probability is .* at group_id '.*', .* turn \d+ \(1 such"):
        check_logprobs(damaged(turns, value), "turns")


def test_rounding_above_zero_is_a_log_probability(world):
    check_logprobs(damaged(tables.read(world.path("turns"), "turns"), 1e-7), "turns")


def test_a_method_that_reads_log_probabilities_refuses_a_damaged_one(world):
    turns = damaged(tables.read(world.path("turns"), "turns"), 4.97e35)
    with pytest.raises(UserError, match="the table is damaged"):
        compute(Turns(turns), resolve("empg"))


@pytest.mark.parametrize("lr", [1e8, 1e20])
def test_a_learning_rate_that_is_far_too_large_stops_the_update_and_saves_no_policy(world, credits, tmp_path, lr):
    with pytest.raises(UserError, match=r"^the update: step \d+: .* training has diverged; lower update\.lr") as caught:
        run(world, credits, tmp_path, settings={"lr": lr, "minibatch": 2, "epochs": 2})
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("model.safetensors"))


def test_a_step_that_is_not_finite_is_named():
    check_step({"loss": 1.0, "kl": None}, training="the update", step=1, instead="lower it")
    with pytest.raises(UserError, match=r"^the update: step 7: grad_norm is nan, so training has diverged; lower it$"):
        check_step({"loss": 1.0, "grad_norm": float("nan")}, training="the update", step=7, instead="lower it")


def test_weights_that_are_not_finite_are_not_saved(tmp_path):
    model = torch.nn.Linear(2, 2)
    with torch.no_grad():
        model.weight[0, 0] = float("nan")
    with pytest.raises(UserError, match=r"policy: not saved, because its weights are not finite \(weight\)"):
        models.save_model(model, tmp_path / "new", base=tmp_path, final=tmp_path / "policy")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("temperature", [0.0, 0.7, 1.0])
@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_nothing_is_sampled_from_logits_that_are_not_finite(temperature, value):
    logits = torch.zeros(3, 1000)
    uniforms = torch.tensor([0.1, 0.5, 0.9])
    draw(logits, temperature, uniforms)
    logits[1, 7] = value
    with pytest.raises(UserError, match="the policy's logits are not finite"):
        draw(logits, temperature, uniforms)


def test_a_round_without_credit_is_said_aloud(world, credits, tmp_path):
    learned = run(world, credits, tmp_path / "learned")
    assert stage.warning(learned.metrics) is None
    (tmp_path / "zeros").mkdir()
    none = run(world, with_zeros(credits, tmp_path / "zeros", range(16)), tmp_path / "none")
    assert "every advantage is 0" in str(stage.warning(none.metrics))


def test_a_round_without_a_step_is_said_aloud():
    assert "no optimiser step" in str(stage.warning({"steps": 0.0, "turns_with_advantage": 0.0}))


def test_a_credit_model_refuses_hidden_states_that_are_not_finite():
    from turncredit.credit.models import replay

    rows = {"group_id": ["g"] * 2, "rollout_id": ["r"] * 2, "turn": [0, 1]}
    turns = pa.table({**rows, "reward": [0.0, 1.0], **{name: [0, 0] for name in replay.COLUMNS if name not in rows}})
    turns = turns.set_column(turns.column_names.index("reward"), "reward", pa.array([0.0, 1.0]))
    hidden = pa.array([[1.0, 2.0], [np.inf, 0.0]], pa.list_(pa.float16()))
    with pytest.raises(UserError, match=r"the hidden state of .* is not finite"):
        replay.load(turns, pa.table({**rows, "hidden": hidden}))
