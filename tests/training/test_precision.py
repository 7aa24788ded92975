"""Types of numbers: what is computed in bfloat16 must not lose what is learned, nor differ from what was sampled.

1. A model that computes in bfloat16 moves as far as one in float32, also across a save and a load.
2. No adapter is merged in bfloat16.
3. Where an engine and training disagree all the same, it is measured, and can be corrected.
"""

from __future__ import annotations

import json

import numpy as np
import pyarrow as pa
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file
from transformers import Qwen2Config, Qwen2ForCausalLM

from tests import tiny
from turncredit.config import LoraConfig, UpdateConfig
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys, Store
from turncredit.pipeline.plan import load as stage
from turncredit.policy import models, tokenizer
from turncredit.policy.engines import sampler
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.masters import Masters
from turncredit.policy.open import OpenPolicy
from turncredit.policy.sampling import Request
from turncredit.policy.weights import read_adapter, read_weights
from turncredit.training.optimizers import make_optimizer, rounded
from turncredit.training.sequences import token_logprobs

RATE = 5e-7


def weights(folder):
    return load_file(folder / "model.safetensors")


def updated(world, credits, folder, policy, dtype, *, rounds=1, **update):
    """The stage update, `rounds` times, each on the policy of the one before; returns the last one's outputs."""
    settings = {"minibatch": 16, "lr": RATE, "optimizer": "adamw", "epochs": 5, **update}
    changes = {"update": settings, "policy": dtype if isinstance(dtype, dict) else {"dtype": dtype}}
    for round in range(1, rounds + 1):
        inputs = {"policy": policy, "turns": world.path("turns"), "credits": credits}
        ran = world.run(
            "update", JobKeys(method="flat_grpo", seed=0, round=round), folder / str(round), changes, **inputs
        )
        policy = ran.output["policy"]
    return ran


def moved(before, after):
    """How far the weights have moved in all (L1)."""
    return sum(float((after[name].double() - before[name].double()).abs().sum()) for name in before)


def test_an_update_in_bfloat16_moves_the_weights_as_far_as_one_in_float32(world, credits, hub_model, tmp_path):
    before = weights(hub_model)
    far, near = (
        moved(before, weights(updated(world, credits, tmp_path / dtype, hub_model, dtype, rounds=2).output["policy"]))
        for dtype in ("float32", "bfloat16")
    )
    assert near == pytest.approx(far, rel=0.05), "the gradients are rounded, the steps are not"


def test_a_warm_start_in_bfloat16_moves_the_weights_as_far_as_one_in_float32(world, hub_model, tmp_path):
    before = weights(hub_model)
    distances = []
    for dtype in ("float32", "bfloat16"):
        sft = {"lr": RATE, "optimizer": "adamw", "epochs": 1, "warmup_steps": 0, "final_lr": 1.0, "batch": 16}
        changes = {"sft": sft, "policy": {"dtype": dtype}}
        made = world.run("sft", JobKeys(), tmp_path / dtype, changes, base=hub_model).output["policy"]
        distances.append(moved(before, weights(made)))
    assert distances[1] == pytest.approx(distances[0], rel=0.05)


def pushed(folder, dtype, train_dtype, moments_dtype, *, steps, moments=None):
    """The masters of a policy after steps of AdamW in one direction, and the optimiser's moments."""
    masters = OpenPolicy(folder, dtype=dtype).masters(train_dtype)
    optimizer = make_optimizer(masters, UpdateConfig(lr=RATE, betas=(0.9, 0.999)), moments_dtype=moments_dtype)
    optimizer.load_state(moments or {})
    for _ in range(steps):
        sum(parameter.sum() for parameter in masters.model.parameters()).backward()
        optimizer.step(1.0)
    return masters, optimizer.state()


