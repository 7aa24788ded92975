"""Demonstrations and the warm start."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
import torch
from safetensors.torch import load_file

from turncredit.config import AgentSlice, UpdateConfig
from turncredit.data import provenance, tables
from turncredit.data.seeding import generator
from turncredit.envs.household import WORDS
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.policy import models, tokenizer
from turncredit.policy.masters import Masters
from turncredit.training.optimizers import make_optimizer
from turncredit.training.sequences import batches, stack, token_logprobs
from turncredit.training.sft import demonstrations, learning_rate, minibatches
from turncredit.training.team import Team

LONG = {"household": {"horizon": 40}}
TRANSCRIPT = AgentSlice()


def demos(world, folder, **settings):
    """What the stage demos writes on long games, and what it measured."""
    changes = {"env": LONG, "demos": {"count": 24, **settings}}
    ran = world.run("demos", JobKeys(), folder, changes)
    return tables.read(ran.output["demos"], "demos"), ran.metrics


def sft(world, folder, demos, changes, processes=1):
    """What the stage sft makes of these demonstrations."""
    return world.run("sft", JobKeys(), folder, changes, demos=demos, threads=processes)


@pytest.fixture(scope="module")
def few_demos(world, tmp_path_factory):
    """The world's first 24 demonstrations."""
    table, path = tables.read(world.path("demos"), "demos"), tmp_path_factory.mktemp("few") / "demos.parquet"
    first = table.column("rollout_id").unique().slice(0, 24)
    tables.write(table.filter(pc.is_in(table.column("rollout_id"), first)), path, "demos", provenance.record("test"))
    return path


def test_without_faults_the_expert_always_wins_and_is_always_imitated(world, tmp_path):
    table, metrics = demos(world, tmp_path, noise=0.0)
    assert metrics["success"] == 1.0
    assert all(table.column("imitate").to_pylist())
    assert all(table.column("valid").to_pylist())


def test_noise_is_never_imitated_slips_always_and_the_expert_recovers_from_both(world, tmp_path):
    table, metrics = demos(world, tmp_path, noise=0.3)
    noisy = table.to_pandas()
    assert 0.2 < 1 - noisy.imitate.mean() < 0.4
    assert noisy[~noisy.valid].imitate.sum() == 0, "what the environment refused was noise"
    assert metrics["success"] > 0.9, "the expert is not misled by the refusal of a command that was not its own"
    table, metrics = demos(world, tmp_path, noise=0.0, slips=0.3)
    slipping = table.to_pandas()
    assert slipping.imitate.all()
    assert slipping.valid.all()
    direct = demos(world, tmp_path, noise=0.0)[0].to_pandas()
    assert slipping.groupby("rollout_id").size().mean() > 1.2 * direct.groupby("rollout_id").size().mean()
    assert metrics["success"] > 0.9


def test_several_processes_give_the_demonstrations_of_one(world, tmp_path, monkeypatch):
    monkeypatch.setattr("turncredit.rollouts.demos._BLOCK", 5)
    changes = {"env": LONG, "demos": {"count": 24, "noise": 0.2}}
    made = []
    for processes in (1, 3):
        ran = world.run("demos", JobKeys(), tmp_path / str(processes), changes, threads=processes)
        made.append((ran.metrics, ran.output["demos"].read_bytes()))
    assert made[0] == made[1]


def test_the_same_seed_gives_the_same_demonstrations(world, tmp_path):
    first, again, other = (
        demos(world, tmp_path / name, noise=0.2, seed=seed)[0] for name, seed in zip("abc", (0, 0, 1), strict=True)
    )
    assert first.equals(again)
    assert not first.equals(other)


def test_demonstrations_of_the_same_game_make_mistakes_of_their_own(world):
    frame = tables.read(world.path("demos"), "demos").to_pandas()
    actions = frame.groupby(["task_id", "rollout_id"]).action.agg(tuple).groupby("task_id")
    assert set(actions.size()) == {4}
    assert actions.nunique().max() > 1


def test_only_imitated_actions_are_learnt_and_their_tokens_are_the_actions(world, tmp_path):
    table, _ = demos(world, tmp_path, noise=0.3)
    encoder = tokenizer.load(world.path("base"))
    sequences = demonstrations(table, encoder, TRANSCRIPT, WORDS)
    responses = [
        sequence.ids[sequence.turn == row].tolist()
        for sequence in sequences
        for row in np.unique(sequence.turn[sequence.turn >= 0])
    ]
    assert {ids[-1] for ids in responses} == {encoder.eos_id}, "a policy learns to end its response"
    said = [encoder.decode(ids).strip() for ids in responses]
    assert said == table.filter(table.column("imitate")).column("action").to_pylist()


