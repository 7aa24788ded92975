"""Demonstrations and the warm start."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from safetensors.torch import load_file

from turncredit.config import AgentSlice, UpdateConfig
from turncredit.data import tables
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


def test_only_imitated_actions_are_learnt_and_their_tokens_are_the_actions(world, tmp_path):
    table, _ = demos(world, tmp_path, noise=0.3)
    encoder = tokenizer.load(world.path("base"))
    sequences = demonstrations(table, encoder, TRANSCRIPT, WORDS)
    said = [
        encoder.decode(sequence.ids[sequence.turn == row]).strip()
        for sequence in sequences
        for row in np.unique(sequence.turn[sequence.turn >= 0])
    ]
    assert said == table.filter(table.column("imitate")).column("action").to_pylist()


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
