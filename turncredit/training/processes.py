"""The processes of a job that train together, one a GPU: on one node or on several.

    result = launched(4, train, ...)                          # four processes here
    result = launched(16, train, ..., start_others=start)     # eight here, eight on the other node of two

    def start(port):                                          # starts a program on each other node, which calls
        return {"node2": Popen(...)}                          # joined(Node(1, 2, "node1", port), 16, train, ...)

    def train(..., team):                                     # runs in each process (`turncredit.training.fsdp`)
        ...

The first node holds a store (torch's TCPStore), through which processes find one another. A failure is written there
as well: every node then ends its processes, and the first node raises the error. Without a GPU the processes use the
CPU and gloo.
"""

from __future__ import annotations

import gc
import json
import multiprocessing
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from multiprocessing.connection import wait
from typing import Any, cast

import torch
import torch.distributed as dist

from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import OutOfTime, UserError
from turncredit.training.fsdp import FsdpTeam
from turncredit.training.team import T

#: Seconds between two looks at the processes; that a node's processes, and then its program, have to end by themselves
#: when something has failed, before they are killed.
LOOK_EVERY, PROCESSES_END, PROGRAMS_END = 0.1, 3.0, 15.0
#: How long processes wait for each other: the first one may write the state of a large update, or read its base, and
#: the others wait for it. A process that has ended is noticed by the store.
WAIT = timedelta(hours=6)
#: Keys of the store: the first error of a process, and a node's message about a process that could not report.
RAISED, KILLED = "raised", "killed"
#: The exit status of another node's program that has said in the store what failed.
SAID = 1


@dataclass(frozen=True)
class Node:
    """One of the nodes that train together: its number, counted from 0, and the address of the first one's store."""

    number: int = 0
    count: int = 1
    address: str = "localhost"
    port: int = 0

    def store(self) -> dist.TCPStore:
        """The first node's store."""
        return dist.TCPStore(self.address, self.port, is_master=False)

    def says(self, what: str) -> str:
        """`what`, with the name of this node if there are several."""
        return f"on node {name_of_this_node()}: {what}" if self.count > 1 else what


def name_of_this_node() -> str:
    """Slurm's name of this machine, or its own."""
    return os.environ.get("SLURMD_NODENAME") or os.uname().nodename


class ProcessFailed(RuntimeError):
    """A process that trains has failed."""


def launched(
    processes: int,
    function: Callable[..., T],
    *arguments: Any,
    start_others: Callable[[int], Mapping[str, subprocess.Popen[Any]]] = lambda port: {},  # noqa: ARG005
) -> T:
    """What `function(*arguments, team)` returns in the first of `processes` processes, which all nodes share evenly.

    On GPUs they are fresh processes, so the function and its arguments must be picklable. `start_others` gets the port
    of this node's store; it starts the programs of the other nodes, and returns them by the nodes' names. Raises
    UserError for a node with too few GPUs, the UserErrors of the function, and ProcessFailed for any other failure.
    """
    store = dist.TCPStore("localhost", 0, is_master=True, wait_for_workers=False)
    others = start_others(store.port)
    node = Node(count=1 + len(others), port=store.port)
    try:
        result = _result(node, store, processes, function, arguments, others)
        if result is None:
            raise _error(store, _statuses(others))
        return cast("T", result[0])
    finally:
        for program in others.values():
            _end(program)


def joined(node: Node, processes: int, function: Callable[..., Any], *arguments: Any) -> None:
    """Run this node's part of the processes that the first node's `launched` has started.

    Ends this program if anything fails on any node.
    """
    store = node.store()
    try:
        fine = _result(node, store, processes, function, arguments, {}) is not None
    except dist.DistError:  # the first node is gone
        fine = False
    if not fine:
        raise SystemExit(SAID)


def _result(
    node: Node,
    store: dist.TCPStore,
    processes: int,
    function: Callable[..., T],
    arguments: Sequence[Any],
    others: Mapping[str, subprocess.Popen[Any]],
) -> tuple[T | None] | None:
    """Run this node's processes to their end: what the first returns, in a tuple. None if anything fails on any node.

    The store then has the reason, unless another node has lost its program.
    """
    try:
        _check_gpus(node, processes)
    except UserError as error:
        _raised(store, error, str(error))
        return None
    with _processes(node, processes, function, arguments) as (team, results):
        result = None
        while True:
            living = [one.sentinel for one in team if one.exitcode is None]
            if not results.empty():  # before the first process can end
                result = results.get()
            failed = any(one.exitcode for one in team) or any(program.poll() for program in others.values())
            if failed or store.check([RAISED]) or store.check([KILLED]):
                _say_of_killed(node, store, team)
                return None
            if not living:
                return (result,)
            wait(living, LOOK_EVERY)