def test_the_loss_of_a_minibatch_is_the_mean_over_its_learned_tokens_however_it_is_cut(world, few_demos, tmp_path):
    changes = {"sft": {"epochs": 0.1, "batch": 8, "shards": 2}}
    made = [
        sft(world, tmp_path / str(size), few_demos, {**changes, "update": {"tokens_per_pass": size}}).output
        for size in (200, 16384)
    ]
    rows = [tables.read(one["log"], "sft_log").slice(0, 1).to_pylist()[0] for one in made]
    table = tables.read(few_demos, "demos")
    sequences = demonstrations(
        table.filter(table.column("success")), tokenizer.load(world.path("base")), TRANSCRIPT, WORDS
    )
    model = models.load_model(world.path("base"), dtype="float32")
    losses = []
    for sequence in next(minibatches(sequences, 8, 0.1, generator(0, "sft order"))):
        ids, learned = torch.from_numpy(sequence.ids), torch.from_numpy(sequence.turn[1:] >= 0)
        with torch.no_grad():
            exact = model(ids[None]).logits[0, :-1].log_softmax(-1).gather(1, ids[1:, None])[:, 0]
        losses += (-exact[learned]).tolist()
    for row in rows:
        assert (row["loss"], row["tokens"]) == (pytest.approx(np.mean(losses), rel=1e-4), len(losses))
    one, two = (load_file(policy["policy"] / "model.safetensors") for policy in made)
    assert all(torch.allclose(one[name], two[name], atol=1e-4) for name in one)


def test_shards_give_the_same_policy_from_one_process_and_from_two(world, tmp_path):
    changes = {"sft": {"epochs": 1, "batch": 4, "shards": 3}}
    alone, shared = (
        sft(world, tmp_path / str(processes), world.path("demos"), changes, processes).output for processes in (1, 2)
    )
    assert (alone["policy"] / "model.safetensors").read_bytes() == (shared["policy"] / "model.safetensors").read_bytes()
    assert alone["log"].read_bytes() == shared["log"].read_bytes()


@pytest.mark.slow
def test_a_policy_can_learn_its_demonstrations_by_heart(world, tmp_path):
    """A few demonstrations, many passes: nearly every action becomes the likeliest one."""
    changes = {
        "env": LONG,
        "sft": {"epochs": 120, "batch": 4, "optimizer": "muon"},
        "demos": {"count": 6, "noise": 0.0},
    }
    path = world.run("demos", JobKeys(), tmp_path, changes).output["demos"]
    made = sft(world, tmp_path, path, changes).output
    log = tables.read(made["log"], "sft_log").to_pandas()
    assert log.loss.iloc[0] > 4
    assert log.loss.iloc[-10:].mean() < 0.3
    sequences = demonstrations(tables.read(path, "demos"), tokenizer.load(made["policy"]), TRANSCRIPT, WORDS)
    model = models.load_model(made["policy"], dtype="float32").eval()
    for part in batches(sequences, 4096):
        ids, turn, _ = stack(part, torch.device("cpu"))
        with torch.no_grad():
            logprobs = token_logprobs(model, ids, turn >= 0)
        assert logprobs.exp().mean() > 0.8


@pytest.mark.parametrize(("settings", "taught"), [({}, 3), ({"successful_only": False}, 4)])
def test_only_demonstrations_that_won_are_imitated_unless_all_are_asked_for(
    world, tmp_path, monkeypatch, settings, taught
):
    table = tables.read(world.path("demos"), "demos")
    names = table.column("rollout_id").unique().to_pylist()[:4]
    table = table.filter(pc.is_in(table.column("rollout_id"), pa.array(names)))
    place, won = table.column_names.index("success"), pc.not_equal(table.column("rollout_id"), names[1])
    tables.write(
        table.set_column(place, "success", won), tmp_path / "demos.parquet", "demos", provenance.record("test")
    )
    found: list[set[str]] = []
    monkeypatch.setattr(
        "turncredit.training.sft.demonstrations",
        lambda given, *_: found.append(set(given.column("rollout_id").to_pylist())) or [],
    )
    with pytest.raises(UserError, match="no demonstrations to learn from"):
        sft(world, tmp_path, tmp_path / "demos.parquet", {"sft": settings})
    assert len(found[0]) == taught


