"""The interface of sampling engines (`policy/engines/`), and how a token is drawn.

Each rollout has its own random numbers, and a token is found by inverting the cumulative distribution at a uniform
number, so a sample depends on the rollout's seed and not on the rest of the batch.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
import torch
import torch.nn.functional as F

from turncredit.errors import UserError

#: Size of a stretch of the vocabulary: near the square root of its size for the vocabularies that are sampled often.
STRETCH = 32


@dataclass(frozen=True, slots=True)
class Request:
    """One turn to sample: new context tokens for a slot, and a uniform number in [0, 1) for each possible token."""

    slot: int
    ids: list[int]
    reset: bool
    uniforms: np.ndarray


@dataclass(frozen=True, slots=True)
class Response:
    """Sampled tokens (the end-of-turn token included, where it was reached) and their log-probabilities.

    The log-probabilities are those of the distribution that was sampled from, temperature applied; for greedy responses
    those at temperature 1.
    """

    ids: list[int]
    logprobs: list[float]


class Sampler(Protocol):
    """An engine that samples responses for many rollouts at a time."""

    slots: int

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request; temperature 0 is greedy. At most one request per slot."""


@runtime_checkable
class Unordered(Protocol):
    """A sampler that answers each request by itself, in any order, and takes further ones meanwhile."""

    slots: int

    def submit(self, request: Request, temperature: float, max_new: int) -> None:
        """Take a request for a slot that has none unanswered; temperature 0 is greedy."""

    def answered(self, *, wait: bool) -> list[tuple[int, Response]]:
        """The slots that have got a response since the last call, with their responses.

        `wait`: until there is at least one. Otherwise it may be none, after a pass of the model at the most.
        """

    def cancel(self) -> None:
        """Drop all requests that are unanswered."""


def sampled(engine: Unordered, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
    """One response for each request of an engine that has none unanswered."""
    for request in requests:
        engine.submit(request, temperature, max_new)
    responses: dict[int, Response] = {}
    while len(responses) < len(requests):
        responses.update(engine.answered(wait=True))
    return [responses[request.slot] for request in requests]


def draw(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sampled token ids and their log-probabilities. `logits` (B, V), `uniforms` (B,) in [0, 1).

    The token is the first whose cumulative probability exceeds the uniform number, found in two steps: the stretch of
    the vocabulary in which it lies, then the token. A cumulative sum over the whole vocabulary would cost ten times as
    much as everything else.
    """
    logits = logits.float()
    if temperature == 0:
        logprobs = torch.log_softmax(logits, dim=-1)
        tokens = logprobs.argmax(dim=-1)
        chosen = logprobs.gather(1, tokens[:, None])[:, 0]
        _check_finite(chosen)
        return tokens, chosen
    if temperature != 1:
        logits = logits / temperature
    probability = torch.softmax(logits, dim=-1)
    stretches = F.pad(probability, (0, -probability.shape[1] % STRETCH)).view(len(logits), -1, STRETCH)
    weights = stretches.sum(-1)
    _check_finite(weights)
    which, rest = _invert(weights, uniforms.double())
    tokens, _ = _invert(stretches[torch.arange(len(logits), device=logits.device), which], rest)
    tokens += which * STRETCH
    return tokens, probability.gather(1, tokens[:, None])[:, 0].log()


def _check_finite(x: torch.Tensor) -> None:
    """Raise UserError where `x`, computed from a policy's logits, is not finite: there is nothing to sample from."""
    if not bool(torch.isfinite(x).all()):
        raise UserError(
            "the policy's logits are not finite: its weights are damaged, or its training has diverged; lower the "
            "learning rate and make the policy again"
        )


def _invert(weights: torch.Tensor, shares: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Where the share (B,) of each row's total weight (B, n) falls, and the share of that entry's own weight below it.

    Never a position without weight: the sums need not be 1, and a share below 1 stays below the total.
    """
    total = weights.double().cumsum(dim=-1)
    target = shares[:, None] * total[:, -1:]
    at = torch.searchsorted(total, target, right=True).clamp_max(weights.shape[-1] - 1)
    weight = weights.gather(1, at).double()
    below = (target - total.gather(1, at) + weight) / weight
    return at[:, 0], below[:, 0].clamp(0.0, 1.0 - 2.0**-53)


def device() -> torch.device:
    """The GPU if there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def free_memory() -> None:
    """Give back a GPU's memory, to other processes too, of models and engines that nothing refers to any more.

    Only a garbage collection finds those that refer to themselves, and PyTorch keeps the memory that it has freed.
    """
    if device().type == "cuda":
        gc.collect()
        torch.cuda.empty_cache()
