"""The policy update.

1. The first step's ratio is 1: what was recorded at sampling is what training recomputes.
2. Equal advantages give equal bytes, whatever method they came from.
3. How a minibatch is cut into passes changes nothing.
4. A round trip through the disk changes nothing: two rounds with saved moments equal two rounds in one process.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file
from transformers import PreTrainedModel, Qwen2Config, Qwen2ForCausalLM

from tests import tiny
from turncredit.config import UpdateConfig
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.policy import models
from turncredit.policy.open import OpenPolicy
from turncredit.training import update as update_module
from turncredit.training.losses import clipped
from turncredit.training.sequences import TokenSequence, cut, rollout_numbers
from turncredit.training.team import Team
from turncredit.training.update import Objective, minibatch_step, training_set


def run(
    world,
    credits,
    folder,
    *,
    settings=None,
    policy=None,
    round=1,
    define=None,
    method="flat_grpo",
    processes=1,
):
    """The stage update on the world's turns. Returns its metrics, and the new policy's weights."""
    defaults = {"minibatch": 4, "skip_dead_groups": False, "lr": 1e-3}
    changes = {"update": {**defaults, **(settings or {})}, "define": define or {}}
    ran = world.run(
        "update",
        JobKeys(method=method, seed=0, round=round),
        folder,
        changes,
        threads=processes,
        policy=policy or world.path("sft_policy"),
        turns=world.path("turns"),
        credits=credits,
    )
    return Updated(ran.output["policy"], ran.output["updates"], ran.metrics)


class Updated(NamedTuple):
    """What an update made."""

    policy: Path
    updates: Path
    metrics: dict[str, float]

    @property
    def weights(self):
        return load_file(self.policy / "model.safetensors")

    def bytes(self):
        """The contents of all that it made."""
        files = [self.policy / "model.safetensors", self.policy / "optimizer.safetensors", self.updates]
        return [file.read_bytes() for file in files]


def training_data(world, credits, **settings):
    """The training set of the world's turns, from the credits in a file."""
    update = tiny.experiment(update=settings).update
    turns, credit = tables.read(world.path("turns"), "turns"), tables.read(credits, "credits")
    return training_set(turns, credit, update, str(credits))


def same(one, two):
    return all(torch.equal(one[name], two[name]) for name in one) and one.keys() == two.keys()


