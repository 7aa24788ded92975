"""Sample many rollouts in lockstep, keeping each rollout's key-value cache across its turns.

An append-only context is read once: a turn costs the new tokens and the sampled ones, whatever the length of the
transcript. A context that is rebuilt every turn is read from the first token that differs from the last one.

Turns are played in blocks, one after the other, so that the keys and values that attention reads for every token stay
in the processor's cache.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from turncredit.policy.engines.guesses import Guesses
from turncredit.policy.engines.ragged import Block, Ragged
from turncredit.policy.sampling import Request, Response, draw
from turncredit.policy.shapes import BLOCK_BYTES, BLOCK_TURNS, PASS_SCORES


@dataclass(slots=True)
class _Turn:
    """A request, the tokens to be read for it (from position `start` on), and the tokens drawn so far."""

    request: Request
    chunk: list[int]
    start: int = 0
    ids: list[int] = field(default_factory=list)
    logprobs: list[float] = field(default_factory=list)


class Lockstep:
    """A model of Qwen2's or Llama's architecture that samples `slots` rollouts at a time.

    `tokens_read` and `passes` count what the model did: tokens read, sampled ones and wrong guesses included.
    """

    def __init__(
        self, folder: str, *, slots: int, dtype: str, eos_id: int, weights: Mapping[str, torch.Tensor] | None = None
    ):
        self.slots, self.eos_id = slots, eos_id
        self._model = Ragged(folder, rows=slots, dtype=dtype, weights=weights)
        self._guesses = Guesses(eos_id)
        self._cached: list[list[int]] = [[] for _ in range(slots)]  # the tokens in a slot's cache
        self._pending = [-1] * slots  # a slot's last sampled token, not read by the model yet
        self.tokens_read = self.passes = 0

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request: read the new tokens, then draw until every row has ended.

        Requests that reset to the same tokens (a group at its first turn, continuations of one context) read them once,
        if they are played in the same block.
        """
        turns = [_Turn(request, self._new_tokens(request)) for request in requests]
        for turn in turns:
            turn.start = len(self._cached[turn.request.slot])
        self._model.reserve(max(turn.start + len(turn.chunk) for turn in turns) + max_new)
        for block in self._blocks(turns, max_new):
            self._play(block, temperature, max_new)
            self._guesses.learn(turn.ids for turn in block)
        return [Response(turn.ids, turn.logprobs) for turn in turns]

    def _blocks(self, turns: Sequence[_Turn], max_new: int) -> Iterator[list[_Turn]]:
        """Turns that read about as many tokens together, in blocks whose caches hold at most BLOCK_BYTES."""
        turns = sorted(turns, key=lambda turn: (len(turn.chunk), turn.start))
        most = BLOCK_BYTES[self._model.device.type] // self._model.position_bytes
        block: list[_Turn] = []
        room = 0
        for turn in turns:
            room = max(room, turn.start + len(turn.chunk) + max_new)
            if len(block) >= BLOCK_TURNS and (len(block) + 1) * room > most:
                yield block
                block, room = [], turn.start + len(turn.chunk) + max_new
            block.append(turn)
        yield block

    def _play(self, turns: list[_Turn], temperature: float, max_new: int) -> None:
        """Read the chunks of one block and draw its responses."""
        room = max(turn.start + len(turn.chunk) for turn in turns) + max_new
        block = Block(self._model, [turn.request.slot for turn in turns], room)
        logits = self._read(block, turns)
        ids, logprobs = _drawn(logits, temperature, np.array([turn.request.uniforms[0] for turn in turns]))
        for turn, token, logprob in zip(turns, ids, logprobs, strict=True):
            turn.ids.append(token)
            turn.logprobs.append(logprob)
        going = [at for at, turn in enumerate(turns) if not self._ended(turn, max_new)]
        while going:
            tails, starts, numbers = [], [], []
            for at in going:
                turn = turns[at]
                count = len(turn.ids)
                tail = [turn.ids[-1], *self._guesses.after(turn.ids)[: max_new - count - 1]]
                tails.append(tail)
                starts.append(turn.start + len(turn.chunk) + count - 1)
                numbers.append(turn.request.uniforms[count : count + len(tail)])
            logits = self._pass(block, going, tails, starts, every=True)
            ids, logprobs = _drawn(logits, temperature, np.concatenate(numbers))
            first, left = 0, []
            for at, tail in zip(going, tails, strict=True):
                last = first + len(tail)
                self._keep(turns[at], tail, ids[first:last], logprobs[first:last])
                first = last
                if not self._ended(turns[at], max_new):
                    left.append(at)
            going = left
        for turn in turns:
            self._cached[turn.request.slot] += turn.ids[:-1]
            self._pending[turn.request.slot] = turn.ids[-1]
        block.close([turn.start for turn in turns], [len(self._cached[turn.request.slot]) for turn in turns])

    def _keep(self, turn: _Turn, tail: list[int], ids: list[int], logprobs: list[float]) -> None:
        """Append the tokens drawn after those of `tail`, up to the first draw that contradicts the next of them."""
        kept = 1
        while kept < len(tail) and tail[kept] == ids[kept - 1]:
            kept += 1
        turn.ids += ids[:kept]
        turn.logprobs += logprobs[:kept]

    def _ended(self, turn: _Turn, max_new: int) -> bool:
        return turn.ids[-1] == self.eos_id or len(turn.ids) == max_new

    def _read(self, block: Block, turns: list[_Turn]) -> torch.Tensor:
        """Logits (B, V) after each turn's new tokens. Turns that reset to another's context copy its cache."""
        first: dict[tuple[int, ...], int] = {}
        reader = [
            first.setdefault(tuple(turn.request.ids), at) if turn.request.reset else at for at, turn in enumerate(turns)
        ]
        reads = [at for at, by in enumerate(reader) if at == by]
        parts = []
        for part in self._passes(turns, reads):
            chunks, start = [turns[at].chunk for at in part], [turns[at].start for at in part]
            parts.append(self._pass(block, part, chunks, start, every=False))
        logits = torch.cat(parts)
        for turn in turns:
            self._cached[turn.request.slot] += turn.chunk
        if len(reads) == len(turns):
            return logits
        copies = [at for at, by in enumerate(reader) if at != by]
        positions = max(len(turns[at].request.ids) for at in copies)
        block.copy([reader[at] for at in copies], copies, positions)
        place = {at: number for number, at in enumerate(reads)}
        return logits[torch.tensor([place[by] for by in reader], device=logits.device)]

    def _passes(self, turns: list[_Turn], reads: list[int]) -> Iterator[list[int]]:
        """`reads` in passes whose attention holds at most PASS_SCORES numbers a head, or one turn's."""
        most = PASS_SCORES[self._model.device.type]
        part: list[int] = []
        longest = used = 0
        for at in reads:
            turn = turns[at]
            longest, used = max(longest, len(turn.chunk)), max(used, turn.start + len(turn.chunk))
            if part and (len(part) + 1) * longest * used > most:
                yield part
                part, longest, used = [], len(turn.chunk), turn.start + len(turn.chunk)
            part.append(at)
        yield part

    def _pass(
        self, block: Block, seats: list[int], chunks: list[list[int]], start: list[int], every: bool
    ) -> torch.Tensor:
        self.passes += 1
        self.tokens_read += sum(map(len, chunks))
        return block.read(seats, chunks, start, every)

    def _new_tokens(self, request: Request) -> list[int]:
        """The tokens to read: the last sampled one, which the model has not read yet, and the request's.

        A request that resets continues at the first token that differs from the cache; the last token is always read.
        """
        pending, cached = self._pending[request.slot], self._cached[request.slot]
        if not request.reset:
            return request.ids if pending < 0 else [pending, *request.ids]
        shared = min(_shared(cached, request.ids), len(request.ids) - 1)
        del cached[shared:]
        return request.ids[shared:]


def _shared(one: list[int], two: list[int]) -> int:
    """The length of the common prefix, by bisection: comparing slices costs less than a loop over tokens."""
    low, high = 0, min(len(one), len(two))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == two[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _drawn(logits: torch.Tensor, temperature: float, uniforms: np.ndarray) -> tuple[list[int], list[float]]:
    ids, logprobs = draw(logits, temperature, torch.from_numpy(uniforms).to(logits.device))
    return ids.tolist(), logprobs.tolist()
