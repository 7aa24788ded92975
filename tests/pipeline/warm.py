"""Dry runs of Snakemake in forks of a process that has imported it: importing is most of what a dry run takes.

    process = subprocess.Popen([sys.executable, warm.__file__], stdin=PIPE, stdout=PIPE, ...)

Each line of its input is a request as JSON: `folder`, `arguments`, and the files `out` and `err` for what is printed.
Each line of its output is an exit status, as `subprocess` has it. Nothing of turncredit is imported before a fork.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence

SECONDS = 900  # then a dry run is ended


def main() -> None:
    """Answer requests until the input ends."""
    import snakemake.api  # noqa: F401
    import snakemake.cli  # noqa: F401

    for line in sys.stdin:
        request = json.loads(line)
        child = os.fork()
        if not child:
            _become(**request)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(folder: str, arguments: Sequence[str], out: str, err: str) -> None:
    """What `python -m snakemake` does with these arguments in `folder`; never returns."""
    signal.alarm(SECONDS)
    status = 1
    try:
        for number, name in ((1, out), (2, err)):
            os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.chdir(folder)
        sys.path[0] = folder
        from snakemake.cli import main as snakemake

        sys.argv = ["snakemake", *arguments]
        snakemake(list(arguments))
    except SystemExit as end:
        status = int(end.code or 0)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        os._exit(status)


if __name__ == "__main__":
    main()