def test_nothing_to_imitate_is_an_error_that_says_what_to_do(world, tmp_path):
    changes = {"env": {"household": {"horizon": 1}}, "demos": {"count": 24}}
    path = world.run("demos", JobKeys(), tmp_path, changes).output["demos"]
    with pytest.raises(UserError, match=rf"^{path}: the expert won 0 of 24 demonstrations; lower demos.noise"):
        sft(world, tmp_path, path, changes)
    assert not any(folder.name == "sft" for folder in tmp_path.rglob("*"))


def test_asking_for_a_split_that_is_not_there_names_it_and_writes_nothing(world, tmp_path):
    with pytest.raises(UserError, match="nowhere"):
        world.run("tasks", JobKeys(split="train"), tmp_path, {"tasks": {"train_split": "nowhere"}})
    assert not list(tmp_path.iterdir())


def test_a_fraction_of_a_pass_is_a_fraction_of_its_steps(world):
    encoder = tokenizer.load(world.path("base"))
    sequences = demonstrations(tables.read(world.path("demos"), "demos"), encoder, TRANSCRIPT, WORDS)
    for epochs, steps in ((0.5, 0.5), (1.0, 1.0), (2.5, 2.5)):
        made = list(minibatches(sequences, 4, epochs, generator(0, "x")))
        assert len(made) == round(steps * len(sequences) / 4)
    passed = [id(sequence) for batch in minibatches(sequences, 4, 1.0, generator(0, "x")) for sequence in batch]
    assert sorted(passed) == sorted(map(id, sequences)), "a pass takes each once"


def test_the_learning_rate_rises_and_falls():
    shares = [learning_rate(step, 100, warmup=10, final=0.1) for step in range(100)]
    assert shares[0] == pytest.approx(0.1)
    assert max(shares) == pytest.approx(1.0, abs=0.1)
    assert shares[-1] == pytest.approx(0.1)
    assert all(later < earlier for earlier, later in pairwise(shares[10:]))


@pytest.mark.parametrize("kind", ["adamw", "muon"])
def test_an_optimisers_moments_survive_the_disk(kind):
    """Three steps at once equal two steps, a save, a load, and one more."""

    def start():
        torch.manual_seed(0)
        layers = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Linear(4, 2))
        settings = UpdateConfig(optimizer=kind, lr=0.1, muon_lr=0.05, betas=(0.9, 0.95), weight_decay=0.01)
        return layers, make_optimizer(Masters(layers, "float32"), settings)

    def steps(layers, optimizer, count, first=0):
        for number in range(first, first + count):
            inputs = torch.randn(8, 4, generator=torch.Generator().manual_seed(number))
            layers(inputs).square().mean().backward()
            optimizer.step(1.0)

    whole, optimizer = start()
    steps(whole, optimizer, 3)
    parts, optimizer = start()
    steps(parts, optimizer, 2)
    kept = optimizer.state()
    again, optimizer = start()
    again.load_state_dict(parts.state_dict())
    optimizer.load_state(kept)
    steps(again, optimizer, 1, first=2)
    for one, two in zip(whole.parameters(), again.parameters(), strict=True):
        torch.testing.assert_close(one, two)


def stepped(sizes):
    """Layers by name, of these sizes, and their optimiser after a step."""
    layers = torch.nn.ModuleDict({name: torch.nn.Linear(size, size) for name, size in sizes.items()})
    optimizer = make_optimizer(Masters(layers, "float32"), UpdateConfig(optimizer="muon", lr=0.1, muon_lr=0.05))
    for number, parameter in enumerate(optimizer.parameters):
        parameter.grad = torch.full_like(parameter, 1.0 + number)
    optimizer.step(1.0)
    return optimizer


def test_an_optimisers_moments_are_those_of_the_parameters_of_the_same_name():
    kept = stepped({"first": 3, "second": 3}).state()
    assert not torch.equal(kept["first.weight.momentum_buffer"], kept["second.weight.momentum_buffer"])
    other = stepped({"second": 3, "first": 3})
    other.load_state(kept)
    loaded = other.state()
    assert loaded.keys() == kept.keys()
    assert all(torch.equal(loaded[name], kept[name]) for name in kept)


def test_moments_that_were_kept_by_the_parameters_places_are_read():
    optimizer = stepped({"first": 3, "second": 4})
    kept = optimizer.state()
    names = ["first.bias", "second.bias", "first.weight", "second.weight"]  # AdamW's, then Muon's
    old = {
        f"{names.index(name)}.{key}": value
        for (name, _, key), value in ((k.rpartition("."), v) for k, v in kept.items())
    }
    again = stepped({"first": 3, "second": 4})
    again.step(1.0)
    again.load_state(old)
    assert all(torch.equal(again.state()[name], kept[name]) for name in kept)