@pytest.fixture(scope="module")
def wide_model(hub_model, tmp_path_factory):
    """A policy's folder with four million weights in bfloat16, drawn at random."""
    config = models.load_model(hub_model, dtype="bfloat16").config
    for name, value in {"hidden_size": 512, "intermediate_size": 2048}.items():
        setattr(config, name, value)
    torch.manual_seed(0)
    model, folder = Qwen2ForCausalLM(config).bfloat16(), tmp_path_factory.mktemp("wide") / "policy"
    models.save_model(model, folder, base=hub_model, final=folder)
    return folder


@pytest.mark.parametrize(
    ("train_dtype", "moments_dtype"), [("float32", "float32"), ("float32", "bfloat16"), ("bfloat16", "bfloat16")]
)
def test_ten_steps_in_one_direction_move_a_model_in_bfloat16_as_far_also_across_a_save(
    wide_model, tmp_path, train_dtype, moments_dtype
):
    """Stochastic rounding does so in the mean: over four million weights, to within .2% (one standard deviation)."""
    before = weights(wide_model)
    exact, _ = pushed(wide_model, "float32", "float32", "float32", steps=10)
    models.save_model(exact.model, tmp_path / "exact", base=wide_model, final=tmp_path / "exact")
    folder, moments = wide_model, None
    for part in ("first", "second"):
        masters, moments = pushed(folder, "bfloat16", train_dtype, moments_dtype, steps=5, moments=moments)
        folder = tmp_path / part
        with masters.in_model() as model:
            models.save_model(model, folder, base=wide_model, final=folder)
        assert {tensor.dtype for tensor in weights(folder).values()} == {getattr(torch, train_dtype)}
        assert json.loads((folder / "config.json").read_text())["dtype"] == train_dtype
        assert {parameter.dtype for parameter in masters.model.parameters()} == {torch.bfloat16}
    assert {value.dtype for name, value in moments.items() if "exp" in name} == {getattr(torch, moments_dtype)}

    def mean_change(after):
        return sum(float((after[name].double() - before[name].double()).sum()) for name in before)

    assert mean_change(weights(folder)) == pytest.approx(mean_change(weights(tmp_path / "exact")), rel=0.01)


def test_stochastic_rounding_moves_many_weights_as_far_as_float32_does():
    """Of four million weights the mean is within .25% of the exact one (one standard deviation)."""
    model = torch.nn.Linear(2**22, 1, bias=False, dtype=torch.bfloat16)
    torch.nn.init.constant_(model.weight, 0.02)
    before, settings = model.weight.detach().double(), UpdateConfig(lr=RATE, betas=(0.9, 0.95))
    optimizer = make_optimizer(Masters(model, "bfloat16"), settings, moments_dtype="bfloat16")
    for _ in range(10):
        model.weight.grad = torch.ones_like(model.weight)
        optimizer.step(1e9)
    assert float((before - model.weight.detach().double()).mean()) == pytest.approx(10 * RATE, rel=0.01)


def test_after_a_step_the_model_computes_with_what_the_saved_policy_has_in_bfloat16(hub_model, tmp_path):
    masters, _ = pushed(hub_model, "bfloat16", "float32", "float32", steps=3)
    with masters.in_model() as model:
        models.save_model(model, tmp_path / "after", base=hub_model, final=tmp_path / "after")
    read = dict(models.load_model(tmp_path / "after", dtype="bfloat16").named_parameters())
    for name, parameter in masters.model.named_parameters():
        assert torch.equal(parameter, read[name])


def test_the_gradients_of_many_passes_are_added_in_float32(hub_model):
    """Of 1,000 gradients of 1, bfloat16 would keep 256: there its neighbours are 2 apart."""
    masters = OpenPolicy(hub_model, dtype="bfloat16").masters("float32")
    for _ in range(1000):
        masters.model.model.norm.weight.sum().backward()
    assert set(masters.parameters["model.norm.weight"].grad.tolist()) == {1000.0}


