"""Sample many rollouts in lockstep, each rollout's key-value cache kept across its turns.

An append-only context is read once: a turn costs the new tokens and the sampled ones, whatever the length of the
transcript. Rows are ragged (each slot has its own length); keys beyond a row's length are never attended to, so
what padding leaves in the cache does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F

from turncredit.errors import UserError
from turncredit.policy.sampling import Request, Response, device, draw
from turncredit.policy.weights import read_config, read_weights

SUPPORTED = ("qwen2",)

#: Of the rows in a step, fewer than one in so many still open: go on with these alone.
GATHER_BELOW = 4
#: Padded tokens read in one pass; more do not stay in a core's cache (512 to 2,048 are equally fast, 8,192 take half
#: as long again).
READ_TOKENS = 1024


@dataclass(slots=True)
class _Layer:
    norm_attention: torch.Tensor
    norm_mlp: torch.Tensor
    qkv: torch.Tensor
    qkv_bias: torch.Tensor
    out: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    keys: torch.Tensor  # (slots * kv_heads, capacity, head_dim)
    values: torch.Tensor


class Lockstep:
    """A Qwen2-architecture model over `slots` ragged caches of growing capacity."""

    def __init__(self, folder: str, *, slots: int, dtype: str, eos_id: int):
        config = read_config(folder)
        if config["model_type"] not in SUPPORTED:
            raise UserError(
                f"{folder}: the lockstep engine reads {', '.join(SUPPORTED)} models, not '{config['model_type']}'; "
                "set policy.engine to 'transformers' or 'vllm'"
            )
        self.slots, self.eos_id = slots, eos_id
        self._device, self._dtype = device(), getattr(torch, dtype)
        self._heads, self._kv = config["num_attention_heads"], config["num_key_value_heads"]
        self._dim = config.get("head_dim") or config["hidden_size"] // self._heads
        self._eps, self._limit = config["rms_norm_eps"], config["max_position_embeddings"]
        self._capacity = 0
        # A slot's cache lives in some row; the slots of a call are brought to the first rows.
        self._row_of, self._slot_of = list(range(slots)), list(range(slots))
        self._length = torch.zeros(slots, dtype=torch.long)  # tokens in a row's cache
        self._pending = [-1] * slots  # a row's last sampled token, not read by the model yet
        theta = (config.get("rope_parameters") or config).get("rope_theta", 10000.0)
        frequency = 1.0 / theta ** (torch.arange(0, self._dim, 2).float() / self._dim)
        angle = torch.arange(self._limit).float()[:, None] * frequency
        angle = torch.cat([angle, angle], dim=-1)
        self._cos, self._sin = (t.to(self._device, self._dtype) for t in (angle.cos(), angle.sin()))
        self._load(read_weights(folder), config["num_hidden_layers"])

    def _load(self, weights: dict[str, torch.Tensor], layers: int) -> None:
        def take(name: str) -> torch.Tensor:
            return weights[name].to(self._device, self._dtype)

        def joined(prefix: str, names: Sequence[str], kind: str) -> torch.Tensor:
            return torch.cat([take(f"{prefix}.{name}.{kind}") for name in names])

        self._embed = take("model.embed_tokens.weight")
        self._norm = take("model.norm.weight")
        self._head = take("lm_head.weight") if "lm_head.weight" in weights else self._embed
        self._layers: list[_Layer] = []
        for i in range(layers):
            at, qkv = f"model.layers.{i}", ("q_proj", "k_proj", "v_proj")
            self._layers.append(
                _Layer(
                    take(f"{at}.input_layernorm.weight"),
                    take(f"{at}.post_attention_layernorm.weight"),
                    joined(f"{at}.self_attn", qkv, "weight"),
                    joined(f"{at}.self_attn", qkv, "bias"),
                    take(f"{at}.self_attn.o_proj.weight"),
                    joined(f"{at}.mlp", ("gate_proj", "up_proj"), "weight"),
                    take(f"{at}.mlp.down_proj.weight"),
                    *(torch.zeros(self.slots * self._kv, 0, self._dim, dtype=self._dtype) for _ in range(2)),
                )
            )

    @torch.inference_mode()
    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request: read the new tokens, then draw until every row has ended.

        Requests that reset to the same tokens (a group at its first turn, continuations of one context) read them once.
        """
        self._bring_forward([request.slot for request in requests])
        order = sorted(range(len(requests)), key=lambda i: self._row_of[requests[i].slot])
        seated = [requests[i] for i in order]  # request i of these now sits in row i
        for row, request in enumerate(seated):
            if request.reset:
                self._length[row], self._pending[row] = 0, -1
        chunks = [self._new_tokens(row, request) for row, request in enumerate(seated)]
        first: dict[tuple[int, ...], int] = {}  # the first row of those that begin alike
        reader = [first.setdefault(tuple(r.ids), row) if r.reset else row for row, r in enumerate(seated)]
        sizes = torch.tensor([len(chunk) for chunk in chunks])
        start = self._length[: len(seated)].clone()
        self._reserve(int((start + sizes).max()) + max_new)
        logits = self._read(chunks, sizes, start, torch.tensor(reader))
        uniforms = torch.from_numpy(np.stack([request.uniforms for request in seated]))
        tokens, logprobs, ends = self._draw_all(logits, start + sizes, temperature, uniforms, max_new)
        self._length[: len(seated)] = start + sizes + ends - 1
        responses: list[Response | None] = [None] * len(requests)
        all_tokens, all_logprobs, all_ends = tokens.tolist(), logprobs.tolist(), ends.tolist()
        for row, (i, end) in enumerate(zip(order, all_ends, strict=True)):
            self._pending[row] = all_tokens[row][end - 1]
            responses[i] = Response(all_tokens[row][:end], all_logprobs[row][:end])
        return responses  # type: ignore[return-value]

    def _read(
        self, chunks: list[list[int]], sizes: torch.Tensor, start: torch.Tensor, reader: torch.Tensor
    ) -> torch.Tensor:
        """Logits (B, V) after each row's new tokens, read in blocks of rows whose chunks are of like length.

        A block is padded to its own longest chunk and attends to its own longest context. A row whose `reader` is
        another one takes that row's cache.
        """
        reads = reader == torch.arange(len(chunks))
        order = reads.nonzero()[:, 0]
        order = order[sizes[order].argsort(stable=True)]
        logits: torch.Tensor | None = None
        for rows in _blocks(order, sizes):
            ids = torch.zeros(len(rows), int(sizes[rows[-1]]), dtype=torch.long)
            for i, row in enumerate(rows.tolist()):
                ids[i, : len(chunks[row])] = torch.tensor(chunks[row])
            position = start[rows][:, None] + torch.arange(ids.shape[1])
            part = self._forward(ids, position, rows, sizes[rows] - 1)
            if logits is None:
                logits = part.new_empty(len(chunks), part.shape[1])
            logits[rows] = part
        if bool(reads.all()):
            return logits  # type: ignore[return-value]
        self._copy_caches(reader[~reads], (~reads).nonzero()[:, 0], int(sizes[~reads].max()))
        return logits[reader.to(logits.device)]  # type: ignore[index]

    def _copy_caches(self, source: torch.Tensor, target: torch.Tensor, positions: int) -> None:
        """Copy the first `positions` keys and values of the rows `source` to the rows `target`."""
        source, target = source.to(self._device), target.to(self._device)
        for layer in self._layers:
            for cache in (layer.keys, layer.values):
                by_row = cache.view(self.slots, self._kv, *cache.shape[1:])
                by_row[target, :, :positions] = by_row[source, :, :positions]

    def _draw_all(
        self, logits: torch.Tensor, position: torch.Tensor, temperature: float, uniforms: torch.Tensor, max_new: int
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Tokens and log-probabilities (B, max_new), and how many of each row count (B,), the last one included.

        Rows that have ended are computed along with the others until few are left: gathering the caches of the
        rest costs more than the arithmetic on the ended. What they write lies beyond their length.
        """
        batch = len(position)
        tokens = torch.full((batch, max_new), self.eos_id)
        logprobs = torch.zeros(batch, max_new)
        ends = torch.full((batch,), max_new)
        rows = torch.arange(batch)
        for step in range(max_new):
            drawn, logprob = draw(logits, temperature, uniforms[rows, step].to(logits.device))
            drawn, logprob = drawn.cpu(), logprob.cpu()
            open_ = ends[rows] == max_new
            tokens[rows[open_], step], logprobs[rows[open_], step] = drawn[open_], logprob[open_]
            closing = open_ & (drawn == self.eos_id)
            ends[rows[closing]] = step + 1
            left = open_ & ~closing
            if not bool(left.any()) or step + 1 == max_new:
                break
            if int(left.sum()) * GATHER_BELOW < len(rows):
                rows, drawn = rows[left], drawn[left]
            at = (position[rows] + step)[:, None]
            logits = self._forward(drawn[:, None], at, rows=None if len(rows) == batch else rows)
        return tokens, logprobs, ends

    def _bring_forward(self, slots: list[int]) -> None:
        """Move the caches of these slots to the first rows, so that attention reads them in place."""
        batch, wanted = len(slots), set(slots)
        idle = [row for row in range(batch) if self._slot_of[row] not in wanted]
        late = [self._row_of[slot] for slot in slots if self._row_of[slot] >= batch]
        for one, two in zip(idle, late, strict=True):
            for layer in self._layers:
                for cache in (layer.keys, layer.values):
                    a, b = (cache[row * self._kv : (row + 1) * self._kv] for row in (one, two))
                    kept = a.clone()
                    a.copy_(b)
                    b.copy_(kept)
            self._length[[one, two]] = self._length[[two, one]]
            for listed in (self._pending, self._slot_of):
                listed[one], listed[two] = listed[two], listed[one]
            self._row_of[self._slot_of[one]], self._row_of[self._slot_of[two]] = one, two

    def _new_tokens(self, row: int, request: Request) -> list[int]:
        """The request's tokens, after the row's last sampled token, which the model has not read yet."""
        pending = self._pending[row]
        return request.ids if request.reset or pending < 0 else [pending, *request.ids]

    def _reserve(self, positions: int) -> None:
        """Grow every cache to hold `positions` tokens a row."""
        if positions > self._limit:
            raise UserError(
                f"a context of {positions} tokens does not fit the model's {self._limit} positions; "
                "shorten the episodes (horizon), or raise policy.scratch.max_positions"
            )
        if positions <= self._capacity:
            return
        capacity = min(self._limit, max(positions, self._capacity + 256))
        for layer in self._layers:
            for name in ("keys", "values"):
                old = getattr(layer, name)
                new = torch.zeros(old.shape[0], capacity, self._dim, dtype=self._dtype, device=self._device)
                new[:, : self._capacity] = old
                setattr(layer, name, new)
        self._capacity = capacity

    def _forward(
        self,
        ids: torch.Tensor,
        position: torch.Tensor,
        rows: torch.Tensor | None = None,
        last: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Logits (B, V) after the token at index `last` of each row; keys and values enter the caches.

        `ids` (B, n) right-padded, `position` (B, n) absolute, `rows` (B,) where they are not the first B rows,
        `last` (B,) indices into n (the last column without it).
        """
        ids, position = ids.to(self._device), position.to(self._device)
        batch, new = ids.shape
        position = position.clamp_max(self._capacity - 1)  # padding beyond the last real token
        used = int(position.max()) + 1
        groups = self._heads // self._kv
        at_rows = torch.arange(batch, device=ids.device) if rows is None else rows.to(self._device)
        cache_rows = (at_rows[:, None] * self._kv + torch.arange(self._kv, device=ids.device)).reshape(-1)
        hidden = F.embedding(ids, self._embed)
        cos, sin = self._cos[position][:, :, None], self._sin[position][:, :, None]
        hides = torch.arange(used, device=ids.device) > position[:, :, None]  # (B, n, used)
        bias = torch.zeros(hides.shape, dtype=self._dtype, device=ids.device).masked_fill_(hides, float("-inf"))
        bias = bias[:, None, None].expand(batch, self._kv, groups, new, used).reshape(-1, groups * new, used)
        write = position[:, None].expand(batch, self._kv, new).reshape(-1, new)
        for layer in self._layers:
            x = F.rms_norm(hidden, (hidden.shape[-1],), layer.norm_attention, self._eps)
            qkv = F.linear(x, layer.qkv, layer.qkv_bias).view(batch, new, -1, self._dim)
            query, key, value = qkv.split([self._heads, self._kv, self._kv], dim=2)
            query, key = _rotate(query, cos, sin), _rotate(key, cos, sin)
            at = (cache_rows[:, None], write)
            layer.keys[at] = key.transpose(1, 2).reshape(-1, new, self._dim)
            layer.values[at] = value.transpose(1, 2).reshape(-1, new, self._dim)
            take = slice(0, batch * self._kv) if rows is None else cache_rows
            keys, values = layer.keys[take, :used], layer.values[take, :used]
            # Grouped-query attention as one batched product: the heads that share a key stand beside each other.
            query = query.view(batch, new, self._kv, groups, self._dim).permute(0, 2, 3, 1, 4)
            query = query.reshape(-1, groups * new, self._dim)
            scores = torch.baddbmm(bias, query, keys.transpose(1, 2), alpha=self._dim**-0.5)
            mixed = torch.bmm(scores.softmax(-1, dtype=torch.float32).to(self._dtype), values)
            mixed = mixed.view(batch, self._kv, groups, new, self._dim).permute(0, 3, 1, 2, 4)
            hidden = hidden + F.linear(mixed.reshape(batch, new, -1), layer.out)
            x = F.rms_norm(hidden, (hidden.shape[-1],), layer.norm_mlp, self._eps)
            gate, up = F.linear(x, layer.gate_up).chunk(2, dim=-1)
            hidden = hidden + F.linear(F.silu(gate) * up, layer.down)
        final = hidden[:, -1] if last is None else hidden[torch.arange(batch), last.to(self._device)]
        return F.linear(F.rms_norm(final, (final.shape[-1],), self._norm, self._eps), self._head)


def _blocks(order: torch.Tensor, sizes: torch.Tensor) -> Iterator[torch.Tensor]:
    """`order` (rows by growing size) cut into blocks of at most READ_TOKENS padded tokens, or of a single row."""
    first = 0
    for last, length in enumerate(sizes[order].tolist()):
        if last > first and length * (last + 1 - first) > READ_TOKENS:
            yield order[first:last]
            first = last
    yield order[first:]


def _rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary position embedding (Su et al. 2021) in the half-split form of the reference."""
    half = x.shape[-1] // 2
    turned = torch.cat([-x[..., half:], x[..., :half]], dim=-1)
    return x * cos + turned * sin
