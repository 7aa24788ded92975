"""The sizes of a model, from its `config.json` alone: parameters, adapters, key-value cache, activations.

No weights are read and torch is not imported, because every start of the workflow asks for them. Counts of parameters
are those of the model that transformers builds (tests/policy/test_shapes.py compares them on the meta device).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from turncredit.config import ScratchConfig
from turncredit.errors import UserError

#: Bytes of a number.
BYTES = {"float32": 4, "bfloat16": 2}
#: Models made of the layers that `Shapes` describes.
KNOWN_TYPES = ("qwen2", "qwen3", "llama")

#: The lockstep engine's limits, by where it runs. It plays turns in blocks with at most so many bytes of keys and
#: values, which it copies together: on a CPU they should fit its cache, on a GPU its memory has to hold them twice.
BLOCK_BYTES = {"cpu": 16 * 2**20, "cuda": 8 * 2**30}
#: The fewest turns of a block: with less work per pass, the cost of launching operations shows.
BLOCK_TURNS = 32
#: Attention's padded tokens times positions in one reading pass: long prompts are read by a few turns at a time.
PASS_SCORES = {"cpu": 2**21, "cuda": 2**25}

#: A pass over less than this fraction (1 in N) of a block's contexts copies their caches together; above that,
#: attention over the idle ones is cheaper than the copies.
GATHER_BELOW = 2

#: Models that the lockstep engine reads. Llama is Qwen2 without biases in its projections.
LOCKSTEP_TYPES = ("qwen2", "llama")

_QWEN2: dict[str, Any] = {
    "model_type": "qwen2", "vocab_size": 151936, "tie_word_embeddings": True, "max_position_embeddings": 32768,
}  # fmt: skip
_QWEN3 = {**_QWEN2, "model_type": "qwen3", "max_position_embeddings": 40960, "head_dim": 128}
_SIZES = ("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads", "num_key_value_heads")


def _published(common: dict[str, Any], *sizes: int, **more: Any) -> dict[str, Any]:
    return {**common, **dict(zip(_SIZES, sizes, strict=True)), **more}


#: The published configurations of the presets' models, so that an experiment can be planned without a network.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-1.5B-Instruct": _published(_QWEN2, 1536, 8960, 28, 12, 2),
    "Qwen/Qwen2.5-3B-Instruct": _published(_QWEN2, 2048, 11008, 36, 16, 2),
    "Qwen/Qwen2.5-7B-Instruct": _published(
        _QWEN2, 3584, 18944, 28, 28, 4, vocab_size=152064, tie_word_embeddings=False
    ),
    "Qwen/Qwen3-1.7B": _published(_QWEN3, 2048, 6144, 28, 16, 8),
    "Qwen/Qwen3-8B": _published(_QWEN3, 4096, 12288, 36, 32, 8, tie_word_embeddings=False),
}


def lockstep_reads(config: Mapping[str, Any] | None) -> str:
    """What the lockstep engine does not support in a model; '' if there is nothing, or it is not known yet."""
    if config is None:
        return ""
    kind = config.get("model_type")
    odd = {
        f"models of the architecture '{kind}' (only {', '.join(LOCKSTEP_TYPES)})": kind not in LOCKSTEP_TYPES,
        "models with biases of their own (attention_bias)": kind == "llama" and config.get("attention_bias"),
        "models with biases in their feed-forward blocks (mlp_bias)": config.get("mlp_bias"),
        "models with sliding windows (use_sliding_window)": config.get("use_sliding_window"),
        f"models with the activation {config.get('hidden_act')}": config.get("hidden_act", "silu") != "silu",
    }
    return next((what for what, present in odd.items() if present), "")


@dataclass(frozen=True)
class Shapes:
    """A decoder with gated feed-forward blocks and grouped-query attention: Qwen2, Qwen3, Llama.

    vocab, hidden, mlp    sizes of the vocabulary, of the states and of the feed-forward blocks
    layers, heads, kv     numbers of layers, of query heads and of key-value heads, each of `dim` numbers
    tied                  whether the output layer is the embedding
    bias, head_norm       whether queries, keys and values have biases (Qwen2), or heads a norm (Qwen3)
    positions             tokens of the longest context
    """

    vocab: int
    hidden: int
    mlp: int
    layers: int
    heads: int
    kv: int
    dim: int
    tied: bool
    bias: bool
    head_norm: bool
    positions: int

    @property
    def projections(self) -> dict[str, tuple[int, int]]:
        """A layer's matrices by name: inputs and outputs."""
        hidden, query, key = self.hidden, self.heads * self.dim, self.kv * self.dim
        return {
            "q_proj": (hidden, query),
            "k_proj": (hidden, key),
            "v_proj": (hidden, key),
            "o_proj": (query, hidden),
            "gate_proj": (hidden, self.mlp),
            "up_proj": (hidden, self.mlp),
            "down_proj": (self.mlp, hidden),
        }

    @property
    def layer_parameters(self) -> int:
        """The number of parameters of a layer."""
        query, key = self.heads * self.dim, self.kv * self.dim
        layer = sum(inputs * outputs for inputs, outputs in self.projections.values()) + 2 * self.hidden
        return layer + (query + 2 * key) * self.bias + 2 * self.dim * self.head_norm

    @property
    def parameters(self) -> int:
        """The number of parameters."""
        return self.layers * self.layer_parameters + self.hidden + self.vocab * self.hidden * (1 if self.tied else 2)

    @property
    def largest_matrix(self) -> int:
        """The number of parameters of the largest matrix."""
        return max(self.vocab * self.hidden, self.hidden * self.mlp)

    def adapter(self, rank: int, targets: Sequence[str]) -> int:
        """The number of parameters of low-rank adapters of these projections in every layer."""
        sizes = self.projections
        return self.layers * sum(rank * sum(sizes[name]) for name in targets if name in sizes)

    def cache(self, tokens: int, dtype: str) -> int:
        """Bytes of the keys and values of so many tokens, in all layers."""
        return 2 * self.layers * self.kv * self.dim * tokens * BYTES[dtype]

    def lockstep(self, slots: int, longest: int, dtype: str, device: str) -> dict[str, int]:
        """Bytes that the lockstep engine takes on a `device` beside weights and caches of `slots` contexts, by part.

        A block's copy of its caches, and attention's scores (with their softmax, in float32 and as `dtype`) of one
        reading pass, if contexts have `longest` tokens. A pass over half of a block's contexts computes those of all;
        a long context is read alone.
        """
        block = max(BLOCK_BYTES[device], self.cache(BLOCK_TURNS * longest, dtype))
        scores = min(slots * longest**2, max(GATHER_BELOW * PASS_SCORES[device], longest**2))
        number = 4 + 4 + (BYTES[dtype] if dtype != "float32" else 0)
        return {
            "block's cache": min(block, self.cache(slots * longest, dtype)),
            "attention": self.heads * scores * number,
        }

    def activations(self, tokens: int, dtype: str, *, recomputed: bool = False, adapted: Sequence[str] = ()) -> int:
        """Bytes that a forward pass over `tokens` padded tokens keeps for the gradient, the output layer excluded.

        As saved tensors of transformers' layers with fused attention show it: a layer keeps its input and the states of
        its two norms (in bfloat16 more of them in float32), queries, keys, values, attention's output and its copy,
        four states of the feed-forward block, and what norms of heads read. `recomputed`: gradient checkpointing, which
        keeps the layers' inputs and one layer's activations. `adapted`: the projections that alone are trained, by
        adapters: frozen norms keep nothing, and the feed-forward block only what an adapter reads.
        """
        size = BYTES[dtype]
        query, key = self.heads * self.dim, self.kv * self.dim
        layer = size * (5 * self.hidden + 3 * query + 2 * key + 4 * self.mlp)
        if self.head_norm:
            layer += (size + 4) * (query + key)
        if size == 2:
            layer += 4 * self.hidden
        if adapted:
            read = {"gate_proj", "up_proj"} & set(adapted)
            layer -= size * (self.hidden * (not read) + self.mlp * ("down_proj" not in adapted))
            layer -= size * (2 * self.hidden + (query + key) * self.head_norm)
        kept = self.layers * size * self.hidden + layer if recomputed else self.layers * layer
        return tokens * kept

    def passes(self, tokens: int) -> float:
        """Floating-point operations of a forward pass over so many tokens, attention's products left out: 2 for each
        parameter but those of the embedding (Kaplan et al. 2020)."""
        looked_up = 0 if self.tied else self.vocab * self.hidden
        return 2.0 * (self.parameters - looked_up) * tokens


