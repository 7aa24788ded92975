"""Policies of the architectures of published models: what training computes, changes and saves.

The other tests' policies are Qwen2's. Qwen3 has no biases, a norm for each head, and heads whose size is not the hidden
size divided by their number; Llama has none of the three.
"""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.training.test_update import run
from turncredit.config import LoraConfig
from turncredit.policy import models, tokenizer
from turncredit.policy.engines.transformers import Generate
from turncredit.policy.sampling import Request
from turncredit.training.sequences import token_distributions, token_logprobs

#: hidden_size / num_attention_heads is 8
HEAD_DIM = {"qwen3": 16, "llama": 8}


@pytest.fixture(params=sorted(HEAD_DIM))
def policy(request, world, tmp_path):
    """A tiny model with random weights, and the test experiment's tokenizer."""
    source, folder = world.path("sft_policy"), tmp_path / request.param
    shutil.copytree(source, folder)
    for name in ("model.safetensors", "provenance.json"):
        (folder / name).unlink()
    config = AutoConfig.for_model(
        request.param,
        vocab_size=json.loads((source / "config.json").read_text())["vocab_size"],
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=HEAD_DIM[request.param],
        max_position_embeddings=2048,
        initializer_range=0.3,
        eos_token_id=tokenizer.load(source).eos_id,
        tie_word_embeddings=False,
    )
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    return folder


def batch():
    """Ids (3, 40), and learned tokens: many, few, none."""
    ids = torch.from_numpy(np.random.default_rng(0).integers(5, 60, (3, 40)))
    learned = torch.zeros(3, 40, dtype=torch.bool)
    learned[0, 3:38:2], learned[1, [1, 39]] = True, True
    return ids, learned


def computed(model):
    with torch.no_grad():
        return token_logprobs(model.eval(), *batch())


def test_log_probabilities_are_those_of_the_librarys_logits(policy):
    ids, learned = batch()
    model = models.load_model(policy, dtype="float32").eval()
    plain = AutoModelForCausalLM.from_pretrained(policy, dtype=torch.float32).eval()
    with torch.no_grad():
        every = torch.log_softmax(plain(ids).logits[:, :-1], -1).gather(2, ids[:, 1:, None])[..., 0]
    torch.testing.assert_close(computed(model), every[learned[:, 1:]], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize(
    ("kind", "settings"),
    [
        ("granite", {"logits_scaling": 8.0}),
        (
            "minicpm3",
            {"kv_lora_rank": 8, "q_lora_rank": 8, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8},
        ),
        ("hyperclovax", {"logits_scaling": 0.125}),
        ("cohere", {"logit_scale": 0.0625}),
        ("falcon_h1", {"lm_head_multiplier": 0.1, "mamba_d_ssm": 32, "mamba_n_heads": 4, "mamba_d_head": 8}),
        ("gemma2", {"final_logit_softcapping": 3.0, "head_dim": 8}),
        ("gemma3_text", {"final_logit_softcapping": 3.0, "head_dim": 8}),
        ("recurrent_gemma", {"logits_soft_cap": 3.0, "lru_width": 32, "block_types": ["attention"]}),
    ],
)
def test_logits_that_a_model_scales_or_caps_are_scaled_and_capped_in_training(kind, settings):
    config = AutoConfig.for_model(
        kind,
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=4,
        max_position_embeddings=64,
        initializer_range=0.5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        **settings,
    )
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config).eval()
    ids, learned = batch()
    with torch.no_grad():
        every = torch.log_softmax(model(ids).logits[:, :-1].float() / 0.7, -1).gather(2, ids[:, 1:, None])[..., 0]
        whole, in_parts = (token_distributions(model, ids, learned, 0.7, at_once=number)[0] for number in (10**9, 1))
    torch.testing.assert_close(whole, every[learned[:, 1:]], atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(in_parts, whole, atol=1e-4, rtol=1e-4)


def test_what_the_engine_records_is_what_training_computes(policy):
    encoder = tokenizer.load(policy)
    engine = Generate(str(policy), slots=2, dtype="float32", eos_id=encoder.eos_id)
    texts = ("<|task|> put a mug in shelf.<|act|>", "<|task|> look.<|act|>")
    prompts = [encoder.encode(text) for text in texts]
    draws = np.random.default_rng(0).random((2, 12))
    said = engine.sample([Request(slot, prompts[slot], True, draws[slot]) for slot in range(2)], 1.0, 12)
    model = models.load_model(policy, dtype="float32").eval()
    for prompt, response in zip(prompts, said, strict=True):
        ids = torch.tensor([[*prompt, *response.ids]])
        with torch.no_grad():
            again = token_logprobs(model, ids, torch.arange(ids.shape[1])[None] >= len(prompt))
        np.testing.assert_allclose(response.logprobs, again, atol=1e-4)


def test_an_update_changes_every_weight_and_keeps_the_architecture(policy, world, credits, tmp_path):
    before = models.load_model(policy, dtype="float32")
    made = run(world, credits, tmp_path / "made", policy=policy)
    after = models.load_model(made.policy, dtype="float32")
    names = dict(before.named_parameters())
    assert (sum("q_norm" in name or "k_norm" in name for name in names) == 4) == (policy.name == "qwen3")
    assert {name for name, value in after.named_parameters() if torch.equal(value, names[name])} == set()
    one, two = (json.loads((folder / "config.json").read_text()) for folder in (policy, made.policy))
    for key in ("model_type", "head_dim", "num_key_value_heads", "tie_word_embeddings"):
        assert one[key] == two[key], key


def test_a_saved_policy_computes_the_same_bits(policy, tmp_path):
    model = models.load_model(policy, dtype="float32")
    models.save_model(model, tmp_path / "saved", base=policy, final=tmp_path / "saved")
    assert torch.equal(computed(model), computed(models.load_model(tmp_path / "saved", dtype="float32")))


def test_an_update_of_adapters_is_saved_and_computes_the_same_merged(policy, world, credits, tmp_path):
    start = tmp_path / "start"
    adapted = models.add_lora(models.load_model(policy, dtype="float32"), LoraConfig(rank=4, alpha=8), 0)
    models.save_model(adapted, start, base=policy, final=start)
    made = run(world, credits, tmp_path / "made", settings={"lr": 1e-2}, policy=start)
    assert not (made.policy / "model.safetensors").exists()
    trained, merged = (models.load_model(made.policy, dtype="float32", trainable=beside) for beside in (True, False))
    torch.testing.assert_close(computed(trained), computed(merged), atol=1e-4, rtol=1e-4)
    assert (computed(merged) - computed(models.load_model(policy, dtype="float32"))).abs().max() > 1e-3
