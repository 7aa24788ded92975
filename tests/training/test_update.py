"""The policy update.

1. The first step's ratio is 1: what was recorded at sampling is what training recomputes.
2. Equal advantages give equal bytes, whatever method they came from.
3. How a minibatch is cut into passes changes nothing.
4. A round trip through the disk changes nothing: two rounds with saved moments equal two rounds in one process.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file

from tests import tiny
from turncredit import tables
from turncredit.errors import UserError
from turncredit.stages.credit import credit
from turncredit.training.losses import clipped
from turncredit.training.sequences import cut
from turncredit.training.update import training_set, update


@pytest.fixture(scope="module")
def credits(world, tmp_path_factory):
    """A credits table with a random advantage for every turn, the same for all tests."""
    path = tmp_path_factory.mktemp("credits") / "credits.parquet"
    turns = tables.read(world.path("turns.parquet"), "turns")
    advantage_N = np.random.default_rng(0).normal(size=turns.num_rows)
    columns = {key: turns.column(key) for key in tables.KEYS}
    table = pa.table({**columns, "method": ["random"] * turns.num_rows, "advantage": advantage_N})
    tables.write(table, path, "credits", tables.provenance("test"))
    return path


def run(
    world, credits, folder, *, settings=None, policy=None, round=1, define=None, method="flat_grpo", seed=0, processes=1
):
    defaults = {"minibatch": 4, "skip_dead_groups": False, "lr": 1e-3}
    experiment = tiny.experiment(update={**defaults, **(settings or {})}, define=define or {})
    metrics = update(
        experiment=experiment,
        method=method,
        seed=seed,
        round=round,
        policy=policy or world.path("sft"),
        reference=world.path("sft"),
        turns=world.path("turns.parquet"),
        credits=credits,
        out=folder / "policy",
        updates=folder / "updates.parquet",
        processes=processes,
    )
    return metrics, load_file(folder / "policy" / "model.safetensors")


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one) and one.keys() == two.keys()


def test_the_first_steps_ratio_is_one_and_the_policy_changes(world, credits, tmp_path):
    metrics, weights = run(world, credits, tmp_path)
    assert metrics["first_ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert not same(weights, load_file(world.path("sft") / "model.safetensors"))


def test_the_same_seed_gives_the_same_bytes(world, credits, tmp_path):
    run(world, credits, tmp_path / "a")
    run(world, credits, tmp_path / "b")
    for name in ("policy/model.safetensors", "policy/optimizer.safetensors", "updates.parquet"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_has_with_alpha_one_is_flat_grpo_bit_for_bit_through_the_whole_update(world, tmp_path):
    define = {"has_alpha_one": {"base": "has_progressive", "params": {"alpha": 1.0}}}
    experiment = tiny.experiment(define=define)
    weights = []
    for method in ("flat_grpo", "has_alpha_one"):
        path = tmp_path / method / "credits.parquet"
        credit(
            experiment=experiment,
            method=method,
            seed=0,
            round=1,
            turns=_with_varied_rewards(world, tmp_path),
            side={},
            out=path,
        )
        weights.append(run(world, path, tmp_path / method, define=define, method=method)[1])
    assert same(*weights)
    assert not same(weights[0], load_file(world.path("sft") / "model.safetensors"))


def _with_varied_rewards(world, folder):
    """The recorded turns, every second rollout made successful, so that no group is dead."""
    table = tables.read(world.path("turns.parquet"), "turns")
    last = np.array(table.column("done").to_pylist())
    lucky = np.array([int(name[-1]) % 2 == 0 for name in table.column("rollout_id").to_pylist()])
    reward = pa.array((last & lucky).astype(float))
    table = table.set_column(table.schema.get_field_index("reward"), table.schema.field("reward"), reward)
    path = folder / "varied.parquet"
    tables.write(table, path, "turns", tables.provenance("test"))
    return path


def test_shards_give_the_same_bytes_from_one_process_and_from_two(world, credits, tmp_path):
    settings = {"shards": 2, "kl": "k3", "kl_coefficient": 0.1}
    for processes in (1, 2):
        run(world, credits, tmp_path / str(processes), settings=settings, processes=processes)
    for name in ("policy/model.safetensors", "policy/optimizer.safetensors", "updates.parquet"):
        assert (tmp_path / "1" / name).read_bytes() == (tmp_path / "2" / name).read_bytes()
    _, whole = run(world, credits, tmp_path / "whole", settings={**settings, "shards": 1})
    parts = load_file(tmp_path / "1" / "policy" / "model.safetensors")
    assert all(torch.allclose(whole[name], parts[name], atol=1e-4) for name in whole)


def test_gradients_do_not_depend_on_how_a_minibatch_is_cut_into_passes(world, credits, tmp_path):
    for aggregation in ("token-mean", "seq-mean-token-mean"):
        whole = run(world, credits, tmp_path / "w", settings={"loss_aggregation": aggregation, "epochs": 1})[1]
        parts = run(world, credits, tmp_path / "p", settings={"loss_aggregation": aggregation, "tokens_per_pass": 300})[
            1
        ]
        for name, value in whole.items():
            torch.testing.assert_close(value, parts[name], atol=2e-5, rtol=1e-4)


def test_moments_survive_the_disk(world, credits, tmp_path):
    """AdamW stepped twice in memory equals AdamW saved after its first step, loaded and stepped again."""
    run(world, credits, tmp_path / "one", settings={"minibatch": 64})
    _, twice = run(
        world, credits, tmp_path / "two", settings={"minibatch": 64}, policy=tmp_path / "one" / "policy", round=2
    )
    _, epochs = run(world, credits, tmp_path / "both", settings={"minibatch": 64, "epochs": 2})
    for name, value in twice.items():
        torch.testing.assert_close(value, epochs[name], atol=1e-6, rtol=1e-5)
    _, forgotten = run(
        world,
        credits,
        tmp_path / "forgot",
        settings={"minibatch": 64, "keep_optimizer": False},
        policy=tmp_path / "one" / "policy",
        round=2,
    )
    assert not same(twice, forgotten)


def test_learning_rate_warms_up_over_rounds(world, credits, tmp_path):
    settings = {"minibatch": 8, "warmup_steps": 4, "lr": 1e-3}
    run(world, credits, tmp_path / "one", settings=settings)
    run(world, credits, tmp_path / "two", settings=settings, policy=tmp_path / "one" / "policy", round=2)
    rates = [
        rate
        for folder in ("one", "two")
        for rate in tables.read(tmp_path / folder / "updates.parquet", "updates").column("lr").to_pylist()
    ]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])


def test_a_kl_penalty_holds_the_policy_near_its_reference(world, credits, tmp_path):
    """With the same gradient from advantages, a heavy penalty leaves the policy closer to where it was."""
    sft = load_file(world.path("sft") / "model.safetensors")

    def distance(weights):
        return sum(float((weights[name] - sft[name]).square().sum()) for name in weights)

    free = run(world, credits, tmp_path / "free", settings={"epochs": 4})[1]
    metrics, held = run(world, credits, tmp_path / "held", settings={"epochs": 4, "kl": "k3", "kl_coefficient": 50.0})
    assert metrics["kl"] > 0
    assert distance(held) < distance(free)


def test_the_kl_coefficient_adapts_and_is_carried_along(world, credits, tmp_path):
    settings = {"kl": "k3", "kl_coefficient": 0.1, "kl_target": 1e-9}
    run(world, credits, tmp_path / "one", settings=settings)
    metrics, _ = run(world, credits, tmp_path / "two", settings=settings, policy=tmp_path / "one" / "policy", round=2)
    assert metrics["kl_coefficient"] == pytest.approx(0.102)


def test_dead_groups_are_left_out_only_when_asked(world, credits):
    experiment = tiny.experiment()
    turns = tables.read(world.path("turns.parquet"), "turns").to_pandas()
    scores = turns.groupby(["group_id", "rollout_id"]).reward.sum().groupby("group_id")
    alive = set(scores.nunique().loc[lambda number: number > 1].index)
    assert 0 < len(alive) < 4, "some groups of the tiny experiment are dead, some are not"
    kept, _, _ = training_set(
        world.path("turns.parquet"), credits, experiment.update.model_copy(update={"skip_dead_groups": False})
    )
    skipped, _, _ = training_set(
        world.path("turns.parquet"), credits, experiment.update.model_copy(update={"skip_dead_groups": True})
    )
    assert len(kept) == 16
    assert len(skipped) == 4 * len(alive)
    assert {turns.group_id[sequence.turn[sequence.turn >= 0][0]] for sequence in skipped} == alive


def test_an_update_without_anything_to_learn_keeps_the_policy(world, tmp_path):
    turns = tables.read(world.path("turns.parquet"), "turns")
    columns = {key: turns.column(key) for key in tables.KEYS}
    table = pa.table({**columns, "method": ["zero"] * turns.num_rows, "advantage": np.zeros(turns.num_rows)})
    tables.write(table, tmp_path / "zero.parquet", "credits", tables.provenance("test"))
    metrics, weights = run(world, tmp_path / "zero.parquet", tmp_path)
    assert metrics["steps"] == 0
    assert same(weights, load_file(world.path("sft") / "model.safetensors"))


def test_moments_pass_through_a_round_without_anything_to_learn(world, credits, tmp_path):
    run(world, credits, tmp_path / "one")
    turns = tables.read(world.path("turns.parquet"), "turns")
    columns = {key: turns.column(key) for key in tables.KEYS}
    table = pa.table({**columns, "method": ["zero"] * turns.num_rows, "advantage": np.zeros(turns.num_rows)})
    tables.write(table, tmp_path / "zero.parquet", "credits", tables.provenance("test"))
    run(world, tmp_path / "zero.parquet", tmp_path / "two", policy=tmp_path / "one" / "policy", round=2)
    before, after = (load_file(tmp_path / name / "policy" / "optimizer.safetensors") for name in ("one", "two"))
    assert same(before, after)


def test_lora_trains_and_saves_the_adapter_alone(world, credits, tmp_path):
    from turncredit.config import LoraConfig
    from turncredit.policy import models

    model = models.add_lora(models.load_model(world.path("sft"), dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    models.save_model(model, tmp_path / "start", base=world.path("sft"), final=tmp_path / "start")
    metrics = update(
        experiment=tiny.experiment(update={"skip_dead_groups": False, "minibatch": 8, "lr": 1e-2}),
        method="flat_grpo",
        seed=0,
        round=1,
        policy=tmp_path / "start",
        reference=world.path("sft"),
        turns=world.path("turns.parquet"),
        credits=credits,
        out=tmp_path / "next",
        updates=tmp_path / "updates.parquet",
    )
    assert metrics["steps"] == 2
    assert not (tmp_path / "next" / "model.safetensors").exists()
    before, after = (load_file(tmp_path / name / "adapter_model.safetensors") for name in ("start", "next"))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    merged = models.load_model(tmp_path / "next", dtype="float32")
    assert not torch.equal(
        merged.model.layers[0].self_attn.q_proj.weight,
        models.load_model(world.path("sft"), dtype="float32").model.layers[0].self_attn.q_proj.weight,
    )


def test_advantages_reach_exactly_the_tokens_of_their_turn(world, credits):
    """The gradient of one turn's loss comes from its response tokens and no others."""
    sequences, advantage_N, _ = training_set(
        world.path("turns.parquet"), credits, tiny.experiment(update={"skip_dead_groups": False}).update
    )
    responses = tables.read(world.path("turns.parquet"), "turns").column("response_ids").to_pylist()
    seen = 0
    for sequence in sequences:
        for row in np.unique(sequence.turn[sequence.turn >= 0]):
            assert sequence.ids[sequence.turn == row].tolist() == responses[row]
            seen += 1
    assert seen == len(responses) == len(advantage_N)