def test_the_first_steps_ratio_is_one_and_the_policy_changes(world, credits, tmp_path):
    made = run(world, credits, tmp_path)
    assert made.metrics["first_ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert not same(made.weights, load_file(world.path("sft_policy") / "model.safetensors"))


def test_the_same_seed_gives_the_same_bytes(world, credits, tmp_path):
    assert run(world, credits, tmp_path / "a").bytes() == run(world, credits, tmp_path / "b").bytes()


def test_has_with_alpha_one_is_flat_grpo_bit_for_bit_through_the_whole_update(world, tmp_path):
    define = {"has_alpha_one": {"base": "has_progressive", "params": {"alpha": 1.0}}}
    turns = _with_varied_rewards(world, tmp_path)
    weights = []
    for method in ("flat_grpo", "has_alpha_one"):
        at = replace(world.turns, method=method)
        path = world.run("credit", at, tmp_path, {"define": define}, turns=turns).output["credits"]
        weights.append(run(world, path, tmp_path, define=define, method=method).weights)
    assert same(*weights)
    assert not same(weights[0], load_file(world.path("sft_policy") / "model.safetensors"))


def _with_varied_rewards(world, folder):
    """The recorded turns, every second rollout made successful, so that no group is dead."""
    table = tables.read(world.path("turns"), "turns")
    last = np.array(table.column("done").to_pylist())
    lucky = np.array([int(name[-1]) % 2 == 0 for name in table.column("rollout_id").to_pylist()])
    reward = pa.array((last & lucky).astype(float))
    table = table.set_column(table.schema.get_field_index("reward"), table.schema.field("reward"), reward)
    path = folder / "varied.parquet"
    tables.write(table, path, "turns", provenance.record("test"))
    return path


def test_shards_give_the_same_bytes_from_one_process_and_from_two(world, credits, tmp_path):
    settings = {"shards": 2, "kl": "k3", "kl_coefficient": 0.1}
    alone, shared = (
        run(world, credits, tmp_path / str(processes), settings=settings, processes=processes) for processes in (1, 2)
    )
    assert alone.bytes() == shared.bytes()
    one = run(world, credits, tmp_path / "whole", settings={**settings, "shards": 1})
    whole, parts = one.weights, alone.weights
    assert all(torch.allclose(whole[name], parts[name], atol=1e-4) for name in whole)


def test_gradients_do_not_depend_on_how_a_minibatch_is_cut_into_passes(world, credits, tmp_path):
    for aggregation in ("token-mean", "seq-mean-token-mean"):
        settings = {"loss_aggregation": aggregation, "epochs": 1}
        whole = run(world, credits, tmp_path / "w", settings=settings).weights
        parts = run(world, credits, tmp_path / "p", settings={**settings, "tokens_per_pass": 300}).weights
        for name, value in whole.items():
            torch.testing.assert_close(value, parts[name], atol=2e-5, rtol=1e-4)


def test_moments_survive_the_disk(world, credits, tmp_path):
    """AdamW stepped twice in memory equals AdamW saved after its first step, loaded and stepped again."""
    once = run(world, credits, tmp_path / "one", settings={"minibatch": 64})
    second = {"policy": once.policy, "round": 2}
    twice = run(world, credits, tmp_path / "two", settings={"minibatch": 64}, **second).weights
    epochs = run(world, credits, tmp_path / "both", settings={"minibatch": 64, "epochs": 2}).weights
    for name, value in twice.items():
        torch.testing.assert_close(value, epochs[name], atol=1e-6, rtol=1e-5)
    settings = {"minibatch": 64, "keep_optimizer": False}
    assert not same(twice, run(world, credits, tmp_path / "forgot", settings=settings, **second).weights)


def test_learning_rate_warms_up_over_rounds(world, credits, tmp_path):
    settings = {"minibatch": 8, "warmup_steps": 4, "lr": 1e-3}
    one = run(world, credits, tmp_path, settings=settings)
    two = run(world, credits, tmp_path, settings=settings, policy=one.policy, round=2)
    rates = [rate for made in (one, two) for rate in tables.read(made.updates, "updates").column("lr").to_pylist()]
    assert rates == pytest.approx([0.25e-3, 0.5e-3, 0.75e-3, 1e-3])


def test_steps_are_taken_at_the_rate_that_warm_up_and_decay_leave(world, credits, tmp_path):
    """Half by the warm-up's first step, half by the decay of round 2."""
    slowed = {"lr": 4e-3, "warmup_steps": 2, "final_lr": 0.5, "decay_rounds": 2}
    one, other = (
        run(world, credits, tmp_path / name, settings={"minibatch": 16, **settings}, round=2)
        for name, settings in (("slowed", slowed), ("plain", {"lr": 1e-3}))
    )
    assert same(one.weights, other.weights)
    assert tables.read(one.updates, "updates").column("lr").to_pylist() == pytest.approx([1e-3])


def test_every_round_of_every_seed_has_minibatches_and_dropout_of_its_own(world, credits, monkeypatch):
    """Each epoch takes every rollout once, in an order of its own; and the same seed and round the same again."""
    taken: list[tuple[tuple[int, ...], int]] = []
    row = {"loss": 0.0, "ratio_max": None, "log_ratio": None, "tokens": 1, "sequences": 4, "zero_sequences": 0}

    def noted(*given):
        batch, dropout = given[-2:]
        taken.append((tuple(sequence.rollout for sequence in batch), dropout))
        return row

    monkeypatch.setattr(update_module, "minibatch_step", noted)
    settings = tiny.experiment(update={"epochs": 2, "skip_dead_groups": False}).update
    data = training_data(world, credits, skip_dead_groups=False)
    policy = OpenPolicy(world.path("sft_policy"), dtype="float32")

    def steps(seed, round, **more):
        taken.clear()
        given = {"reference": policy, "rate": 1.0, "team": Team(), **more}
        update_module.update(policy, settings, data, seed=seed, round=round, **given)
        return list(taken)

    rounds = [steps(*at) for at in ((0, 1), (0, 2), (1, 1))]
    orders = [sum((batch for batch, _ in steps[first : first + 4]), ()) for steps in rounds for first in (0, 4)]
    assert [sorted(order) for order in orders] == [list(range(16))] * 6
    assert len(set(orders)) == 6
    assert len({dropout for steps in rounds for _, dropout in steps}) == 3 * 8
    assert steps(0, 1) == rounds[0]
    kept = SimpleNamespace(restore=lambda *_: [row] * 3, stop_if_due=lambda *_: None)
    assert steps(0, 1, unfinished=kept) == rounds[0][3:], "an update that goes on takes the steps that are left"


def test_a_kl_penalty_holds_the_policy_near_its_reference(world, credits, tmp_path):
    """With the same gradient from advantages, a heavy penalty leaves the policy closer to where it was."""
    sft = load_file(world.path("sft_policy") / "model.safetensors")

    def distance(weights):
        return sum(float((weights[name] - sft[name]).square().sum()) for name in weights)

    free = run(world, credits, tmp_path / "free", settings={"epochs": 4})
    held = run(world, credits, tmp_path / "held", settings={"epochs": 4, "kl": "k3", "kl_coefficient": 50.0})
    assert held.metrics["kl"] > 0
    assert distance(held.weights) < distance(free.weights)


def test_an_entropy_bonus_is_subtracted_from_the_loss_as_verl_does(world, credits, tmp_path):
    """verl 0.9.1, `dp_actor`: `policy_loss = pg_loss - entropy_loss * entropy_coeff`, both aggregated alike."""
    plain = {"epochs": 1, "minibatch": 99, "loss_aggregation": "token-mean"}
    made = [
        run(world, credits, tmp_path / str(c), settings={**plain, "entropy_coefficient": c}) for c in (0.0, 0.001, 0.5)
    ]
    log = [tables.read(one.updates, "updates").to_pylist()[0] for one in made]
    assert log[1]["entropy"] == pytest.approx(log[2]["entropy"], rel=1e-6)
    assert log[1]["loss"] - log[2]["loss"] == pytest.approx(0.499 * log[1]["entropy"], rel=1e-4)


def test_an_entropy_bonus_keeps_the_policy_less_certain(world, credits, tmp_path):
    settings = [{"epochs": 4, "entropy_coefficient": coefficient} for coefficient in (0.0, 0.3)]
    free, held = (
        run(world, credits, tmp_path / str(number), settings=one).metrics["entropy"]
        for number, one in enumerate(settings)
    )
    assert held > 1.05 * free


def test_the_kl_coefficient_adapts_and_is_carried_along(world, credits, tmp_path):
    settings = {"kl": "k3", "kl_coefficient": 0.1, "kl_target": 1e-9}
    one = run(world, credits, tmp_path, settings=settings)
    two = run(world, credits, tmp_path / "two", settings=settings, policy=one.policy, round=2)
    assert two.metrics["kl_coefficient"] == pytest.approx(0.102)
    logs = [tables.read(made.updates, "updates").to_pandas() for made in (one, two)]
    assert logs[0].kl[0] == pytest.approx(0.0, abs=1e-8)
    assert logs[1].kl[0] > 1e-4, "the reference is the SFT policy in every round, not the one that sampled"
    assert logs[0].tokens.tolist() != logs[1].tokens.tolist(), "minibatches of another round"
    assert one.metrics["largest_log_ratio"] == logs[0].log_ratio.max() > logs[0].log_ratio.min()


def test_minibatches_without_a_learned_token_do_not_lower_the_kl(world, credits, tmp_path):
    table = tables.read(credits, "credits")
    trained_N = np.isin(rollout_numbers(table), [0, 5, 9])
    marked = tmp_path / "marked.parquet"
    table = table.append_column("trained", pa.array(trained_N.astype(float)))
    tables.write(table, marked, "credits", provenance.record("test"))
    settings = {"kl": "k3", "kl_coefficient": 0.1, "kl_target": 1e-9, "minibatch": 1}
    made = run(world, marked, tmp_path, settings=settings)
    log = tables.read(made.updates, "updates").to_pandas()
    assert (log.tokens == 0).tolist() == log.kl.isna().tolist()
    assert log.kl.notna().sum() == 3
    assert made.metrics["kl"] == pytest.approx(log.kl.mean())

    none = table.set_column(table.column_names.index("trained"), "trained", pa.array(np.zeros(len(table))))
    tables.write(none, marked, "credits", provenance.record("test"))
    idle = run(world, marked, tmp_path, settings=settings).metrics
    assert "kl" not in idle
    assert idle["kl_coefficient"] == pytest.approx(0.1)


def test_dead_groups_are_left_out_only_when_asked(world, credits):
    turns = tables.read(world.path("turns"), "turns").to_pandas()
    scores = turns.groupby(["group_id", "rollout_id"]).reward.sum().groupby("group_id")
    alive = set(scores.nunique().loc[lambda number: number > 1].index)
    assert 0 < len(alive) < 4, "some groups of the tiny experiment are dead, some are not"
    kept = training_data(world, credits, skip_dead_groups=False).sequences
    skipped = training_data(world, credits, skip_dead_groups=True).sequences
    assert len(kept) == 16
    assert len(skipped) == 4 * len(alive)
    assert {turns.group_id[sequence.turn[sequence.turn >= 0][0]] for sequence in skipped} == alive


def test_advantages_are_scaled_to_unit_size_over_the_turns_that_are_learned_from(world, credits):
    data = training_data(world, credits, skip_dead_groups=True, advantage_scale="rms")
    rows = np.unique(np.concatenate([sequence.turn[sequence.turn >= 0] for sequence in data.sequences]))
    assert len(rows) < len(data.advantage_N)
    assert np.mean(data.advantage_N[rows] ** 2) == pytest.approx(1)


def test_advantages_that_are_rounding_alone_are_none(world, credits):
    """A round of dead groups whose returns differ by rounding: scaled up, it would be an update of noise."""
    turns, table = tables.read(world.path("turns"), "turns"), tables.read(credits, "credits")
    noise = 1e-11 * np.random.default_rng(0).normal(size=table.num_rows)
    table = table.set_column(table.column_names.index("advantage"), "advantage", pa.array(noise))
    data = training_set(turns, table, tiny.experiment().update, "credits")
    assert not data.advantage_N.any()


def with_zeros(credits, folder, zero_R):
    """The credits with all advantages of some rollouts (numbers in the table's order) set to 0."""
    table = tables.read(credits, "credits")
    number_N = np.array(rollout_numbers(table))
    advantage_N = np.where(np.isin(number_N, zero_R), 0.0, table.column("advantage").to_numpy())
    table = table.set_column(table.column_names.index("advantage"), "advantage", pa.array(advantage_N))
    folder.mkdir(exist_ok=True)
    tables.write(table, folder / "zeros.parquet", "credits", provenance.record("test"))
    return folder / "zeros.parquet"


def test_every_credit_takes_the_same_steps_on_the_same_minibatches(world, credits, tmp_path):
    logs = []
    for name, zero_R in (("none", []), ("some", range(1, 16, 2)), ("most", range(15))):
        path = with_zeros(credits, tmp_path / name, zero_R)
        made = run(world, path, tmp_path / name, settings={"epochs": 2})
        logs.append(tables.read(made.updates, "updates").to_pandas())
    for log in logs[1:]:
        for column in ("step", "epoch", "lr", "tokens", "sequences"):
            assert log[column].tolist() == logs[0][column].tolist()
    assert [log.zero_sequences.sum() for log in logs] == [0, 2 * 8, 2 * 15]


def test_sequences_without_advantage_are_not_computed_and_count_as_if_they_were(world, credits, tmp_path, monkeypatch):
    path = with_zeros(credits, tmp_path, range(0, 16, 3))
    for aggregation in ("token-mean", "seq-mean-token-mean", "seq-mean-token-sum"):
        settings = {"loss_aggregation": aggregation, "advantage_scale": "none", "weight_decay": 0.1}
        left_out = run(world, path, tmp_path / "left_out", settings=settings).weights
        with monkeypatch.context() as patch:
            patch.setattr(Objective, "has_gradient", lambda *_: True)
            computed = run(world, path, tmp_path / "computed", settings=settings).weights
        for name, value in computed.items():
            torch.testing.assert_close(value, left_out[name], atol=2e-5, rtol=1e-4)


def test_the_distance_from_the_sampling_is_that_of_the_first_step_that_computed_something(world, credits, tmp_path):
    idle_at_first = 0
    for live in (0, 15):
        path = with_zeros(credits, tmp_path / str(live), [rollout for rollout in range(16) if rollout != live])
        made = run(world, path, tmp_path / str(live))
        log = tables.read(made.updates, "updates").to_pandas()
        computed = log[log.ratio_max.notna()].iloc[0]
        idle_at_first += computed.step > log.step.min()
        for name in ("ratio_max", "log_ratio", "log_ratio_max"):
            assert made.metrics[f"first_{name}"] == pytest.approx(computed[name])
        for name in ("loss", "grad_norm", "clip_fraction", "entropy"):
            assert made.metrics[name] == pytest.approx(log[name].mean()), f"{name}: a mean over the steps that have it"
        assert made.metrics["tokens"] == log.tokens.sum()
        assert made.metrics["turns_with_advantage"] == np.count_nonzero(tables.read(path)["advantage"].to_numpy())
    assert idle_at_first


@pytest.mark.parametrize("moved_by", ["momentum", "weight decay"])
def test_a_policy_that_idle_steps_have_moved_is_not_compared_with_the_sampling(world, credits, tmp_path, moved_by):
    idle_at_first = 0
    before = run(world, credits, tmp_path).policy if moved_by == "momentum" else None
    settings = {"weight_decay": 0.1} if moved_by == "weight decay" else {}
    for live in (0, 15):
        path = with_zeros(credits, tmp_path / str(live), [rollout for rollout in range(16) if rollout != live])
        made = run(world, path, tmp_path / str(live), policy=before, settings=settings)
        idle = tables.read(made.updates, "updates").column("ratio_max")[0].as_py() is None
        assert ("first_ratio_max" in made.metrics) == ("first_log_ratio" in made.metrics) == (not idle)
        assert "largest_log_ratio" in made.metrics
        idle_at_first += idle
    assert idle_at_first


def test_a_round_of_zero_advantages_takes_its_steps_and_keeps_a_fresh_policy(world, credits, tmp_path):
    made = run(world, with_zeros(credits, tmp_path, range(16)), tmp_path)
    assert (made.metrics["steps"], made.metrics["sequences"], made.metrics["zero_sequences"]) == (4, 16, 16)
    assert "first_ratio_max" not in made.metrics
    assert tables.read(made.updates, "updates").column("ratio_max").null_count == 4
    assert same(made.weights, load_file(world.path("sft_policy") / "model.safetensors"))


def test_in_steps_without_a_gradient_the_moments_decay_as_in_any_other(world, credits, tmp_path):
    one = run(world, credits, tmp_path)
    two = run(world, with_zeros(credits, tmp_path, range(16)), tmp_path, policy=one.policy, round=2)
    before, after = (load_file(made.policy / "optimizer.safetensors") for made in (one, two))
    means = [name for name in before if name.endswith(".exp_avg")]
    assert means
    for name in means:
        torch.testing.assert_close(after[name], before[name] * 0.9**4)
    assert not same(one.weights, two.weights)


def test_lora_trains_and_saves_the_adapter_alone(world, credits, tmp_path):
    from turncredit.config import LoraConfig

    sft, start = world.path("sft_policy"), tmp_path / "start"
    model = models.add_lora(models.load_model(sft, dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    models.save_model(model, start, base=sft, final=start)
    made = run(world, credits, tmp_path, settings={"minibatch": 8, "lr": 1e-2}, policy=start)
    assert made.metrics["steps"] == 2
    assert not (made.policy / "model.safetensors").exists()
    before, after = (load_file(folder / "adapter_model.safetensors") for folder in (start, made.policy))
    assert any(not torch.equal(before[name], after[name]) for name in before)
    merged = models.load_model(made.policy, dtype="float32")
    assert not torch.equal(
        merged.model.layers[0].self_attn.q_proj.weight,
        models.load_model(sft, dtype="float32").model.layers[0].self_attn.q_proj.weight,
    )


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_an_engine_is_not_doubted_for_the_dropout_of_training(world, credits, tmp_path, dropout):
    from turncredit.config import LoraConfig

    sft, start = world.path("sft_policy"), tmp_path / "start"
    settings = LoraConfig(rank=4, alpha=8, dropout=dropout)
    model = models.add_lora(models.load_model(sft, dtype="float32"), settings, 0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    models.save_model(model, start, base=sft, final=start)
    made = run(world, credits, tmp_path, settings={"minibatch": 16, "old_logprobs": "recomputed"}, policy=start)
    assert ("first_log_ratio" in made.metrics) == (dropout == 0)
    (ratio,) = tables.read(made.updates, "updates").column("ratio_max").to_pylist()
    assert (ratio > 1.01) == (dropout > 0), "training drops, and what it is compared with does not"


def test_a_model_that_has_trained_in_this_process_is_read_without_dropout(world, credits):
    """As the next round's denominator, or as a reference."""
    from turncredit.config import LoraConfig

    settings = LoraConfig(rank=4, alpha=8, dropout=0.5)
    model = models.add_lora(models.load_model(world.path("sft_policy"), dtype="float32"), settings, 0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.3)
    sequences = training_data(world, credits, skip_dead_groups=False).sequences[:2]
    update = tiny.experiment().update
    one, two = (update_module._logprobs_of(model.train(), sequences, update, 1.0, Team()) for _ in range(2))
    assert all(torch.equal(one[key], two[key]) for key in one)


def test_advantages_reach_exactly_the_tokens_of_their_turn(world, credits):
    """The gradient of one turn's loss comes from its response tokens and no others."""
    sequences, advantage_N, _ = training_data(world, credits, skip_dead_groups=False)
    responses = tables.read(world.path("turns"), "turns").column("response_ids").to_pylist()
    seen = 0
    for sequence in sequences:
        for row in np.unique(sequence.turn[sequence.turn >= 0]):
            assert sequence.ids[sequence.turn == row].tolist() == responses[row]
            seen += 1
    assert seen == len(responses) == len(advantage_N)


def test_credits_of_other_rollouts_are_refused_and_their_file_is_named(world, credits, tmp_path):
    short = tmp_path / "short.parquet"
    tables.write(tables.read(credits, "credits").slice(1), short, "credits", provenance.record("test"))
    with pytest.raises(UserError, match=rf"^{short}: its rows are not those of"):
        run(world, short, tmp_path)


def test_advantages_that_are_not_finite_are_refused_and_their_file_is_named(world, credits, tmp_path):
    table = tables.read(credits, "credits")
    advantage_N = table.column("advantage").to_numpy().copy()
    advantage_N[3] = np.nan
    table = table.set_column(table.column_names.index("advantage"), "advantage", pa.array(advantage_N))
    broken = tmp_path / "nan.parquet"
    tables.write(table, broken, "credits", provenance.record("test"))
    with pytest.raises(UserError, match=rf"^{broken}: 1 advantages are not finite"):
        run(world, broken, tmp_path)


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


@pytest.mark.parametrize(("tokens_per_pass", "shards"), [(1000, 1), (12, 2)])
def test_a_step_has_the_gradient_and_the_log_row_that_a_few_lines_give(tokens_per_pass, shards):
    """Every term of the objective at once, at a temperature, in one pass and in several passes of two shards."""
    torch.manual_seed(0)
    small = {"hidden_size": 16, "intermediate_size": 32, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=30, num_hidden_layers=1, initializer_range=0.3, **small)).train()
    turns = [[-1, 0, 0, 0, -1, 1], [-1, -1, 2, -1, -1, 3, 3, 3, 3], [-1, 4, 4]]
    advantages, temperature, cap = torch.tensor([1.0, -2.0, 0.5, -1.0, 1.5]), 0.5, 1.1
    settings = UpdateConfig(
        loss_aggregation="seq-mean-token-mean", clip_low=0.1, clip_high=0.3, kl="k3", kl_coefficient=0.5,
        entropy_coefficient=0.2, old_logprobs="recomputed", importance_cap=cap, max_grad_norm=7.0,
        tokens_per_pass=tokens_per_pass, shards=shards,
    )  # fmt: skip
    sequences, old, reference = [], {}, {}
    losses, rows = [], []
    for number, turn in enumerate(turns):
        ids, learned = torch.randint(0, 30, (len(turn),)), torch.tensor(turn[1:]) >= 0
        exact = (model(ids[None]).logits[0, :-1] / temperature).log_softmax(-1)
        logprobs = exact.gather(-1, ids[1:, None])[learned, 0]
        noise = [logprobs.detach() + size * torch.randn(len(logprobs)) for size in (0.3, 0.3, 0.3)]
        by_engine = torch.zeros(len(turn)).masked_scatter(torch.tensor(turn) >= 0, noise[0])
        sequence = TokenSequence(number, ids.numpy(), np.array(turn), by_engine.numpy())
        sequences.append(sequence)
        old[id(sequence)], reference[id(sequence)] = noise[1:]

        ratio, advantage = (logprobs - noise[1]).exp(), advantages[torch.tensor(turn[1:])[learned]]
        gain = torch.minimum(ratio * advantage, ratio.clamp(0.9, 1.3) * advantage)
        apart = noise[2] - logprobs
        kl, entropy = apart.exp() - 1 - apart, -(exact.exp() * exact).sum(-1)[learned]
        loss = -gain * (noise[1] - noise[0]).exp().clamp(max=cap) + 0.5 * kl - 0.2 * entropy
        losses.append(loss.mean())
        outside = ((ratio < 0.9) | (ratio > 1.3)).float()
        rows.append(torch.stack([outside, ratio, (logprobs - noise[0]).abs(), entropy, kl], dim=1).detach())
    torch.stack(losses).mean().backward()
    expected = {name: parameter.grad.clone() for name, parameter in model.named_parameters()}
    found = {}

    class Looks:
        def step(self, max_grad_norm):
            found.update({name: parameter.grad.clone() for name, parameter in model.named_parameters()})
            return max_grad_norm

    objective, team = Objective(settings, advantages, 0.5, temperature, reference, old), Team()
    with team.sharing(list(model.parameters()), shards):
        row = minibatch_step(model, Looks(), team, objective, sequences, 0)
    for name, gradient in expected.items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6, msg=lambda said, n=name: f"{n}: {said}")
    tokens = torch.cat(rows)
    means = dict(zip(("clip_fraction", "_", "log_ratio", "entropy", "kl"), tokens.mean(0).tolist(), strict=True))
    assert 0 < (tokens[:, 1] < 0.9).sum() < tokens[:, 0].sum() < len(tokens), "beyond both bounds, and within"
    largest = {"ratio_max": tokens[:, 1].max().item(), "log_ratio_max": tokens[:, 2].max().item()}
    counts = {"tokens": 11, "sequences": 3, "zero_sequences": 0, "grad_norm": 7.0}
    del means["_"]
    assert row == pytest.approx({"loss": torch.stack(losses).mean().item(), **means, **largest, **counts}, rel=1e-4)


def test_activations_are_recomputed_with_the_transformers_of_vllm_too(world, monkeypatch):
    """Below 5.20 the function has another name; a job of several stages trains in the environment that has vLLM."""
    asked = []
    monkeypatch.delattr(PreTrainedModel, "activation_checkpointing_enable")
    monkeypatch.setattr(PreTrainedModel, "gradient_checkpointing_enable", lambda _, settings: asked.append(settings))
    for wanted in (False, True):
        OpenPolicy(world.path("sft_policy"), dtype="float32").masters("float32", checkpointing=wanted)
    assert asked == [{"use_reentrant": False}]