@given(st.floats(-1e4, 1e4, width=32), st.integers(0, 100))
def test_stochastic_rounding_goes_to_a_neighbour_and_is_exact_in_the_mean(number, seed):
    exact = torch.full((4096,), number)
    found = rounded(exact, torch.bfloat16, torch.Generator().manual_seed(seed)).float()
    apart = max(abs(number) * 2**-7, 2**-126)
    assert float((found - exact).abs().max()) <= apart
    assert abs(float(found.double().mean()) - number) <= apart * 0.5 / 4096**0.5 * 6


def test_whole_weights_in_bfloat16_give_the_same_bytes_from_one_process_and_from_two(
    world, credits, hub_model, tmp_path
):
    types = {"dtype": "bfloat16", "train_dtype": "bfloat16", "moments_dtype": "bfloat16"}
    changes = {"update": {"minibatch": 8, "lr": 1e-5, "optimizer": "adamw", "shards": 2}, "policy": types}
    inputs = {"policy": hub_model, "turns": world.path("turns"), "credits": credits}
    alone, shared = (
        world.run(
            "update", JobKeys(method="flat_grpo", seed=0, round=1), tmp_path / str(n), changes, threads=n, **inputs
        ).output["policy"]
        for n in (1, 2)
    )
    for name in ("model.safetensors", "optimizer.safetensors"):
        assert (alone / name).read_bytes() == (shared / name).read_bytes()


def test_weights_trained_more_coarsely_than_they_are_computed_with_are_refused():
    with pytest.raises(UserError, match="must not be less precise than dtype, but it is bfloat16 and dtype float32"):
        tiny.experiment(policy={"train_dtype": "bfloat16"})


def adapted(base, folder, strength):
    """A policy with an adapter of this strength, as training leaves it."""
    model = models.add_lora(models.load_model(base, dtype="bfloat16"), LoraConfig(rank=4, alpha=6), 0)
    torch.manual_seed(0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=strength)
    models.save_model(model, folder, base=base, final=folder)
    return folder


def logprobs_of(model, ids, count):
    """Of the last `count` tokens."""
    learned = torch.zeros(1, len(ids), dtype=torch.bool)
    learned[0, -count:] = True
    with torch.no_grad():
        return token_logprobs(model, torch.tensor([ids]), learned).numpy()


def test_the_adapter_of_a_policy_that_is_only_read_computes_what_it_computes_in_training(hub_model, tmp_path):
    """Merged in bfloat16, an adapter this weak would be rounded away."""
    folder = adapted(hub_model, tmp_path / "adapter", 2e-4)
    encoder = tokenizer.load(hub_model)
    ids = encoder.encode("<|task|> put a mug in shelf.<|act|> go to shelf 1 take mug 1 look around")
    policy = OpenPolicy(folder, dtype="bfloat16")
    assert {parameter.dtype for parameter in policy.model().parameters()} == {torch.bfloat16}
    read, trains = (
        logprobs_of(model.eval(), ids, len(ids) - 1) for model in (policy.model(), policy.masters("float32").model)
    )
    np.testing.assert_array_equal(read, trains)
    plain = logprobs_of(models.load_model(hub_model, dtype="bfloat16").eval(), ids, len(ids) - 1)
    assert (read != plain).any()


def test_an_adapter_is_computed_in_the_policys_type_and_stepped_in_float32(hub_model, tmp_path):
    """Also when the model is in memory already, with what an earlier update rounded."""
    folder = adapted(hub_model, tmp_path / "adapter", 2e-4)
    policy, saved = OpenPolicy(folder, dtype="bfloat16"), load_file(folder / "adapter_model.safetensors")
    for _ in range(2):
        masters = policy.masters("float32")
        assert {parameter.dtype for parameter in masters.model.parameters()} == {torch.bfloat16}
        for name, master in masters.parameters.items():
            assert torch.equal(master, saved[name.replace(".default.", ".")])
            assert "lora_A" in name or not torch.equal(master, master.bfloat16().float())
        masters.release()


