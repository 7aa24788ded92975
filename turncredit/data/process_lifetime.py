"""Process lifetimes: processes that end with their parent, and no orphans left behind.

    python -m turncredit.data.process_lifetime COMMAND ...      runs a command that ends with its parent

On Linux; elsewhere a process is not tied to its parent.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36


def end_with_parent(number: int = signal.SIGTERM, *, parent: int | None = None) -> None:
    """Have the kernel send this process the signal `number` when its parent dies, even if that is killed outright.

    If the process `parent` has ended already, so does this one. The kernel watches the *thread* that started it.
    """
    parent = parent or os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)
        if os.getppid() != parent:  # the parent died before the call above
            sys.exit(1)


def adopt_orphans() -> None:
    """Become the parent of every process below this one whose own parent ends (Linux)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def kill_descendants() -> None:
    """Kill everything below this process, which must have called `adopt_orphans`, and wait until it has ended."""
    listing = Path(f"/proc/self/task/{os.getpid()}/children")
    while pids := [int(pid) for pid in listing.read_text(encoding="utf-8").split()]:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
        for pid in pids:
            os.waitpid(pid, 0)


if __name__ == "__main__":
    end_with_parent()
    os.execvp(sys.argv[1], sys.argv[1:])