def shapes_of(config: Mapping[str, Any], where: str) -> Shapes:
    """The shapes that a model's `config.json` gives. Raises UserError, naming `where`, for another architecture."""
    kind = config.get("model_type")
    if kind not in KNOWN_TYPES:
        raise UserError(
            f"{where}: memory and disk cannot be estimated for the architecture '{kind}' (only "
            f"{', '.join(KNOWN_TYPES)}); give mem_mb and gpu of every stage in resources"
        )
    heads = config["num_attention_heads"]
    return Shapes(
        vocab=config["vocab_size"],
        hidden=config["hidden_size"],
        mlp=config["intermediate_size"],
        layers=config["num_hidden_layers"],
        heads=heads,
        kv=config.get("num_key_value_heads") or heads,
        dim=config.get("head_dim") or config["hidden_size"] // heads,
        tied=bool(config.get("tie_word_embeddings", False)),
        bias=kind == "qwen2",
        head_norm=kind == "qwen3",
        positions=config.get("max_position_embeddings", 32768),
    )


def scratch_config(settings: ScratchConfig, vocab: int) -> dict[str, Any]:
    """The sizes of a model built from scratch, named as in `config.json`."""
    return {
        "vocab_size": vocab,
        "hidden_size": settings.hidden,
        "intermediate_size": settings.mlp,
        "num_hidden_layers": settings.layers,
        "num_attention_heads": settings.heads,
        "num_key_value_heads": settings.kv_heads,
        "max_position_embeddings": settings.max_positions,
        "tie_word_embeddings": True,
    }


def shapes_of_scratch(settings: ScratchConfig) -> Shapes:
    """The shapes of a model built from scratch, with the largest vocabulary that it can have."""
    return shapes_of({"model_type": "qwen2", **scratch_config(settings, settings.vocab)}, "policy.scratch")