def test_moments_of_a_parameter_that_the_model_does_not_have_are_refused():
    kept = stepped({"first": 3, "second": 3}).state()
    with pytest.raises(UserError, match=r"no parameter second\.bias; start the run again .*update\.keep_optimizer"):
        stepped({"first": 3}).load_state(kept)


@pytest.mark.parametrize("moments_dtype", ["float32", "bfloat16"])
def test_a_first_step_is_adamws_by_hand_and_gradients_are_clipped_over_all_parameters(moments_dtype):
    """Gradients of 3 and 4 have the norm 5; a first step goes by the rate against each sign, after the decay."""
    model = torch.nn.ParameterDict({"one": torch.tensor([2.0]), "other": torch.tensor([-2.0])})
    settings = UpdateConfig(lr=0.2, betas=(0.8, 0.9), weight_decay=0.5)
    optimizer = make_optimizer(Masters(model, "float32"), settings, moments_dtype=moments_dtype)
    optimizer.set_rate(0.5)
    for name, gradient in (("one", 3.0), ("other", 4.0)):
        model[name].grad = torch.tensor([gradient])
    assert optimizer.step(1.0) == pytest.approx(5.0)
    assert [float(model[name]) for name in ("one", "other")] == pytest.approx([2 * 0.95 - 0.1, -2 * 0.95 - 0.1])
    moments = {name: float(value) for name, value in optimizer.state().items() if "exp" in name}
    expected = {"one.exp_avg": 0.12, "other.exp_avg": 0.16, "one.exp_avg_sq": 0.036, "other.exp_avg_sq": 0.064}
    assert moments == pytest.approx(expected, rel=1e-5 if moments_dtype == "float32" else 1e-2)


def test_a_matrix_that_muon_steps_decays_by_muons_rate():
    model = torch.nn.ParameterDict({"matrix": torch.full((2, 2), 2.0)})
    settings = UpdateConfig(optimizer="muon", lr=9.0, muon_lr=0.2, weight_decay=0.5)
    optimizer = make_optimizer(Masters(model, "float32"), settings)
    optimizer.set_rate(0.5)
    optimizer.step(1.0)
    torch.testing.assert_close(model["matrix"].data, torch.full((2, 2), 2 * 0.95))


def test_steps_are_taken_at_the_rate_that_warm_up_leaves(world, few_demos, tmp_path):
    one, other = (
        sft(world, tmp_path / name, few_demos, {"sft": {"epochs": 0.1, "batch": 4, **rates}}).output
        for name, rates in (("warmed", {"lr": 4e-3, "warmup_steps": 4}), ("plain", {"lr": 1e-3, "warmup_steps": 0}))
    )
    assert tables.read(one["log"], "sft_log").column("lr").to_pylist() == pytest.approx([1e-3])
    assert (one["policy"] / "model.safetensors").read_bytes() == (other["policy"] / "model.safetensors").read_bytes()


def test_muon_takes_the_blocks_matrices_and_nothing_else(world):
    masters = Masters(models.load_model(world.path("base"), dtype="float32"), "float32")
    optimizer = make_optimizer(masters, UpdateConfig(optimizer="muon", lr=1.0, muon_lr=2.0))
    optimizer.set_rate(1.0)
    rates = {id(p): group["lr"] for part in optimizer._parts for group in part.param_groups for p in group["params"]}
    matrices = {name for name, parameter in masters.parameters.items() if rates[id(parameter)] == 2.0}
    assert matrices == {name for name in masters.parameters if name.endswith("_proj.weight")}
    assert len(rates) == len(masters.parameters)


def test_without_epochs_no_memory_is_taken_for_shards(world, tmp_path, monkeypatch):
    monkeypatch.setattr(Team, "sharing", lambda *_: pytest.fail("gradients of shards"))
    made = sft(world, tmp_path, world.path("demos"), {"sft": {"epochs": 0, "shards": 8}})
    assert made.metrics == {"steps": 0.0}


def test_without_epochs_the_base_model_is_the_policy(world, tmp_path):
    made = sft(world, tmp_path, world.path("demos"), {"sft": {"epochs": 0}})
    assert made.metrics == {"steps": 0.0}
    assert tables.read(made.output["log"], "sft_log").num_rows == 0
    base, policy = (load_file(folder / "model.safetensors") for folder in (world.path("base"), made.output["policy"]))
    assert all(torch.equal(base[name], policy[name]) for name in base)
