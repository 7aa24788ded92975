"""A process that ends when the one that started it ends, however that ends.

    python -m turncredit.processes.tether COMMAND ...      runs a command that way

Linux; elsewhere nothing is tied.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def tie() -> None:
    """From now on this process is asked to stop (SIGTERM) when its parent dies, even if that is killed outright."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the line above
            sys.exit(1)


if __name__ == "__main__":
    tie()
    os.execvp(sys.argv[1], sys.argv[1:])