def test_float32_weights_take_an_adapter_whatever_the_type_of_the_base(hub_model, tmp_path):
    folder = adapted(hub_model, tmp_path / "adapter", 2e-4)
    ours, name = read_weights(folder), "model.layers.0.self_attn.q_proj.weight"
    theirs = models.load_model(folder, dtype="float32").state_dict()
    torch.testing.assert_close(ours[name], theirs[name])
    assert not torch.equal(ours[name], ours[name].bfloat16().float())


def sampled(engine, encoder):
    """A prompt, eight responses to it, and a second turn of each."""
    rng = np.random.default_rng(0)
    prompts = [encoder.encode("<|task|> put a mug in shelf.<|act|>"), encoder.encode("<|obs|> You see a mug 1.<|act|>")]
    turns = [
        engine.sample([Request(slot, prompt, not turn, rng.random(16)) for slot in range(8)], 1.0, 16)
        for turn, prompt in enumerate(prompts)
    ]
    return prompts, turns


def test_an_adapter_beside_the_weights_samples_what_a_merged_one_does(hub_model, tmp_path):
    """In float32, where both can be had."""
    folder, encoder = adapted(hub_model, tmp_path / "adapter", 0.1), tokenizer.load(hub_model)
    merged, beside = (Lockstep(str(folder), slots=8, dtype="float32", eos_id=encoder.eos_id) for _ in range(2))
    beside._model._load(read_weights(hub_model), read_adapter(folder), len(beside._model.layers))
    _, expected = sampled(merged, encoder)
    _, found = sampled(beside, encoder)
    for one, two in zip(
        (one for turn in found for one in turn), (one for turn in expected for one in turn), strict=True
    ):
        assert one.ids == two.ids
        np.testing.assert_allclose(one.logprobs, two.logprobs, atol=1e-4)


@pytest.mark.parametrize("engine", ["lockstep", "transformers"])
def test_what_an_engine_records_in_bfloat16_is_what_training_computes(hub_model, tmp_path, engine):
    folder, encoder = adapted(hub_model, tmp_path / "adapter", 0.05), tokenizer.load(hub_model)
    (prompt, _), (responses, _) = sampled(
        sampler(engine, str(folder), slots=8, dtype="bfloat16", eos_id=encoder.eos_id), encoder
    )
    model = models.load_model(folder, dtype="bfloat16", trainable=True).eval()
    error = np.concatenate(
        [logprobs_of(model, prompt + one.ids, len(one.ids)) - np.array(one.logprobs) for one in responses]
    )
    assert np.abs(error).mean() < 0.02


def with_key_biases(folder, size):
    """A model whose scores have a large common part, as those of Qwen2.5 have from the biases of its keys.

    The biases are on the pairs that hardly rotate, so that this part is about the same at all positions: about
    32 size^2 / sqrt(128).
    """
    config = Qwen2Config(
        vocab_size=2000,
        hidden_size=256,
        intermediate_size=700,
        num_hidden_layers=4,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=128,
        max_position_embeddings=512,
        initializer_range=0.08,
        tie_word_embeddings=True,
    )
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(config)
    slow = (torch.arange(128) % 64 >= 48).float()
    for layer in model.model.layers:
        bias = size * torch.randn(2, 128) * slow
        layer.self_attn.k_proj.bias.data = bias.flatten()
        layer.self_attn.q_proj.bias.data = bias.repeat_interleave(2, 0).flatten()
    model.bfloat16().save_pretrained(folder)
    return folder


def test_lockstep_does_not_round_large_attention_scores(tmp_path):
    """Rounded to bfloat16 they made log-probabilities .23 wrong in the mean; bfloat16 itself .12 with these biases."""
    folder = with_key_biases(tmp_path / "biased", 6)
    rng = np.random.default_rng(0)
    requests = [Request(slot, rng.integers(2, 2000, 200).tolist(), True, rng.random(32)) for slot in range(8)]
    responses = Lockstep(str(folder), slots=8, dtype="bfloat16", eos_id=1).sample(requests, 1.0, 32)
    exact, trained = (
        np.concatenate(
            [
                logprobs_of(model, request.ids + one.ids, len(one.ids))
                for request, one in zip(requests, responses, strict=True)
            ]
        )
        for model in (models.load_model(folder, dtype=dtype).eval() for dtype in ("float32", "bfloat16"))
    )
    ours = np.concatenate([one.logprobs for one in responses])
    assert np.abs(ours - exact).mean() < 1.2 * np.abs(trained - exact).mean()


