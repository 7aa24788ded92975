"""Training on several GPUs: processes, one a GPU, that share a model (`turncredit.policy.spread`) and its minibatches.

    result = launched(4, train, ...)          # starts the processes, as torchrun does, each with `train(ranks, ...)`

    def train(ranks, ...):
        masters = SpreadMasters(load, dtype)  # each process keeps its share of every parameter
        reports = ranks.gradient(compute)     # each computes its shard of the minibatch; FSDP2 adds up the gradients
        with masters.in_model() as model:     # the first process has the whole model, to be saved as always
            ...

They replace the processes of `turncredit.training.shards`, each of which holds the whole model: a minibatch is
cut into as many shards as there are processes, and what is computed of a shard is the same. Without a GPU the processes
use the CPU and gloo.
"""

from __future__ import annotations

import os
import tempfile
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import UserError
from turncredit.policy.sampling import device
from turncredit.training.sequences import TokenSequence, batches, token_logprobs
from turncredit.training.shards import Report

Result = TypeVar("Result")


def launched(processes: int, function: Callable[..., Result], *arguments: Any) -> Result:
    """What `function(ranks, *arguments)` returns in the first of `processes` processes.

    On GPUs they are fresh processes, so the function and its arguments must be picklable. Raises UserError for fewer
    GPUs than processes, and the errors of the function itself.
    """
    import torch.distributed.fsdp  # for all processes, if they are forks of this one
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    on_gpu = torch.cuda.is_available()
    if on_gpu and torch.cuda.device_count() < processes:
        raise UserError(
            f"policy.train_gpus is {processes}, but this job sees {torch.cuda.device_count()} GPUs; ask for as many "
            "(resources), or lower train_gpus"
        )
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=processes,
        run_id=uuid.uuid4().hex,
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        max_restarts=0,
        monitor_interval=0.1,
        # A process that has used a GPU cannot fork one that does.
        start_method="spawn" if on_gpu else "fork",
    )
    with tempfile.TemporaryDirectory() as folder:
        complaint = Path(folder) / "complaint"
        try:
            results = elastic_launch(config, _rank)(os.getpid(), complaint, function, arguments)
        except ChildFailedError:
            if complaint.exists():
                raise UserError(complaint.read_text()) from None
            raise
    return results[0]


def _rank(first: int, complaint: Path, function: Callable[..., Result], arguments: Sequence[Any]) -> Result | None:
    end_with_parent(parent=first)
    if torch.cuda.is_available():
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
    else:
        torch.set_num_threads(1)
    dist.init_process_group("nccl" if torch.cuda.is_available() else "gloo")
    try:
        result = function(Ranks(), *arguments)
    except UserError as error:
        complaint.write_text(str(error))
        raise
    dist.destroy_process_group()
    return result if int(os.environ["RANK"]) == 0 else None


class Ranks:
    """The processes that train together, as seen by one of them; for a minibatch, a team with one shard each."""

    def __init__(self) -> None:
        self.rank, self.shards = dist.get_rank(), dist.get_world_size()

    @property
    def leads(self) -> bool:
        """Whether this is the process whose results are kept."""
        return self.rank == 0

    def gradient(self, compute: Callable[[int], Report]) -> list[Report]:
        """Call `compute`, which calls backward, on this process's shard; returns all shards' results, in their order.

        Every process must make as many passes (`idle`). FSDP2 adds up the gradients as they are computed.
        """
        return self.all_of(compute(self.rank))

    def all_of(self, mine: Any) -> list[Any]:
        """The argument of every process, in their order."""
        gathered: list[Any] = [None] * self.shards
        dist.all_gather_object(gathered, mine)
        return gathered

    def idle(self, passes: Sequence[int]) -> int:
        """The passes without anything to compute that this process must make, given the passes of each shard."""
        return max(passes) - passes[self.rank]


def passes(sequences: Sequence[TokenSequence], tokens: int) -> int:
    """The number of passes in which `batches` reads the sequences."""
    return sum(1 for _ in batches(sequences, tokens))


def pass_idly(model: torch.nn.Module, times: int) -> None:
    """Passes without a gradient, for a process with less to compute: the others wait for its share of the weights."""
    ids = torch.zeros(1, 2, dtype=torch.int64, device=device())
    for _ in range(times):
        nothing = 0.0 * token_logprobs(model, ids, torch.tensor([[False, True]], device=device())).sum()
        if nothing.requires_grad:
            nothing.backward()
