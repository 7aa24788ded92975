"""Work in a forked process: with a fault put in before it begins, and `kill -9` at a time or at a named point.

The process that forks has imported torch once, so that a hundred faults cost a hundred forks. The faults are patches
made in the child after the fork: the library has no hooks for them.
"""

from __future__ import annotations

import os
import resource
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

#: Seconds after which a child is ended without a verdict: it hangs, or the machine is too busy.
HUNG = 1800.0


class Ended(NamedTuple):
    """How a child ended: its exit status (minus the signal that ended it), what it printed, its seconds."""

    status: int
    printed: str
    seconds: float

    @property
    def last_line(self) -> str:
        """The last line that was printed."""
        lines = [line for line in self.printed.splitlines() if line.strip()]
        return lines[-1].strip() if lines else ""


def run(work: Callable[[], Any], fault: Callable[[], Any] | None = None, *, kill_after: float | None = None) -> Ended:
    """Run `work` in a child with `fault` put in first; `kill -9` of it and its children after so many seconds.

    Raises TimeoutError for a child that does not end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    began = time.monotonic()
    with tempfile.TemporaryFile() as output:
        child = os.fork()
        if child == 0:
            os._exit(_in_child(work, fault, output.fileno()))
        end = began + (HUNG if kill_after is None else kill_after)
        # The child may not have its own group yet: then it is killed alone, and has no children.
        while (ended := os.waitpid(child, os.WNOHANG))[0] == 0:
            if time.monotonic() > end:
                _kill(child)
                ended = os.waitpid(child, 0)
                if kill_after is None:
                    raise TimeoutError(f"a child took more than {HUNG:.0f} s")
                break
            time.sleep(0.002)
        output.seek(0)
        printed = output.read().decode(errors="replace")
    return Ended(os.waitstatus_to_exitcode(ended[1]), printed, time.monotonic() - began)


def _in_child(work: Callable[[], Any], fault: Callable[[], Any] | None, output: int) -> int:
    status = 1
    try:
        os.setsid()
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
        if fault is not None:
            fault()
        work()
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else 1
    except BaseException:
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except OSError:
                continue
    return status


def _kill(child: int) -> None:
    try:
        os.killpg(child, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        os.kill(child, signal.SIGKILL)


def die(*_: Any, **__: Any) -> None:
    """`kill -9` of this process by itself."""
    os.kill(os.getpid(), signal.SIGKILL)


# Faults ----------------------------------------------------------------------------------------------------------


def dies_at_rename(number: int, *, after: bool) -> Callable[[], None]:
    """A fault: the process is killed right before, or right after, its `number`th rename (from 0)."""

    def install() -> None:
        rename, count = os.replace, iter(range(10**9))

        def replace(source: Any, target: Any, **more: Any) -> None:
            mine = next(count) == number
            if mine and not after:
                die()
            rename(source, target, **more)
            if mine:
                die()

        os.replace = replace  # type: ignore[assignment]

    return install


def dies_in_write(number: int) -> Callable[[], None]:
    """A fault: of the `number`th table (from 0) half the bytes are written, then the process is killed."""

    def install() -> None:
        import pyarrow.parquet as pq

        write, count = pq.write_table, iter(range(10**9))

        def write_table(table: Any, where: Any, **more: Any) -> None:
            write(table, where, **more)
            if next(count) == number:
                os.truncate(where, Path(where).stat().st_size // 2)
                die()

        pq.write_table = write_table

    return install


def dies_in(module: str, name: str, call: int = 0) -> Callable[[], None]:
    """A fault: the process is killed as it makes its `call`th call (from 0) of a function of a module."""

    def install() -> None:
        from importlib import import_module

        owner = import_module(module)
        *inner, last = name.split(".")
        for part in inner:
            owner = getattr(owner, part)
        function, count = getattr(owner, last), iter(range(10**9))

        def wrapped(*args: Any, **more: Any) -> Any:
            return die() if next(count) == call else function(*args, **more)

        setattr(owner, last, wrapped)

    return install


def dies_in_import(module: str) -> Callable[[], None]:
    """A fault: the process is killed as it imports a module."""

    class Killing:
        def find_spec(self, name: str, *_: Any) -> None:
            if name == module:
                die()

    return lambda: sys.meta_path.insert(0, Killing())


def little_memory(more_mb: int) -> Callable[[], None]:
    """A fault: the process may have this many megabytes of address space more than it has now."""

    def install() -> None:
        now = int(Path("/proc/self/statm").read_text(encoding="utf-8").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (now + more_mb * 2**20,) * 2)

    return install


def small_files(size: int) -> Callable[[], None]:
    """A fault: no file may get longer than this (RLIMIT_FSIZE), as on a disk that is full."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
