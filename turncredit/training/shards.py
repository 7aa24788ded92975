"""A minibatch split into shards, whose gradients are computed in parallel and added in a fixed order.

The number of shards belongs to the configuration, the number of processes to the machine: a shard's gradient does not
depend on the process that computes it, and shards are added in their order, so any number of processes gives the same
bits.

    with together(shards=2, processes=2, parameters=parameters) as team:
        for batch in minibatches:                      # every process runs this loop
            reports = team.gradient(lambda shard: ...) # calls backward; then each parameter has it all
            optimizer.step()                           # the same step in every process
    save(model)                                        # only the first process gets here

All processes hold the same parameters because they take the same steps. The others are forks of the first; they end
with it, and it fails when one of them does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection

import torch

from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import UserError

Report = dict[str, float]


class Team:
    """The processes that share a minibatch, as seen by one of them. `leads` is true in the first."""

    def __init__(self, shards: int, processes: int, parameters: Sequence[torch.nn.Parameter]):
        self.shards, self.processes, self.rank = shards, min(shards, processes), 0
        self._parameters = list(parameters)
        self._links: list[Connection] = []
        self._turn = 0
        if shards > 1:
            size = sum(parameter.numel() for parameter in self._parameters)
            # Two of them in turn: who is quick may write the next step's gradients while others still read this one's.
            copies = min(self.processes, 2)
            self._gradients = torch.zeros(copies, shards, size, device=self._parameters[0].device)
        if self.processes > 1:
            torch.set_num_threads(1)
            self._gradients.share_memory_()

    @property
    def leads(self) -> bool:
        """Whether this is the original process, which continues afterwards."""
        return self.rank == 0

    def gradient(self, compute: Callable[[int], Report]) -> list[Report]:
        """Call `compute` on each shard, here or in another process; leave the sum of the gradients on the parameters.

        `compute(shard)` calls backward and returns a result. Returns the results of all shards, in their order; in the
        other processes, only of their own.
        """
        if self.shards == 1:
            self._forget()
            return [compute(0)]
        into = self._gradients[self._turn]
        self._turn = (self._turn + 1) % len(self._gradients)
        reports: dict[int, Report] = {}
        for shard in range(self.rank, self.shards, self.processes):
            self._forget()
            reports[shard] = compute(shard)
            self._store(into[shard])
        self._meet(reports)
        self._load(into)
        return [reports[shard] for shard in sorted(reports)]

    def _forget(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _store(self, row: torch.Tensor) -> None:
        start = 0
        for parameter in self._parameters:
            end = start + parameter.numel()
            if parameter.grad is None:
                row[start:end] = 0
            else:
                row[start:end] = parameter.grad.reshape(-1)
            start = end

    def _meet(self, reports: dict[int, Report]) -> None:
        """Wait until every process has stored its gradients; the first one receives the others' reports."""
        try:
            if not self.leads:
                self._links[0].send_bytes(json.dumps(reports).encode())
                self._links[0].recv_bytes()
                return
            for link in self._links:
                reports.update({int(shard): one for shard, one in json.loads(link.recv_bytes()).items()})
            for link in self._links:
                link.send_bytes(b"on")
        except (EOFError, ConnectionError):
            if not self.leads:  # nobody is left to learn for
                os._exit(1)
            raise UserError("a process that computed part of the minibatches has died; see the log") from None

    def _load(self, rows: torch.Tensor) -> None:
        whole = rows.sum(0)
        start = 0
        for parameter in self._parameters:
            end = start + parameter.numel()
            parameter.grad = whole[start:end].view(parameter.shape).to(parameter.dtype)
            start = end

    def _fork(self) -> list[int]:
        """Start the other processes, which also return from here, with ranks above 0."""
        children: list[int] = []
        first = os.getpid()
        for rank in range(1, self.processes):
            ours, theirs = Pipe()
            child = os.fork()
            if child == 0:
                ours.close()
                for link in self._links:
                    link.close()
                self.rank, self._links = rank, [theirs]
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process decides
                end_with_parent(parent=first)
                return []
            theirs.close()
            self._links.append(ours)
            children.append(child)
        return children


@contextmanager
def together(*, shards: int, processes: int, parameters: Sequence[torch.nn.Parameter]) -> Iterator[Team]:
    """A team of at most `processes` processes (one on a GPU) for minibatches of `shards` shards.

    The block runs in every process; only the first one continues after it.
    """
    on_gpu = any(parameter.is_cuda for parameter in parameters)
    team = Team(shards, 1 if on_gpu else processes, parameters)
    sys.stdout.flush()
    sys.stderr.flush()
    children = team._fork()
    try:
        yield team
    except BaseException:
        if team.leads:
            for child in children:
                os.kill(child, signal.SIGKILL)
        else:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        raise
    else:
        if not team.leads:
            sys.stdout.flush()
            os._exit(0)
    finally:
        for link in team._links:
            link.close()
        for child in children:
            os.waitpid(child, 0)


def cut_into_shards(weights: Sequence[int], shards: int) -> list[list[int]]:
    """Indices of the sequences of each shard, so that shards weigh about the same: the heaviest first, to the lightest.

    `weights` are their lengths in tokens. A shard keeps the order that its sequences had. Some may be empty.
    """
    parts: list[list[int]] = [[] for _ in range(shards)]
    total = [0] * shards
    for index in sorted(range(len(weights)), key=lambda i: (-weights[i], i)):
        lightest = total.index(min(total))
        parts[lightest].append(index)
        total[lightest] += weights[index]
    return [sorted(part) for part in parts]