def _check_gpus(node: Node, processes: int) -> None:
    here = processes // node.count
    if torch.cuda.is_available() and torch.cuda.device_count() < here:
        raise UserError(
            node.says(
                f"training takes {here} GPUs (policy.train_gpus), but this job sees {torch.cuda.device_count()}; ask "
                "for as many (resources), or lower train_gpus"
            )
        )


@contextmanager
def _processes(
    node: Node, processes: int, function: Callable[..., Any], arguments: Sequence[Any]
) -> Iterator[tuple[list[Any], Any]]:
    """This node's processes, which end with the block, and the queue into which the first of all puts its result."""
    import torch.distributed.fsdp  # for all processes, if they are forks of this one

    # A process that has used a GPU cannot fork one that does.
    context: Any = multiprocessing.get_context("spawn" if torch.cuda.is_available() else "fork")
    # A fork that collects a store waits for ever for the store's thread, which it does not have.
    gc.collect()
    results = context.SimpleQueue()
    here = processes // node.count
    team = [
        context.Process(target=_process, args=(os.getpid(), node, number, here, results, function, arguments))
        for number in range(here)
    ]
    try:
        for one in team:
            one.start()
        yield team, results
    finally:
        for one in team:
            if one.pid is not None:
                one.kill()
                one.join()


def _process(
    first: int,
    node: Node,
    number: int,
    here: int,
    results: Any,
    function: Callable[..., Any],
    arguments: Sequence[Any],
) -> None:
    """One of the `here` processes of a node, of which `first` has started them."""
    end_with_parent(parent=first)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the process that has started this one decides
    os.environ["LOCAL_RANK"] = str(number)
    if torch.cuda.is_available():
        torch.cuda.set_device(number)
    else:
        torch.set_num_threads(1)
    store = node.store()
    rank, world = node.number * here + number, node.count * here
    backend = "nccl" if torch.cuda.is_available() else "gloo"
    try:
        dist.init_process_group(
            backend, store=dist.PrefixStore("group", store), rank=rank, world_size=world, timeout=WAIT
        )
        result = function(*arguments, FsdpTeam())
        dist.destroy_process_group()
    except UserError as error:
        _raised(store, error, str(error))
        raise SystemExit(1) from None
    except Exception as error:
        _raised(store, error, node.says(f"{type(error).__name__}: {error}"))
        raise
    if rank == 0:
        results.put(result)


def _raised(store: dist.TCPStore, error: Exception, text: str) -> None:
    """Write an error into the store. The first one stays: when a process ends, others lose their connections to it."""
    kind = next((one for one in (OutOfTime, UserError) if isinstance(error, one)), ProcessFailed)
    with suppress(dist.DistError):  # the first node is gone
        store.compare_set(RAISED, "", json.dumps([kind.__name__, text]))


def _say_of_killed(node: Node, store: dist.TCPStore, team: Sequence[Any]) -> None:
    """After a failure: give processes the time to end by themselves, and say which were killed."""
    ends = time.monotonic() + PROCESSES_END
    while (living := [one.sentinel for one in team if one.exitcode is None]) and (left := ends - time.monotonic()) > 0:
        wait(living, left)
    for one in team:
        if one.exitcode is not None and one.exitcode < 0:
            name = signal.Signals(-one.exitcode).name
            store.set(KILLED, node.says(f"a process that trains was killed ({name})"))


def _statuses(others: Mapping[str, subprocess.Popen[Any]]) -> dict[str, int]:
    """The exit statuses of the other nodes' programs that end by themselves."""
    ends = time.monotonic() + PROGRAMS_END
    for program in others.values():
        with suppress(subprocess.TimeoutExpired):
            program.wait(max(0.0, ends - time.monotonic()))
    return {name: program.returncode for name, program in others.items() if program.returncode is not None}


def _end(program: subprocess.Popen[Any]) -> None:
    """Wait until a program has ended; end it if it does not by itself."""
    for end in (program.terminate, program.kill):
        try:
            program.wait(PROGRAMS_END)
        except subprocess.TimeoutExpired:
            end()
    program.wait()


def _error(store: dist.TCPStore, statuses: Mapping[str, int]) -> Exception:
    """What has failed. A process that was killed comes first: the others' errors may be that they have lost it."""
    if store.check([KILLED]):
        return ProcessFailed(store.get(KILLED).decode())
    for name, status in statuses.items():
        if status not in (0, SAID):
            return ProcessFailed(f"on node {name}: the program that trains has ended (exit status {status})")
    if store.check([RAISED]):
        kind, text = json.loads(store.get(RAISED))
        return {one.__name__: one for one in (OutOfTime, UserError, ProcessFailed)}[kind](text)
    where = next((f"on node {name}: " for name, status in statuses.items() if status), "")
    return ProcessFailed(f"{where}a training process exited without an error message")
