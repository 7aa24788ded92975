"""Run a command that ends when the process that started it ends: `python -m turncredit.judges.tether COMMAND ...`.

Linux; elsewhere the command runs without the tether.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(command: list[str]) -> None:
    """Become `command`, to be asked to stop (SIGTERM) when the parent dies, even if that is killed outright."""
    parent = os.getppid()
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:  # it died before the line above
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main(sys.argv[1:])
