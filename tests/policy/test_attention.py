"""Attention in blocks is PyTorch's attention, and so are its gradients."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from transformers import Qwen2Config, Qwen2ForCausalLM

from turncredit.policy import attention
from turncredit.policy.attention import QUERIES, causal_attention, in_blocks


@pytest.mark.parametrize("length", [1, QUERIES - 1, QUERIES, 2 * QUERIES + 5])
@pytest.mark.parametrize(("heads", "kv_heads"), [(4, 4), (4, 2), (3, 1)])
def test_values_and_gradients_are_pytorchs(length, heads, kv_heads):
    rng = torch.Generator().manual_seed(0)
    query = torch.randn(3, heads, length, 8, generator=rng, requires_grad=True)
    key, value = (torch.randn(3, kv_heads, length, 8, generator=rng, requires_grad=True) for _ in range(2))
    weights = torch.randn(3, heads, length, 8, generator=rng)
    expected = F.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True, scale=0.3)
    found = causal_attention(query, key, value, 0.3)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    wanted = torch.autograd.grad((expected * weights).sum(), (query, key, value))
    given = torch.autograd.grad((found * weights).sum(), (query, key, value))
    torch.testing.assert_close(given, wanted, atol=1e-4, rtol=1e-4)


def test_a_model_attends_in_blocks_only_inside(monkeypatch):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 16, "num_attention_heads": 2, "num_key_value_heads": 1}
    model = Qwen2ForCausalLM(Qwen2Config(vocab_size=20, num_hidden_layers=2, **sizes))
    ids = torch.randint(20, (2, 40))
    calls = []
    plain = attention.causal_attention
    monkeypatch.setattr(attention, "causal_attention", lambda *given: calls.append(1) or plain(*given))
    expected = model(ids).logits
    assert not calls
    with in_blocks(model.config):
        found = model(ids).logits
    assert len(calls) == 2
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)
    assert torch.equal(model(ids).logits, expected)
    assert len(calls) == 2


def test_what_would_keep_too_much_takes_pytorchs_kernel(monkeypatch):
    torch.manual_seed(0)
    query = torch.randn(1, 2, 40, 8)
    monkeypatch.setattr(attention, "KEPT", 1)
    monkeypatch.setattr(attention, "causal_attention", lambda *_: pytest.fail("in blocks"))
    module = torch.nn.Module()
    module.is_causal, module.num_key_value_groups = True, 1
    found, _ = attention._attend(module, query, query, query, None, scaling=0.3)
    expected = F.scaled_dot_product_attention(query, query, query, is_causal=True, scale=0.3)
    torch.testing.assert_close(found.transpose(1, 2), expected)
