"""The lockstep engine on Llama's architecture: what transformers computes, and a refusal where it would differ."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from turncredit.config import LoraConfig
from turncredit.errors import UserError
from turncredit.policy import models, shapes, tokenizer
from turncredit.policy.engines import lockstep as engine_module
from turncredit.policy.engines.lockstep import Lockstep
from turncredit.policy.engines.ragged import frequencies
from turncredit.policy.engines.transformers import Generate
from turncredit.policy.sampling import Request, device
from turncredit.policy.weights import read_config

#: Llama 3.1's scaling, with an original context so short that all three kinds of frequencies occur.
SCALED = {
    "rope_type": "llama3",
    "rope_theta": 500.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}


def checkpoint(world, folder, **changes):
    """A tiny Llama with random weights and grouped-query attention, and the test experiment's tokenizer."""
    source = world.path("sft_policy")
    shutil.copytree(source, folder)
    (folder / "model.safetensors").unlink()
    encoder = tokenizer.load(source)
    settings = {
        "vocab_size": json.loads((source / "config.json").read_text())["vocab_size"],
        "hidden_size": 32,
        "intermediate_size": 48,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 256,
        "initializer_range": 0.3,
        "eos_token_id": encoder.eos_id,
        "tie_word_embeddings": False,
    }
    torch.manual_seed(0)
    LlamaForCausalLM(LlamaConfig(**{**settings, **changes})).save_pretrained(folder)
    return folder, encoder


def played(engine, encoder, turns=3, max_new=8):
    """Two rollouts of `turns` turns: every response's tokens and log-probabilities."""
    rngs = [np.random.default_rng(slot) for slot in range(2)]
    said = []
    for turn in range(turns):
        texts = (
            ["<|task|> put a mug in shelf.<|act|>", "<|task|> look.<|act|>"]
            if turn == 0
            else ["<|obs|> Nothing happens.<|act|>", "<|obs|> You see a mug 1.<|act|>"]
        )
        draws = [rng.random(max_new) for rng in rngs]
        requests = [Request(slot, encoder.encode(text), turn == 0, draws[slot]) for slot, text in enumerate(texts)]
        said += [(response.ids, response.logprobs) for response in engine.sample(requests, 1.0, max_new)]
    return said


def assert_same(one, two):
    assert [ids for ids, _ in one] == [ids for ids, _ in two]
    assert sum(len(ids) for ids, _ in one) > 12
    np.testing.assert_allclose(
        np.concatenate([logprobs for _, logprobs in one]), np.concatenate([logprobs for _, logprobs in two]), atol=1e-4
    )


@pytest.mark.parametrize("changes", [{}, {"rope_parameters": SCALED}, {"head_dim": 16}], ids=["plain", "3.1", "heads"])
def test_a_llama_samples_in_lockstep_what_transformers_samples(world, tmp_path, changes):
    folder, encoder = checkpoint(world, tmp_path / "llama", **changes)
    settings = {"slots": 2, "dtype": "float32", "eos_id": encoder.eos_id}
    assert_same(played(Lockstep(str(folder), **settings), encoder), played(Generate(str(folder), **settings), encoder))


def test_a_llama_of_before_grouped_queries_has_as_many_key_value_heads_as_heads(world, tmp_path):
    folder, encoder = checkpoint(world, tmp_path / "llama", num_key_value_heads=4)
    described = json.loads((folder / "config.json").read_text())
    del described["num_key_value_heads"]
    (folder / "config.json").write_text(json.dumps(described))
    settings = {"slots": 2, "dtype": "float32", "eos_id": encoder.eos_id}
    assert_same(played(Lockstep(str(folder), **settings), encoder), played(Generate(str(folder), **settings), encoder))


