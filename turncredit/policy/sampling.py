"""What every sampling engine offers, and how one token is drawn.

Each rollout draws from random numbers of its own, so a sample depends on its seed and not on what else is in the
batch: the token is found by inverting the cumulative distribution at a uniform number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch

from turncredit.errors import UserError, nearest


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

    The log-probabilities are those of the distribution that was sampled from, temperature applied. Greedy
    responses carry the untempered ones.
    """

    ids: list[int]
    logprobs: list[float]


class Sampler(Protocol):
    """An engine that samples responses for many rollouts side by side."""

    slots: int

    def sample(self, requests: Sequence[Request], temperature: float, max_new: int) -> list[Response]:
        """One response for each request; temperature 0 is greedy. At most one request a slot."""


def draw(logits: torch.Tensor, temperature: float, uniforms: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Sampled token ids and their log-probabilities. `logits` (B, V), `uniforms` (B,) in [0, 1)."""
    logits = logits.float()
    if temperature > 0:
        logits = logits / temperature
    logprobs = torch.log_softmax(logits, dim=-1)
    if temperature > 0:
        cumulative = logprobs.double().exp().cumsum(dim=-1)
        # Scaled by the last entry, since the sum of all probabilities is 1 only up to rounding.
        target = uniforms.double()[:, None] * cumulative[:, -1:]
        tokens = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_max(logits.shape[-1] - 1)
    else:
        tokens = logprobs.argmax(dim=-1)
    return tokens, logprobs.gather(1, tokens[:, None])[:, 0]


def sampler(engine: str, folder: str, *, slots: int, dtype: str, eos_id: int) -> Sampler:
    """The engine called `lockstep`, `transformers` or `vllm` on a policy folder, with `slots` rollouts side by side.

    `lockstep` keeps each rollout's key-value cache across turns (Qwen2 architecture); `transformers` reads the
    whole context each turn and takes any causal language model; `vllm` needs the vllm package and a GPU.
    """
    if engine == "lockstep":
        from turncredit.policy.lockstep import Lockstep

        return Lockstep(folder, slots=slots, dtype=dtype, eos_id=eos_id)
    if engine == "transformers":
        from turncredit.policy.generate import Generate

        return Generate(folder, slots=slots, dtype=dtype, eos_id=eos_id)
    if engine == "vllm":
        from turncredit.policy.vllm_engine import Vllm

        return Vllm(folder, slots=slots, dtype=dtype, eos_id=eos_id)
    raise UserError(f"unknown sampling engine '{engine}'{nearest(engine, ['lockstep', 'transformers', 'vllm'])}")


def device() -> torch.device:
    """The GPU where there is one, otherwise the CPU."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")
