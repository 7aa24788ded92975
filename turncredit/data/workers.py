"""Forked processes that share one piece of work; their results arrive in the order in which they are found."""

from __future__ import annotations

import multiprocessing
import signal
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection, wait
from typing import Any, TypeVar, cast

from turncredit.data.process_lifetime import end_with_parent
from turncredit.errors import OutsideFault, UserError

T = TypeVar("T")


def gathered(work: Callable[[int], Iterable[T]], processes: int) -> Iterator[T]:
    """Yield what `work(0)` to `work(processes - 1)` yield, each run in its own process, as soon as it arrives.

    The processes are forked, so `work` may use everything in this process, which must not have initialised CUDA. Each
    uses one thread, and its own GPU if there are any. They end with this process and when the caller stops iterating.

    Raises the error of the first process that fails: its UserError, or a RuntimeError with its message.
    """
    context = multiprocessing.get_context("fork")
    running: dict[Connection, multiprocessing.process.BaseProcess] = {}
    try:
        for number in range(processes):
            receiver, sender = context.Pipe(duplex=False)
            process = context.Process(target=_run, args=(work, number, sender), daemon=True)
            process.start()
            sender.close()  # the pipe then closes when the process ends
            running[receiver] = process
        while running:
            for receiver in cast(list[Connection], wait(list(running))):
                kind, value = _next(receiver, running)
                if kind == "found":
                    yield value
                elif kind == "done":
                    running.pop(receiver).join()
                    receiver.close()
                elif kind == "mistake":
                    raise UserError(value)
                elif kind == "outside":
                    raise OutsideFault(value)
                else:
                    raise RuntimeError(f"a forked process failed: {value}")
    finally:
        for receiver, process in running.items():
            process.kill()
            process.join()
            receiver.close()


def _next(receiver: Connection, running: dict) -> tuple[str, Any]:
    try:
        return receiver.recv()
    except EOFError:
        running[receiver].join()
        return "failed", f"it ended early, with status {running[receiver].exitcode}"


def _run(work: Callable[[int], Iterable[T]], number: int, sender: Connection) -> None:
    """In the forked process: send results, then how it ended."""
    for interrupt in (signal.SIGINT, signal.SIGTERM):
        signal.signal(interrupt, signal.SIG_DFL)
    end_with_parent()
    _settle(number)
    try:
        for value in work(number):
            sender.send(("found", value))
        sender.send(("done", None))
    except UserError as error:
        sender.send(("outside" if isinstance(error, OutsideFault) else "mistake", str(error)))
    except Exception as error:
        traceback.print_exc()
        sender.send(("failed", f"{type(error).__name__}: {error}"))


def _settle(number: int) -> None:
    torch = sys.modules.get("torch")
    if torch is None:  # work without a model
        return
    torch.set_num_threads(1)
    if torch.cuda.is_available():
        torch.cuda.set_device(number % torch.cuda.device_count())
