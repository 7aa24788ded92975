"""The model's last hidden states at chosen positions, computing no more than they need.

A transcript is mostly observations: the loss reads one position in six. The last layer's queries, its feed-forward
block and the final norm are needed at those positions alone; only its keys and values are needed everywhere. In a model
of two layers this saves nearly half of a training step, in one of 28 layers next to nothing, so the library's own
layers are used on a GPU.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import torch
import torch.nn.functional as F
from transformers.models.qwen2.modeling_qwen2 import rotate_half

from turncredit.policy.attention import in_blocks


def states_at(model: torch.nn.Module, ids: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
    """States (M, D) after the final norm at the M positions where `wanted` (B, L) is true, in row order.

    `ids` (B, L) are right-padded; a causal model needs no mask for that. Any causal language model of transformers;
    on a CPU, Qwen2's last layer is computed at the wanted positions only (the same numbers up to rounding).
    """
    body = (model.get_base_model() if hasattr(model, "get_base_model") else model).get_decoder()
    if ids.is_cuda or not _is_plain_qwen2(body) or not bool(wanted.any()):
        return body(input_ids=ids, use_cache=False).last_hidden_state[wanted]
    position = torch.arange(ids.shape[1], device=ids.device)[None]
    hidden = body.embed_tokens(ids)
    turning = body.rotary_emb(hidden, position)
    # Activations that are recomputed for the gradient are recomputed outside of this function, and must be the same.
    again = body.layers[0].gradient_checkpointing and body.training
    with nullcontext() if again else in_blocks(body.config):
        for layer in body.layers[:-1]:
            hidden = layer(
                hidden, attention_mask=None, position_ids=position, position_embeddings=turning, use_cache=False
            )
    return body.norm(_last_layer(body.layers[-1], hidden, turning, wanted))


def logits_of(head: torch.nn.Module, states: torch.Tensor, config: Any) -> torch.Tensor:
    """The model's logits (M, V), in float32, of states (M, D) after the final norm; `head` is its output embedding.

    Some models scale or cap what their head gives, and sample from that: Granite and MiniCPM3 (divided by the number),
    Cohere, Falcon-H1 and HyperCLOVA X (multiplied), Gemma 2 and 4, NanoChat and RecurrentGemma (capped).
    """
    text = config.get_text_config()
    logits = head(states).float()
    kind = text.model_type
    if kind.startswith("granite") or kind == "minicpm3":
        return logits / text.logits_scaling
    if kind == "hyperclovax":
        return logits * text.logits_scaling
    if kind.startswith("cohere"):
        return logits * text.logit_scale
    if kind == "falcon_h1":
        return logits * text.lm_head_multiplier
    cap = getattr(text, "logits_soft_cap" if kind == "recurrent_gemma" else "final_logit_softcapping", None)
    return logits if cap is None else cap * torch.tanh(logits / cap)


def _is_plain_qwen2(body: torch.nn.Module) -> bool:
    """Whether every layer attends to all earlier positions, as `_last_layer` does, and has its weights in memory."""
    if hasattr(body.layers[-1], "unshard"):  # FSDP2 brings them together when the layer is called
        return False
    return body.config.model_type == "qwen2" and set(body.config.layer_types) == {"full_attention"}


def _last_layer(
    layer: torch.nn.Module, hidden: torch.Tensor, turning: tuple[torch.Tensor, torch.Tensor], wanted: torch.Tensor
) -> torch.Tensor:
    """The output (M, D) of a Qwen2 layer on `hidden` (B, L, D) at the wanted positions.

    Queries are gathered row by row, Q of them at most; a row with fewer asks for some position again and drops it.
    """
    attention = layer.self_attn
    batch, length, _ = hidden.shape
    count = wanted.sum(1)
    most = int(count.max())
    at = torch.argsort(wanted.to(torch.int8), dim=1, descending=True, stable=True)[:, :most]  # (B, Q)
    asked = torch.arange(most, device=at.device) < count[:, None]
    normed = layer.input_layernorm(hidden)
    cos, sin = (part[0] for part in turning)  # (L, head_dim)

    def by_head(x: torch.Tensor) -> torch.Tensor:
        return x.view(*x.shape[:2], -1, attention.head_dim).transpose(1, 2)

    key = _turned(by_head(attention.k_proj(normed)), cos, sin)
    value = by_head(attention.v_proj(normed))
    rows = torch.arange(batch, device=at.device)[:, None]
    query = _turned(by_head(attention.q_proj(normed[rows, at])), cos[at][:, None], sin[at][:, None])
    sees = torch.arange(length, device=at.device) <= at[:, :, None]  # (B, Q, L)
    mixed = F.scaled_dot_product_attention(
        query,
        key,
        value,
        attn_mask=sees[:, None],
        dropout_p=attention.attention_dropout if attention.training else 0.0,
        scale=attention.scaling,
        enable_gqa=True,
    )
    mixed = mixed.transpose(1, 2).reshape(batch, most, -1)[asked]
    out = hidden[wanted] + attention.o_proj(mixed)
    return out + layer.mlp(layer.post_attention_layernorm(out))


def _turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotate queries or keys, each at its own positions; transformers' function takes both at the same positions."""
    return x * cos + rotate_half(x) * sin
