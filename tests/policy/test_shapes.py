"""Sizes that are computed from a configuration are those of the model that transformers builds from it."""

from __future__ import annotations

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from turncredit.config import LoraConfig, ScratchConfig
from turncredit.errors import UserError
from turncredit.policy.masters import Masters
from turncredit.policy.models import add_lora, new_model
from turncredit.policy.shapes import BYTES, PUBLISHED, shapes_of

SMALL = {
    "vocab_size": 64,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "tie_word_embeddings": True,
}
KINDS = {"qwen2": {}, "llama": {}, "qwen3": {"head_dim": 32}}


def on_meta(settings):
    """The model of a configuration, without memory for its weights."""
    settings = dict(settings)
    config = AutoConfig.for_model(settings.pop("model_type"), **settings)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config)


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_released_model_has_as_many_parameters_as_computed(name):
    shapes, model = shapes_of(PUBLISHED[name], name), on_meta(PUBLISHED[name])
    assert shapes.parameters == sum(parameter.numel() for parameter in model.parameters())
    assert shapes.largest_matrix == max(parameter.numel() for parameter in model.parameters())
    billions = float(name.partition("-")[2].partition("B")[0])  # Qwen's names count like their model cards
    assert shapes.parameters / 1e9 == pytest.approx(billions, rel=0.09)


@pytest.mark.parametrize("kind", KINDS)
def test_parameters_and_adapters_of_every_known_architecture(kind):
    settings = {"model_type": kind, **SMALL, **KINDS[kind], "tie_word_embeddings": False}
    model, shapes = on_meta(settings), shapes_of(settings, kind)
    assert shapes.parameters == sum(parameter.numel() for parameter in model.parameters())
    lora = LoraConfig(rank=4)
    adapted = add_lora(model, lora, 0)
    trained = sum(parameter.numel() for parameter in adapted.parameters() if parameter.requires_grad)
    assert shapes.adapter(lora.rank, lora.targets) == trained


def test_a_model_from_scratch_has_the_weights_of_its_seed_in_the_configured_range():
    def embedding(**settings):
        model = new_model(ScratchConfig(layers=1, **settings), 500, pad_id=0, eos_id=1, bos_id=2)
        return model.get_input_embeddings().weight.detach()

    one, again, other, wide = (
        embedding(seed=seed, initializer_range=size) for seed, size in ((0, 0.1), (0, 0.1), (1, 0.1), (0, 0.4))
    )
    assert torch.equal(one, again)
    assert not torch.equal(one, other)
    assert [float(part[1:].std()) for part in (one, wide)] == pytest.approx([0.1, 0.4], rel=0.05)


def kept_for_gradients(model, ids):
    """Bytes of the tensors, weights excluded, that a forward pass keeps."""
    weights = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    kept = {}

    def note(tensor):
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            kept[storage.data_ptr()] = (storage.nbytes(), tensor)  # alive, so that no address is used twice
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        model.get_decoder()(input_ids=ids, use_cache=False)
    return sum(size for size, _ in kept.values())


@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("kind", KINDS)
def test_activations_are_what_a_forward_pass_keeps(kind, dtype):
    settings = {**SMALL, **KINDS[kind]}
    config = AutoConfig.for_model(kind, **settings)
    model = AutoModelForCausalLM.from_config(config).to(getattr(torch, dtype)).train()
    kept = kept_for_gradients(model, torch.zeros(2, 64, dtype=torch.long))
    computed = shapes_of({"model_type": kind, **settings}, kind).activations(128, dtype)
    assert computed == pytest.approx(kept, rel=0.12)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", BYTES)
@pytest.mark.parametrize("targets", [LoraConfig().targets, ("q_proj", "v_proj"), ("q_proj", "up_proj")])
def test_an_adapter_keeps_what_it_reads(targets, dtype, kind):
    settings = {**SMALL, **KINDS[kind]}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **settings)).to(getattr(torch, dtype)).train()
    adapted = add_lora(model, LoraConfig(rank=4, targets=targets), 0)
    Masters(adapted, dtype)  # the adapter computes in the type of the weights
    kept = kept_for_gradients(adapted.get_base_model(), torch.zeros(2, 64, dtype=torch.long))
    shapes = shapes_of({"model_type": kind, **settings}, kind)
    assert shapes.activations(128, dtype, adapted=targets) == pytest.approx(kept, rel=0.12)


def test_another_architecture_is_refused_in_one_line():
    with pytest.raises(UserError, match=r"^model: memory and disk cannot be estimated for the architecture 'gpt2'"):
        shapes_of({"model_type": "gpt2"}, "model")
