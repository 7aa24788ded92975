"""States at chosen positions are those of the whole model, and so are their gradients."""

from __future__ import annotations

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from turncredit.config import LoraConfig
from turncredit.policy.models import add_lora
from turncredit.policy.states import states_at
from turncredit.training.sequences import token_distributions

SIZES = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "initializer_range": 0.3,
}


@pytest.fixture
def model() -> Qwen2ForCausalLM:
    torch.manual_seed(0)
    return Qwen2ForCausalLM(Qwen2Config(**SIZES)).train()


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    """Ids (4, 17), and wanted positions: many, few, one, none."""
    torch.manual_seed(1)
    ids, wanted = torch.randint(50, (4, 17)), torch.zeros(4, 17, dtype=torch.bool)
    wanted[0, 2:15:2], wanted[1, [3, 16]], wanted[2, 0] = True, True, True
    return ids, wanted


def whole(model: torch.nn.Module, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    return model.get_decoder()(input_ids=ids, use_cache=False).last_hidden_state[wanted]


def gradients(model: torch.nn.Module, states: torch.Tensor) -> list[torch.Tensor]:
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    weights = torch.linspace(-1, 1, states.numel()).view(states.shape)
    return torch.autograd.grad((states * weights).sum(), parameters, allow_unused=True)


def agree(one: list, two: list) -> bool:
    """Whether gradients are the same to one part in ten thousand of their length."""
    return all(
        (a is None) == (b is None) and (a is None or (a - b).norm() <= 1e-4 * b.norm() + 1e-6)
        for a, b in zip(one, two, strict=True)
    )


@pytest.mark.parametrize("layers", [1, 3])
def test_states_and_gradients_are_those_of_the_whole_model(layers, batch):
    torch.manual_seed(0)
    model = Qwen2ForCausalLM(Qwen2Config(**SIZES | {"num_hidden_layers": layers})).train()
    expected, found = whole(model, *batch), states_at(model, *batch)
    assert torch.allclose(found, expected, atol=1e-5)
    assert agree(gradients(model, found), gradients(model, expected))


def test_the_last_layer_answers_only_the_wanted_positions(model, batch):
    seen = []
    hook = model.model.layers[-1].mlp.register_forward_hook(lambda _module, inputs, _output: seen.append(inputs[0]))
    states_at(model, *batch)
    hook.remove()
    assert seen[0].shape == (int(batch[1].sum()), 32)


def test_adapters_and_gradient_checkpointing_change_nothing(model, batch):
    adapted = add_lora(model, LoraConfig(rank=2, alpha=4, dropout=0.0, targets=("q_proj", "v_proj", "up_proj")), 0)
    for parameter in adapted.parameters():
        if parameter.requires_grad:
            torch.nn.init.normal_(parameter, std=0.3)
    expected = gradients(adapted, whole(adapted.get_base_model(), *batch))
    assert agree(gradients(adapted, states_at(adapted, *batch)), expected)
    model.activation_checkpointing_enable({"use_reentrant": False})
    adapted.enable_input_require_grads()
    assert agree(gradients(adapted, states_at(adapted, *batch)), expected)


def test_other_models_are_read_whole(batch):
    torch.manual_seed(0)
    llama = LlamaForCausalLM(LlamaConfig(**SIZES))
    assert torch.equal(states_at(llama, *batch), whole(llama, *batch))


def test_models_that_look_back_only_so_far_are_read_whole(batch):
    torch.manual_seed(0)
    config = Qwen2Config(**SIZES, use_sliding_window=True, sliding_window=4, max_window_layers=1)
    model = Qwen2ForCausalLM(config)
    assert torch.equal(states_at(model, *batch), whole(model, *batch))


def test_nothing_wanted_gives_nothing(model, batch):
    assert states_at(model, batch[0], torch.zeros_like(batch[1])).shape == (0, 32)


def test_the_entropys_gradient_is_that_of_its_definition_and_its_value_alone_has_none(model, batch):
    ids, learned = batch
    entropy = token_distributions(model, ids, learned, 0.7, entropy="gradient")[1]
    in_parts = token_distributions(model, ids, learned, 0.7, entropy="gradient", at_once=150)[1]
    logprobs = torch.log_softmax(model(ids).logits[:, :-1] / 0.7, -1)[learned[:, 1:]]
    exact = -(logprobs.exp() * logprobs).sum(-1)
    assert torch.allclose(entropy, exact, atol=1e-5)
    expected = gradients(model, exact)
    assert agree(gradients(model, entropy), expected)
    assert agree(gradients(model, in_parts), expected)
    assert not token_distributions(model, ids, learned, 0.7, entropy="value")[1].requires_grad


def test_log_probabilities_in_parts_are_those_at_once(model, batch):
    ids, learned = batch
    at_once = token_distributions(model, ids, learned, 0.7, entropy="value")
    in_parts = token_distributions(model, ids, learned, 0.7, entropy="value", at_once=150)
    for one, two in zip(at_once, in_parts, strict=True):
        assert torch.allclose(one, two, atol=1e-6)
    assert agree(gradients(model, at_once[0]), gradients(model, in_parts[0]))
    logits = model(ids).logits[:, :-1] / 0.7
    exact = torch.log_softmax(logits, -1).gather(2, ids[:, 1:, None])[..., 0][learned[:, 1:]]
    assert torch.allclose(at_once[0], exact, atol=1e-5)
