"""Causal attention on a CPU in blocks of queries, each of which reads only the keys it can attend to.

PyTorch's own CPU kernel computes about twice what a causal mask leaves, in products too small for a core: at
the sizes of a small policy (sequences of 300 to 400 tokens, heads of 32) blocks of 32 queries take two thirds of its
time, forward and backward. Registered with transformers as the attention implementation `NAME`.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedConfig
from transformers.integrations.sdpa_attention import sdpa_attention_forward

NAME = "turncredit_blocks"
QUERIES = 32
#: Bytes of attention weights that may be kept for the gradient; above that, PyTorch's kernel is used, which keeps none.
KEPT = 64 * 2**20


class _Causal(torch.autograd.Function):
    """Queries (M, G, L, D), keys and values (M, L, D): the G heads that share a key are adjacent."""

    @staticmethod
    def forward(ctx: Any, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
        out = torch.empty_like(query)
        kept = []
        for first, last in _blocks(query.shape[2]):
            rows = _rows(query, first, last)
            scores = torch.bmm(rows * scale, key[:, :last].transpose(1, 2))
            late = torch.ones(last - first, last - first, dtype=torch.bool, device=scores.device).triu_(1)
            scores.view(*query.shape[:2], last - first, last)[..., first:].masked_fill_(late, float("-inf"))
            weights = scores.softmax(-1)
            kept.append(weights)
            out[:, :, first:last] = torch.bmm(weights, value[:, :last]).view(*query.shape[:2], last - first, -1)
        ctx.save_for_backward(query, key, value, out, *kept)
        ctx.scale = scale
        return out

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        query, key, value, out, *kept = ctx.saved_tensors
        for_query, for_key, for_value = torch.empty_like(query), torch.zeros_like(key), torch.zeros_like(value)
        shared = (gradient * out).sum(-1, keepdim=True)  # of the softmax's gradient, the same for all of a row
        for weights, (first, last) in zip(kept, _blocks(query.shape[2]), strict=True):
            rows = _rows(gradient, first, last)
            for_value[:, :last].baddbmm_(weights.transpose(1, 2), rows)
            scores = torch.bmm(rows, value[:, :last].transpose(1, 2))
            scores.sub_(_rows(shared, first, last)).mul_(weights)
            block = torch.bmm(scores, key[:, :last]).mul_(ctx.scale)
            for_query[:, :, first:last] = block.view(*query.shape[:2], last - first, -1)
            for_key[:, :last].baddbmm_(scores.transpose(1, 2), _rows(query, first, last), alpha=ctx.scale)
        return for_query, for_key, for_value, None


def _blocks(length: int) -> Iterator[tuple[int, int]]:
    for first in range(0, length, QUERIES):
        yield first, min(first + QUERIES, length)


def _rows(x: torch.Tensor, first: int, last: int) -> torch.Tensor:
    """The positions of one block of (M, G, L, D), head after head: (M, G * n, D)."""
    return x[:, :, first:last].reshape(len(x), -1, x.shape[-1])


def causal_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float) -> torch.Tensor:
    """Attention (B, H, L, D) of queries (B, H, L, D) to the keys and values (B, K, L, D) up to their own position.

    Grouped-query attention where K divides H: consecutive query heads share a key.
    """
    batch, heads, length, size = query.shape
    groups = batch * key.shape[1]
    mixed = _Causal.apply(
        query.reshape(groups, -1, length, size),
        key.reshape(groups, length, size),
        value.reshape(groups, length, size),
        scale,
    )
    return mixed.view(batch, heads, length, size)


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    dropout: float = 0.0,
    scaling: float | None = None,
    **settings: Any,
) -> tuple[torch.Tensor, None]:
    """The function that transformers calls: returns attention (B, L, H, D), and no weights."""
    plain = attention_mask is None and dropout == 0 and query.shape[2] == key.shape[2]
    kept = query.shape[0] * query.shape[1] * query.shape[2] ** 2 // 2 * query.element_size()
    if plain and scaling is not None and query.dtype == torch.float32 and query.device.type == "cpu" and kept <= KEPT:
        return causal_attention(query, key, value, scaling).transpose(1, 2), None
    return sdpa_attention_forward(
        module, query, key, value, attention_mask, dropout=dropout, scaling=scaling, **settings
    )


AttentionInterface.register(NAME, _attend)


@contextmanager
def in_blocks(config: PreTrainedConfig) -> Iterator[None]:
    """Inside, a model of this configuration attends in blocks, if it would otherwise use PyTorch's attention."""
    before = config._attn_implementation
    if before == "sdpa":
        config._attn_implementation = NAME
    try:
        yield
    finally:
        config._attn_implementation = before
