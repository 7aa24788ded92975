"""A model of Qwen2's or Llama's architecture over many key-value caches of unequal length.

Every pass reads new tokens for some of the rows, a different number for each. Operations on single tokens (norms,
projections, the vocabulary) see the tokens of all rows concatenated, without padding; only attention pads, and it reads
the caches of adjacent rows in place.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from turncredit.errors import UserError
from turncredit.policy.sampling import device
from turncredit.policy.shapes import GATHER_BELOW, lockstep_reads
from turncredit.policy.weights import read_adapter, read_config, read_weights, weights_folder

#: the projections that are joined because they read the same input
JOINED = {
    "qkv": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "out": ("self_attn.o_proj",),
    "gate_up": ("mlp.gate_proj", "mlp.up_proj"),
    "down": ("mlp.down_proj",),
}
#: `turncredit.policy.weights.read_adapter`
Adapter = Mapping[str, tuple[torch.Tensor, torch.Tensor, float]]


@dataclass(frozen=True, slots=True)
class LowRank:
    """What an adapter adds to a projection: `up @ down`, (outputs, rank) and (rank, inputs)."""

    down: torch.Tensor
    up: torch.Tensor

    def add(self, outputs: torch.Tensor, inputs: torch.Tensor) -> torch.Tensor:
        """The outputs (T, outputs) of a projection of the inputs (T, inputs), adapted."""
        return outputs + F.linear(F.linear(inputs, self.down), self.up)

    def rows(self, which: slice) -> LowRank:
        """The adapter of some of the outputs."""
        return LowRank(self.down, self.up[which])


@dataclass(slots=True)
class Layer:
    """Weights of one layer (norms, projections joined where they read the same input) and its caches.

    `added` has what an adapter adds to each projection, by its name, where it is not in the weights.
    """

    norm_attention: torch.Tensor
    norm_mlp: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor | None
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # (rows, kv_heads, head_dim, capacity): scores run over neighbouring numbers
    values: torch.Tensor  # (rows, kv_heads, capacity, head_dim)
    added: dict[str, LowRank]


class Ragged:
    """Weights (of `folder`, or as given), and a cache for each of `rows` rows.

    An adapter is merged into float32 weights. Into bfloat16 it would be lost, and stays beside them.

    The caller keeps track of which positions are valid.
    """

    def __init__(self, folder: str, *, rows: int, dtype: str, weights: Mapping[str, torch.Tensor] | None = None):
        config = read_config(folder)
        refused = lockstep_reads(config)
        if refused:
            raise UserError(
                f"{folder}: the lockstep engine does not read {refused}; set policy.engine to 'transformers' or 'vllm'"
            )
        self.device, self._dtype = device(), getattr(torch, dtype)
        self._heads = config["num_attention_heads"]
        self._kv = config.get("num_key_value_heads") or self._heads  # older Llamas' files do not have it
        self._dim = config.get("head_dim") or config["hidden_size"] // self._heads
        self._eps, self._limit = config["rms_norm_eps"], config["max_position_embeddings"]
        self._rows, self._capacity = rows, 0
        angle = torch.arange(self._limit).float()[:, None] * frequencies(config, self._dim, folder)
        self.turn = torch.polar(torch.ones_like(angle), angle)[:, None].to(self.device)  # (limit, 1, dim / 2)
        # Scores are divided by sqrt(dim) in the queries' float32 weights, which costs nothing, and else in `scores`.
        self._scale = self._dim**-0.5
        self._query_scale = self._scale if dtype == "float32" else 1.0
        # Row limit - 1 - p of this overlapping view is 0 up to position p, then -inf: a slice of one line of numbers.
        steps = torch.zeros(2 * self._limit, device=self.device)
        steps[self._limit :] = float("-inf")
        self._visible = steps.as_strided((self._limit, self._limit), (1, 1))
        adapter = {} if dtype == "float32" or weights is not None else read_adapter(folder)
        if weights is None:
            weights = read_weights(weights_folder(folder) if adapter else folder)
        self._load(weights, adapter, config["num_hidden_layers"])
        self._buffers = [(self.embed.new_empty(0), self.embed.new_empty(0)) for _ in self.layers]
        #: Of one position of one row, keys and values of all layers.
        self.position_bytes = 2 * len(self.layers) * self._kv * self._dim * self.embed.element_size()

    def _load(self, weights: Mapping[str, torch.Tensor], adapter: Adapter, layers: int) -> None:
        def take(name: str) -> torch.Tensor:
            return weights[name].to(self.device, self._dtype)

        self.embed = take("model.embed_tokens.weight")
        self._norm = take("model.norm.weight")
        self._head = take("lm_head.weight") if "lm_head.weight" in weights else self.embed
        self.layers: list[Layer] = []
        for i in range(layers):
            at = f"model.layers.{i}"
            attention, mlp = f"{at}.self_attn", f"{at}.mlp"
            qkv, bias = (
                torch.cat(
                    [
                        self._paired(take(f"{attention}.q_proj.{kind}")) * self._query_scale,
                        self._paired(take(f"{attention}.k_proj.{kind}")),
                        take(f"{attention}.v_proj.{kind}"),
                    ]
                )
                if f"{attention}.q_proj.{kind}" in weights
                else None
                for kind in ("weight", "bias")
            )
            assert qkv is not None
            gate_up = torch.cat([take(f"{mlp}.{name}_proj.weight") for name in ("gate", "up")])
            keys = torch.zeros(self._rows, self._kv, self._dim, 0, dtype=self._dtype, device=self.device)
            self.layers.append(
                Layer(
                    take(f"{at}.input_layernorm.weight"),
                    take(f"{at}.post_attention_layernorm.weight"),
                    qkv,
                    bias,
                    take(f"{attention}.o_proj.weight"),
                    gate_up,
                    take(f"{mlp}.down_proj.weight"),
                    keys,
                    keys.transpose(2, 3),
                    self._added(weights, adapter, at),
                )
            )

    def _added(self, weights: Mapping[str, torch.Tensor], adapter: Adapter, at: str) -> dict[str, LowRank]:
        """What the adapter adds to the projections of the layer `at`, joined and ordered as those are."""
        added = {}
        for joined, parts in JOINED.items():
            names = [f"{at}.{part}.weight" for part in parts]
            if not any(name in adapter for name in names):
                continue
            downs, ups = [], []
            for name in names:
                if name not in adapter:
                    ups.append(torch.zeros(len(weights[name]), 0))
                    continue
                down, up, scale = adapter[name]
                up = scale * up
                if joined == "qkv" and not name.endswith("v_proj.weight"):
                    up = self._paired(up)
                if name.endswith("q_proj.weight"):
                    up = up * self._query_scale
                downs.append(down)
                ups.append(up)
            down, up = torch.cat(downs), torch.block_diag(*ups)
            added[joined] = LowRank(down.to(self.device, self._dtype), up.to(self.device, self._dtype))
        return added

    def _paired(self, projection: torch.Tensor) -> torch.Tensor:
        """The rows of a query or key projection, reordered so that the two numbers that rotate together are adjacent.

        Reordering queries and keys alike does not change their products, and makes a rotation one complex product.
        """
        halves = projection.view(-1, 2, self._dim // 2, *projection.shape[1:])
        return halves.transpose(1, 2).reshape(projection.shape)

    def reserve(self, positions: int) -> None:
        """Grow every cache to hold `positions` tokens a row. Raises UserError beyond the model's positions."""
        if positions > self._limit:
            raise UserError(
                f"a context of {positions} tokens does not fit the model's {self._limit} positions; "
                "shorten the rollouts (horizon), or raise policy.scratch.max_positions"
            )
        if positions <= self._capacity:
            return
        old, self._capacity = self._capacity, min(self._limit, max(positions, self._capacity + 256))
        for layer in self.layers:
            keys = layer.keys.new_zeros(self._rows, self._kv, self._dim, self._capacity)
            values = layer.values.new_zeros(self._rows, self._kv, self._capacity, self._dim)
            keys[..., :old], values[:, :, :old] = layer.keys, layer.values
            layer.keys, layer.values = keys, values

    def buffers(self, positions: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """Memory for `positions` keys and values of each layer, the same in every call."""
        numbers = positions * self._kv * self._dim
        if numbers > self._buffers[0][0].numel():
            self._buffers = []  # its memory goes before more is taken
            self._buffers = [(self.embed.new_empty(numbers), self.embed.new_empty(numbers)) for _ in self.layers]
        return self._buffers

    def project(
        self, layer: Layer, hidden: torch.Tensor, turn: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Queries (T, heads, dim), keys and values (T, kv_heads, dim) of tokens, rotated by `turn` (T, 1, dim / 2)."""
        rotated = self._heads + self._kv
        x = F.rms_norm(hidden, (hidden.shape[-1],), layer.norm_attention, self._eps)
        qkv = F.linear(x, layer.qkv, layer.qkv_bias)
        if "qkv" in layer.added:
            qkv = layer.added["qkv"].add(qkv, x)
        qkv = qkv.view(len(hidden), -1, self._dim)
        qk = _rotated(qkv[:, :rotated], turn)
        return qk[:, : self._heads], qk[:, self._heads :], qkv[:, rotated:]

    def project_for(
        self, layer: Layer, hidden: torch.Tensor, turn: torch.Tensor, asking: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`project`, the queries of the tokens `asking` (Q,) alone."""
        cut, bias = self._heads * self._dim, layer.qkv_bias
        x = F.rms_norm(hidden, (hidden.shape[-1],), layer.norm_attention, self._eps)
        query = F.linear(x[asking], layer.qkv[:cut], None if bias is None else bias[:cut])
        kv = F.linear(x, layer.qkv[cut:], None if bias is None else bias[cut:])
        if "qkv" in layer.added:
            query = layer.added["qkv"].rows(slice(cut)).add(query, x[asking])
            kv = layer.added["qkv"].rows(slice(cut, None)).add(kv, x)
        query, kv = query.view(len(asking), -1, self._dim), kv.view(len(hidden), -1, self._dim)
        return _rotated(query, turn[asking]), _rotated(kv[:, : self._kv], turn), kv[:, self._kv :]

    def finish(self, layer: Layer, hidden: torch.Tensor, mixed: torch.Tensor) -> torch.Tensor:
        """The layer's output (T, width) from its input and the output of attention (T, heads * dim)."""
        hidden = torch.addmm(hidden, mixed, layer.out.t())
        if "out" in layer.added:
            hidden = layer.added["out"].add(hidden, mixed)
        x = F.rms_norm(hidden, (hidden.shape[-1],), layer.norm_mlp, self._eps)
        inner = F.linear(x, layer.gate_up)
        if "gate_up" in layer.added:
            inner = layer.added["gate_up"].add(inner, x)
        gate, up = inner.chunk(2, dim=-1)
        inner = F.silu(gate).mul_(up)
        hidden = torch.addmm(hidden, inner, layer.down.t())
        return layer.added["down"].add(hidden, inner) if "down" in layer.added else hidden

    def scores(self, query: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
        """Attention's scores (B, T, positions) of queries (B, T, dim) and keys (B, dim, positions), in float32.

        bfloat16 has eight bits: the biases of Qwen2.5's keys make scores of more than 100, which it would round by up
        to a half, where training's attention sums and keeps them in float32.
        """
        if self._dtype == torch.float32:
            return torch.bmm(query, keys)
        if query.is_cuda:
            scores = torch.bmm(query, keys, out_dtype=torch.float32)
        else:
            scores = torch.bmm(query.float(), keys.float())
        return scores.mul_(self._scale)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        """The vocabulary's logits (T, V) of the last layer's output."""
        return F.linear(F.rms_norm(hidden, (hidden.shape[-1],), self._norm, self._eps), self._head)

    def put(self, array: np.ndarray) -> torch.Tensor:
        """An array on the model's device."""
        return torch.from_numpy(array).to(self.device)

    def hide(self, position: np.ndarray, first: int, stop: int) -> torch.Tensor:
        """For the positions from `first` up to `stop`: 0 up to each of `position`, -inf after it."""
        return self._visible[:, first:stop].index_select(0, self.put(self._limit - 1 - position))


def frequencies(config: Mapping[str, Any], dim: int, folder: str) -> torch.Tensor:
    """Radians per position of each of the dim / 2 pairs of a head (Su et al. 2021), as the model's `config.json` says.

    `llama3` is Llama 3.1's scaling to longer contexts: frequencies with a wavelength above the original context divided
    by `low_freq_factor` are divided by `factor`, those below it divided by `high_freq_factor` are kept, and those
    between are interpolated. Raises UserError for any other scaling.
    """
    # Older folders have the base at the top, and the scaling, if there is one, in a block of its own.
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    theta = rope.get("rope_theta", config.get("rope_theta", 10000.0))
    plain = 1.0 / theta ** (torch.arange(0, dim, 2).float() / dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return plain
    if kind != "llama3":
        raise UserError(
            f"{folder}: the lockstep engine does not know the rotary scaling '{kind}'; set policy.engine to "
            "'transformers' or 'vllm'"
        )
    turns = rope["original_max_position_embeddings"] * plain / (2 * math.pi)  # within the original context
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    kept = ((turns - low) / (high - low)).clamp(0.0, 1.0)
    return kept * plain + (1 - kept) * plain / rope["factor"]


class Block:
    """The caches of some rows, adjacent in memory for one turn, and passes of the model over them.

    Tokens are read into the block's copy of the caches; `close` copies them back to the rows.
    """

    def __init__(self, model: Ragged, rows: Sequence[int], room: int):
        """Bring the first `room` positions of `rows` together. `Ragged.reserve` has made as many."""
        self._model, self._size, self._room = model, len(rows), room
        self._rows = model.put(np.asarray(rows))
        self._caches = [
            (
                _gathered(layer.keys[..., :room], self._rows, key_buffer),
                _gathered(layer.values[:, :, :room], self._rows, value_buffer),
            )
            for layer, (key_buffer, value_buffer) in zip(model.layers, model.buffers(len(rows) * room), strict=True)
        ]

    def copy(self, source: Sequence[int], target: Sequence[int], positions: int) -> None:
        """Copy the first `positions` keys and values from the seats `source` to the seats `target`."""
        source, target = (self._model.put(np.asarray(seats)) for seats in (source, target))
        for keys, values in self._caches:
            keys[target, :, :, :positions] = keys[source, :, :, :positions]
            values[target, :, :positions] = values[source, :, :positions]

    def close(self, start: Sequence[int], stop: Sequence[int]) -> None:
        """Copy the positions from `start[i]` up to `stop[i]` of every seat back to its row."""
        count = np.asarray(stop) - np.asarray(start)
        first = count.cumsum() - count
        seats = self._model.put(np.repeat(np.arange(self._size), count))
        positions = self._model.put(np.arange(int(count.sum())) + np.repeat(np.asarray(start) - first, count))
        rows = self._rows[seats]
        for layer, (keys, values) in zip(self._model.layers, self._caches, strict=True):
            layer.keys[rows, :, :, positions] = keys[seats, :, :, positions]
            layer.values[rows, :, positions] = values[seats, :, positions]

    @torch.inference_mode()
    def read(
        self, seats: Sequence[int], chunks: Sequence[list[int]], start: Sequence[int], every: bool
    ) -> torch.Tensor:
        """Read `chunks[i]`, at least one token, at position `start[i]` and on of the seat `seats[i]` (ascending).

        Returns logits (T, V) after every token that was read, seat by seat, or (len(seats), V) after the last of each.
        """
        model = self._model
        count = np.fromiter(map(len, chunks), np.int64, len(chunks))
        seats, start = np.asarray(seats), np.asarray(start)
        shape = self._shape(seats, count, start)
        ids = model.put(np.fromiter(chain.from_iterable(chunks), np.int64, int(count.sum())))
        hidden = F.embedding(ids, model.embed)
        turn = model.turn[shape.positions]
        for layer, caches in zip(model.layers[:-1], self._caches, strict=False):
            query, key, value = model.project(layer, hidden, turn)
            mixed = self._attend(query, *self._enter(caches, key, value, shape), shape)
            hidden = model.finish(layer, hidden, mixed)
        layer, caches = model.layers[-1], self._caches[-1]
        if every:
            query, key, value = model.project(layer, hidden, turn)
            mixed = self._attend(query, *self._enter(caches, key, value, shape), shape)
        else:  # of the last layer only each seat's last token is needed, besides keys and values
            last = model.put(count.cumsum() - 1)
            query, key, value = model.project_for(layer, hidden, turn, last)
            asking = self._shape(seats, np.ones_like(count), start + count - 1)
            mixed = self._attend(query, *self._enter(caches, key, value, shape), asking)
            hidden = hidden[last]
        return model.logits(model.finish(layer, hidden, mixed))

    def _enter(
        self, caches: tuple[torch.Tensor, torch.Tensor], key: torch.Tensor, value: torch.Tensor, shape: _Shape
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Write the tokens' keys and values (T, kv_heads, dim) into a layer's caches; returns those."""
        keys, values = caches
        keys[shape.seats, :, :, shape.positions] = key
        values[shape.seats, :, shape.positions] = value
        return keys, values

    def _shape(self, seats: np.ndarray, count: np.ndarray, start: np.ndarray) -> _Shape:
        first = count.cumsum() - count
        longest, total = int(count.max()), int(count.sum())
        offset_T = np.arange(total) - np.repeat(first, count)
        position_T = np.repeat(start, count) + offset_T
        among = len(seats) * GATHER_BELOW >= self._size
        place, size = (seats, self._size) if among else (np.arange(len(seats)), len(seats))
        # Padding repeats the seat's last token; seats that read nothing repeat the first of all.
        take = np.zeros((size, longest), dtype=np.int64)
        take[place] = first[:, None] + np.minimum(np.arange(longest), count[:, None] - 1)
        take = take.reshape(-1)
        lowest, used = int(position_T.min()), int(position_T.max()) + 1
        put = self._model.put
        return _Shape(
            only=None if among else put(seats),
            take=put(take),
            back=put(np.repeat(place, count) * longest + offset_T),
            seats=put(np.repeat(seats, count)),
            positions=put(position_T),
            hide=self._model.hide(position_T[take], lowest, used),
            size=size,
            longest=longest,
            used=used,
        )

    def _attend(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, shape: _Shape) -> torch.Tensor:
        """Attention outputs (T, heads * dim) of the queries (T, heads, dim).

        Grouped-query attention as one batched product: the heads that share a key are adjacent.
        """
        size, longest, used = shape.size, shape.longest, shape.used
        heads, dim = query.shape[1:]
        kv = keys.shape[1]
        query = query.reshape(len(query), -1).index_select(0, shape.take)
        query = query.view(size, longest, kv, -1).transpose(1, 2).reshape(size * kv, -1, dim)
        keys, values = keys[..., :used], values[:, :, :used]
        if shape.only is not None:
            keys, values = keys.index_select(0, shape.only), values.index_select(0, shape.only)
        scores = self._model.scores(query, keys.flatten(0, 1))
        late = scores[..., -shape.hide.shape[1] :].unflatten(1, (longest, -1)).unflatten(0, (size, kv))
        late.add_(shape.hide.view(size, 1, longest, 1, -1))
        mixed = torch.bmm(scores.softmax(-1, dtype=torch.float32).to(values.dtype), values.flatten(0, 1))
        mixed = mixed.view(size, kv, longest, -1).transpose(1, 2).reshape(size * longest, heads * dim)
        return mixed.index_select(0, shape.back)


def _rotated(x: torch.Tensor, turn: torch.Tensor) -> torch.Tensor:
    """Heads (T, n, dim) of paired numbers, each pair turned by its angle (T, 1, dim / 2)."""
    pairs = torch.view_as_complex(x.float().unflatten(-1, (-1, 2)))
    return torch.view_as_real(pairs * turn).flatten(2).to(x.dtype)


def _gathered(cache: torch.Tensor, rows: torch.Tensor, buffer: torch.Tensor) -> torch.Tensor:
    """The `rows` of a cache, in the memory of `buffer`: allocating memory each time costs more than the copy."""
    shape = (len(rows), *cache.shape[1:])
    return torch.index_select(cache, 0, rows, out=buffer[: math.prod(shape)].view(shape))


@dataclass(frozen=True, slots=True)
class _Shape:
    """The layout of one pass: T tokens, `size` seats in attention, each padded to `longest` tokens."""

    only: torch.Tensor | None  # the seats whose caches attention reads, if not all of them
    take: torch.Tensor  # (size * longest,) the token at each padded position
    back: torch.Tensor  # (T,) the padded position of each token
    seats: torch.Tensor  # (T,)
    positions: torch.Tensor  # (T,)
    hide: torch.Tensor  # (size * longest, ...) of the last positions used; all tokens see the ones before
    size: int
    longest: int
    used: int