def test_credits_of_other_rollouts_are_refused(world, credits, tmp_path):
    table = tables.read(credits, "credits")
    tables.write(table.slice(1), tmp_path / "short.parquet", "credits", tables.provenance("test"))
    with pytest.raises(UserError, match="its rows are not those of"):
        training_set(world.path("turns.parquet"), tmp_path / "short.parquet", tiny.experiment().update)


def test_advantages_that_are_not_finite_are_refused(world, credits, tmp_path):
    table = tables.read(credits, "credits")
    broken = table.column("advantage").to_numpy().copy()
    broken[3] = np.nan
    table = table.set_column(table.column_names.index("advantage"), "advantage", pa.array(broken))
    tables.write(table, tmp_path / "nan.parquet", "credits", tables.provenance("test"))
    with pytest.raises(UserError, match="1 advantages are not finite"):
        training_set(world.path("turns.parquet"), tmp_path / "nan.parquet", tiny.experiment().update)


def test_fresh_prompts_become_one_sequence_a_turn_and_growing_ones_a_single_sequence():
    ids = [np.array([1, 2]), np.array([3])]
    logprobs = [np.array([-1.0], dtype=np.float32)] * 2
    responses = [np.array([7]), np.array([8])]
    growing = cut([0, 0], [True, False], ids, responses, logprobs)
    fresh = cut([0, 0], [True, True], ids, responses, logprobs)
    assert [sequence.ids.tolist() for sequence in growing] == [[1, 2, 7, 3, 8]]
    assert [sequence.turn.tolist() for sequence in growing] == [[-1, -1, 0, -1, 1]]
    assert [sequence.ids.tolist() for sequence in fresh] == [[1, 2, 7], [3, 8]]


def test_the_loss_has_the_gradient_of_the_surrogate():
    """Finite differences of the clipped loss agree with autograd where it is smooth."""
    logprobs = torch.tensor([-0.5, -1.5], dtype=torch.double, requires_grad=True)
    sampled, advantage = torch.tensor([-0.6, -1.4]).double(), torch.tensor([1.0, -2.0]).double()
    assert torch.autograd.gradcheck(lambda x: clipped(x, sampled, advantage, low=0.2, high=0.28)[0].sum(), (logprobs,))
