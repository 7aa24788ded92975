"""Training on several GPUs: processes, one a GPU, that share a model (`turncredit.policy.fsdp`) and its minibatches.

    def train(..., team):                                 # in each of the processes of `turncredit.training.processes`
        masters = policy.masters(dtype, fsdp=team.fsdp)   # each process keeps its share of every parameter
        reports = team.minibatch(...)                     # each computes one shard; FSDP2 adds up the gradients
        with masters.in_model() as model:                 # the first process has the whole model, to be saved
            ...

What is computed of a shard is the same as in a `Team` of processes that hold the whole model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist

from turncredit.policy.sampling import device
from turncredit.training.sequences import TokenSequence, batches, token_logprobs
from turncredit.training.team import Report, T, Team


class FsdpTeam(Team):
    """Processes that the model is spread over; each computes one shard of a minibatch.

    A layer's weights come together only in a pass that all processes make. One with fewer passes to compute makes
    idle ones.
    """

    fsdp = True

    def __init__(self) -> None:
        self.rank, self.shards = dist.get_rank(), dist.get_world_size()

    @contextmanager
    def sharing(self, parameters: Sequence[torch.nn.Parameter], shards: int) -> Iterator[None]:  # noqa: ARG002
        """The processes run already, and there are as many shards."""
        yield

    def gradient(self, compute: Callable[[int], Report]) -> list[Report]:
        """The reports of all shards; FSDP2 adds up the gradients as they are computed."""
        return self.all_of(compute(self.rank))

    def all_of(self, mine: T) -> list[T]:
        """The argument of every process, in their order; tensors in it are on the CPU."""
        gathered: list[Any] = [None] * self.shards
        dist.all_gather_object(gathered, mine)
        return gathered

    def _pass_idly(self, model: torch.nn.Module, parts: list[list[TokenSequence]], tokens_per_pass: int) -> None:
        """Passes without a gradient until it has made as many as the others, which wait for its weights."""
        passes = [sum(1 for _ in batches(part, tokens_per_pass)) for part in parts]
        ids = torch.zeros(1, 2, dtype=torch.int64, device=device())
        for _ in range(max(passes) - passes[self.rank]):
            nothing = 0.0 * token_logprobs(model, ids, torch.tensor([[False, True]], device=device())).sum()
            if nothing.requires_grad:
                nothing.backward()