def test_a_policy_that_was_trained_in_memory_samples_as_the_saved_one(world, credits, hub_model, tmp_path):
    """With the jobs of a round in one process: the adapter's engine, and the copies of whole weights."""
    for start in (hub_model, adapted(hub_model, tmp_path / "adapter", 0.01)):
        job = world.job(
            "update",
            JobKeys(method="flat_grpo", seed=0, round=1),
            tmp_path / start.name,
            {"update": {"minibatch": 16, "lr": 1e-3, "optimizer": "adamw"}, "policy": {"dtype": "bfloat16"}},
            **{"policy": start, "turns": world.path("turns"), "credits": credits},
        )
        job.store = Store(keep=True)
        stage("update").run(job)
        kept = job.store.policy(job.output["policy"], dtype="bfloat16")
        assert kept._models
        read = OpenPolicy(job.output["policy"], dtype="bfloat16")
        encoder = tokenizer.load(hub_model)
        assert sampled(kept.sampler(8), encoder) == sampled(read.sampler(8), encoder)
        again = read.masters("float32").parameters
        for name, master in kept.masters("float32").parameters.items():
            assert master.dtype == torch.float32
            assert torch.equal(master, again[name])


# ------------------------------------------------------------------ engines that disagree with training


@pytest.fixture(scope="module")
def doubted(world, tmp_path_factory):
    """The world's turns, from an engine that gave every token 1 / 1.5 of the probability that it has in training."""
    table = tables.read(world.path("turns"), "turns")
    at = table.schema.get_field_index("response_logprobs")
    shifted = [[one - np.log(1.5) for one in turn] for turn in table.column(at).to_pylist()]
    table = table.set_column(at, table.schema.field(at), pa.array(shifted, table.schema.field(at).type))
    path = tmp_path_factory.mktemp("doubted") / "turns.parquet"
    tables.write(table, path, "turns", provenance.record("test"))
    return path


@pytest.fixture(scope="module")
def cool(world, tmp_path_factory):
    """The world's turns as if they had been sampled at temperature 0.5, and the mean entropy of their tokens then."""
    table = tables.read(world.path("turns"), "turns")
    model = models.load_model(world.path("sft_policy"), dtype="float32").eval()
    rollouts: dict[str, list[dict]] = {}
    for row in table.select(["rollout_id", "prompt_ids", "response_ids"]).to_pylist():
        rollouts.setdefault(row["rollout_id"], []).append(row)
    logprobs, entropies = [], []
    for turns in rollouts.values():
        ids = torch.tensor([token for row in turns for token in row["prompt_ids"] + row["response_ids"]])
        with torch.no_grad():
            exact = (model(ids[None]).logits[0, :-1] / 0.5).log_softmax(-1)
        said, entropy, end = exact.gather(1, ids[1:, None])[:, 0], -(exact.exp() * exact).sum(-1), -1
        for row in turns:
            end += len(row["prompt_ids"]) + len(row["response_ids"])
            logprobs.append(said[end - len(row["response_ids"]) : end].tolist())
            entropies += entropy[end - len(row["response_ids"]) : end].tolist()
    for name, values in {"response_logprobs": logprobs, "temperature": [0.5] * len(logprobs)}.items():
        at = table.schema.get_field_index(name)
        table = table.set_column(at, table.schema.field(at), pa.array(values, table.schema.field(at).type))
    path = tmp_path_factory.mktemp("cool") / "turns.parquet"
    tables.write(table, path, "turns", provenance.record("test"))
    return path, np.mean(entropies)


