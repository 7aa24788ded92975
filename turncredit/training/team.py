"""The processes that train a model together. Here each holds the whole model; `training.fsdp` spreads it over GPUs.

A minibatch is cut into shards, whose gradients are computed in parallel and added in a fixed order. The number of
shards belongs to the configuration, the number of processes to the machine. A shard's gradient does not depend on the
process that computes it, so any number of processes gives the same bits.

    team = Team(processes=2)
    with team.sharing(parameters, shards=2):
        for batch in minibatches:                          # every process runs this loop
            reports = team.gradient(lambda shard: ...)     # calls backward; then each parameter has the whole gradient
            optimizer.step()                               # the same step in every process
    save(model)                                            # only the first process gets here

All processes hold the same parameters because they take the same steps. The others are forks of the first. They end
with it, and it fails when one of them does.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TypeVar

import torch

from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import UserError
from turncredit.training.sequences import TokenSequence

Report = dict[str, float]
T = TypeVar("T")


class Team:
    """The processes that share a minibatch, as one of them sees them: at most `processes`; one alone on a GPU."""

    #: whether the model is spread over the processes
    fsdp = False

    def __init__(self, processes: int = 1):
        self.shards, self.rank = 1, 0
        self._processes = processes
        self._links: list[Connection] = []

    @property
    def leads(self) -> bool:
        """Whether this is the first process, whose results are kept."""
        return self.rank == 0

    @contextmanager
    def sharing(self, parameters: Sequence[torch.nn.Parameter], shards: int) -> Iterator[None]:
        """Cut minibatches into so many shards. The block runs in every process; only the first continues after it."""
        self._parameters, self.shards, self._turn = parameters, shards, 0
        self._sizes = [parameter.numel() for parameter in parameters]
        on_gpu = any(parameter.is_cuda for parameter in parameters)
        self._members = 1 if on_gpu else min(shards, self._processes)
        if shards > 1:
            # Double-buffered, so a fast process can start the next step.
            buffers = min(self._members, 2)
            self._gradients = torch.zeros(buffers, shards, sum(self._sizes), device=parameters[0].device)
        threads = torch.get_num_threads()
        if self._members > 1:
            torch.set_num_threads(1)
            self._gradients.share_memory_()
        sys.stdout.flush()
        sys.stderr.flush()
        children = self._fork()
        try:
            yield
        except BaseException:
            if self.leads:
                for child in children:
                    os.kill(child, signal.SIGKILL)
            else:
                traceback.print_exc()
                sys.stderr.flush()
                os._exit(1)
            raise
        else:
            if not self.leads:
                sys.stdout.flush()
                os._exit(0)
        finally:
            for link in self._links:
                link.close()
            for child in children:
                os.waitpid(child, 0)
            self._links = []
            torch.set_num_threads(threads)

    def minibatch(
        self,
        model: torch.nn.Module,
        sequences: Sequence[TokenSequence],
        tokens_per_pass: int,
        compute: Callable[[int, list[TokenSequence]], Report],
    ) -> list[Report]:
        """`gradient` of a minibatch: `compute(shard, its sequences)` in passes of at most `tokens_per_pass` tokens."""
        parts = self._cut(sequences)

        def shard_report(shard: int) -> Report:
            report = compute(shard, parts[shard])
            self._pass_idly(model, parts, tokens_per_pass)
            return report

        return self.gradient(shard_report)

    def read(
        self,
        model: torch.nn.Module,
        sequences: Sequence[TokenSequence],
        tokens_per_pass: int,
        compute: Callable[[list[TokenSequence]], list[torch.Tensor]],
    ) -> dict[int, torch.Tensor]:
        """What `compute` returns for each sequence, by its id; in passes as in `minibatch`, and before `sharing`."""
        parts = self._cut(sequences)
        mine = compute(parts[self.rank])
        self._pass_idly(model, parts, tokens_per_pass)
        return {
            id(sequence): one
            for part, found in zip(parts, self.all_of(mine), strict=True)
            for sequence, one in zip(part, found, strict=True)
        }

    def all_of(self, mine: T) -> list[T]:
        """The argument of every process that holds a part of the model, in their order."""
        return [mine]

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
        for shard in range(self.rank, self.shards, self._members):
            self._forget()
            reports[shard] = compute(shard)
            for row, parameter in zip(into[shard].split(self._sizes), self._parameters, strict=True):
                if parameter.grad is None:
                    row.zero_()
                else:
                    row.copy_(parameter.grad.reshape(-1))
        self._meet(reports)
        for row, parameter in zip(into.sum(0).split(self._sizes), self._parameters, strict=True):
            parameter.grad = row.view(parameter.shape).to(parameter.dtype)
        return [reports[shard] for shard in sorted(reports)]

    def _cut(self, sequences: Sequence[TokenSequence]) -> list[list[TokenSequence]]:
        """The sequences of each shard."""
        lengths = [len(sequence.ids) for sequence in sequences]
        return [[sequences[i] for i in part] for part in cut_into_shards(lengths, self.shards)]

    def _pass_idly(self, model: torch.nn.Module, parts: list[list[TokenSequence]], tokens_per_pass: int) -> None:
        """Nothing: no other process waits for this one's share of the model."""

    def _forget(self) -> None:
        for parameter in self._parameters:
            parameter.grad = None

    def _meet(self, reports: dict[int, Report]) -> None:
        """Wait until every process has stored its gradients; the first one receives the others' reports."""
        try:
            if not self.leads:
                self._links[0].send(reports)
                self._links[0].recv()
                return
            for link in self._links:
                reports.update(link.recv())
            for link in self._links:
                link.send("all have stored theirs")
        except (EOFError, ConnectionError):
            if not self.leads:  # nobody is left to learn for
                os._exit(1)
            raise UserError("a process that computed part of the minibatches has died; see the log") from None

    def _fork(self) -> list[int]:
        """Start the other processes, which also return from here, with ranks above 0."""
        children: list[int] = []
        first = os.getpid()
        for rank in range(1, self._members):
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