def test_an_adapted_llama_samples_the_same_merged_and_as_trained(world, tmp_path):
    folder, encoder = checkpoint(world, tmp_path / "llama")
    model = models.add_lora(models.load_model(folder, dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter, std=0.2)
    models.save_model(model, tmp_path / "adapter", base=folder, final=tmp_path / "adapter")
    settings = {"slots": 2, "dtype": "float32", "eos_id": encoder.eos_id}
    trained = Generate(str(tmp_path / "adapter"), **settings, model=model.eval())
    assert_same(played(Lockstep(str(tmp_path / "adapter"), **settings), encoder), played(trained, encoder))


def test_scaled_frequencies_are_those_of_llama_3_1_in_transformers():
    """As `transformers.modeling_rope_utils` computes them, at the released model's settings."""
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    rope = {**SCALED, "rope_theta": 500000.0, "original_max_position_embeddings": 8192}
    config = LlamaConfig(hidden_size=4096, num_attention_heads=32, max_position_embeddings=131072, rope_parameters=rope)
    expected, _ = ROPE_INIT_FUNCTIONS["llama3"](config, torch.device("cpu"))
    found = frequencies({"rope_parameters": rope}, 128, "model")
    torch.testing.assert_close(found, expected)
    older = {"rope_theta": 500000.0, "rope_scaling": {key: rope[key] for key in rope if key != "rope_theta"}}
    torch.testing.assert_close(frequencies(older, 128, "model"), expected)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"attention_bias": True}, "biases of their own"),
        ({"mlp_bias": True}, "biases in their feed-forward"),
        ({"hidden_act": "gelu"}, "the activation gelu"),
        ({"rope_parameters": {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}}, "the rotary scaling 'linear'"),
    ],
)
def test_what_lockstep_does_not_compute_is_refused_in_one_line(world, tmp_path, changes, said):
    folder, encoder = checkpoint(world, tmp_path / "llama", **changes)
    with pytest.raises(UserError, match=said) as refused:
        Lockstep(str(folder), slots=1, dtype="float32", eos_id=encoder.eos_id)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("small", "least"), [(False, (1.0, 0.4)), (True, (0.3, 0.3))], ids=["one block", "limits that bind"]
)
def test_the_engines_buffers_are_those_that_plans_count(world, tmp_path, monkeypatch, small, least):
    """`Shapes.lockstep` bounds the block's copy of caches and attention's scores, closely where limits do not bind."""
    where = device().type
    if small:
        monkeypatch.setitem(shapes.BLOCK_BYTES, where, 1)
        monkeypatch.setattr(shapes, "BLOCK_TURNS", 2)
        monkeypatch.setattr(engine_module, "BLOCK_TURNS", 2)
        monkeypatch.setitem(shapes.PASS_SCORES, where, 2**10)
    folder, encoder = checkpoint(world, tmp_path / "model")
    engine = Lockstep(str(folder), slots=8, dtype="float32", eos_id=encoder.eos_id)
    made = {"scores": 0, "keys": 0}
    scores, buffers = engine._model.scores, engine._model.buffers

    def seen_scores(query, keys):
        made["scores"] = max(made["scores"], len(query) * query.shape[1] * keys.shape[-1])
        return scores(query, keys)

    def seen_buffers(positions):
        made["keys"] = max(made["keys"], positions * engine._model.position_bytes)
        return buffers(positions)

    monkeypatch.setattr(engine._model, "scores", seen_scores)
    monkeypatch.setattr(engine._model, "buffers", seen_buffers)
    ids = encoder.encode(" ".join(["put a mug in shelf."] * 3))
    requests = [Request(slot, ids[slot:], True, np.full(4, 0.3)) for slot in range(8)]
    engine.sample(requests, 1.0, 4)
    model = shapes.shapes_of(read_config(str(folder)), "the folder")
    counted = model.lockstep(8, len(ids) + 4, "float32", where)
    filled = made["keys"] / counted["block's cache"], 8 * made["scores"] / counted["attention"]
    assert least[0] <= filled[0] <= 1
    assert least[1] <= filled[1] <= 1