def first_step(world, credits, folder, turns, **update):
    """The log row of the only step of an update, and the job's metrics."""
    changes = {"update": {"minibatch": 16, "epochs": 1, "lr": RATE, "optimizer": "adamw", **update}}
    inputs = {"policy": world.path("sft_policy"), "turns": turns, "credits": credits}
    ran = world.run("update", JobKeys(method="flat_grpo", seed=0, round=1), folder, changes, **inputs)
    (row,) = tables.read(ran.output["updates"], "updates").to_pylist()
    return row, ran.metrics


def test_the_distance_between_engine_and_training_is_measured_in_every_round(world, credits, doubted, tmp_path):
    for old in ("sampled", "recomputed"):
        _, agreeing = first_step(world, credits, tmp_path / old, world.path("turns"), old_logprobs=old)
        assert agreeing["first_log_ratio"] < agreeing["first_log_ratio_max"] < 1e-4
        _, apart = first_step(world, credits, tmp_path / old, doubted, old_logprobs=old)
        assert apart["first_log_ratio"] == pytest.approx(np.log(1.5), abs=1e-4)
        assert apart["first_log_ratio_max"] == pytest.approx(np.log(1.5), abs=1e-4)
        warning = stage("update").warning
        assert warning(agreeing) is None
        # With what training computes as the denominator, what the engine recorded is no part of the ratio.
        expected = "before the first step, log-probabilities differ from the sampling engine's by 0.405"
        assert str(warning(apart)).startswith(expected if old == "sampled" else "None")


def test_recomputed_log_probabilities_start_a_round_at_ratio_one_whatever_the_engine_recorded(
    world, credits, doubted, tmp_path
):
    right, _ = first_step(world, credits, tmp_path / "right", world.path("turns"))
    wrong, _ = first_step(world, credits, tmp_path / "wrong", doubted)
    assert wrong["ratio_max"] == pytest.approx(1.5, abs=1e-3)
    mended, _ = first_step(world, credits, tmp_path / "mended", doubted, old_logprobs="recomputed")
    assert mended["ratio_max"] == pytest.approx(1.0, abs=1e-5)
    assert mended["grad_norm"] == pytest.approx(right["grad_norm"], rel=1e-4)
    assert (wrong["clip_fraction"], mended["clip_fraction"]) == (1.0, 0.0)


@pytest.mark.parametrize("old", ["sampled", "recomputed"])
def test_policy_denominator_and_reference_are_all_at_the_temperature_of_the_sampling(
    world, credits, cool, tmp_path, old
):
    turns, entropy = cool
    row, metrics = first_step(
        world, credits, tmp_path, turns, old_logprobs=old, kl="k3", kl_coefficient=0.1, skip_dead_groups=False
    )
    assert row["ratio_max"] == pytest.approx(1.0, abs=1e-4)
    assert metrics["first_log_ratio_max"] < 1e-4
    assert row["kl"] == pytest.approx(0.0, abs=1e-8)
    assert row["entropy"] == pytest.approx(entropy, rel=1e-4)


@pytest.mark.parametrize(("cap", "weight"), [(1.2, 1.2), (2.0, 1.5)])
def test_truncated_importance_sampling_weighs_tokens_by_training_over_engine_up_to_the_cap(
    world, credits, doubted, tmp_path, cap, weight
):
    asked = {"old_logprobs": "recomputed"}
    plain, _ = first_step(world, credits, tmp_path / "plain", doubted, **asked)
    weighed, _ = first_step(world, credits, tmp_path / "weighed", doubted, **asked, importance_cap=cap)
    assert weighed["grad_norm"] == pytest.approx(weight * plain["grad_norm"], rel=1e-4)
    assert weighed["loss"] == pytest.approx(weight * plain["loss"], rel=1e-3)


def test_an_importance_cap_without_recomputed_log_probabilities_is_refused():
    with pytest.raises(UserError, match="set old_logprobs to recomputed"):
        tiny.experiment(update={"importance_cap": 2.0})
