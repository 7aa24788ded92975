"""The warm launcher: local jobs are forked from a process that has already imported what they need.

A fresh Python that imports torch and transformers takes seconds, while many of this pipeline's jobs take less than one.
A local run therefore has a *server* (`server.py`) that has imported the libraries and nothing else. Snakemake starts a
job's script through its shell; `start` makes a tiny *client* (`client.py`) that shell. The client passes script,
streams, environment and folder to the server, which forks the job; the client ends with the job's exit status. Unusual
commands run as plain processes. benchmarks/pipeline/RESULTS.md has the measurements.

The standard library's forkserver would not do: it serves only the process that started it, so each client would need a
Python that has imported `multiprocessing`; its children run no exit handlers (atexit) of their own, use its standard
streams, and leave their own children running.

Process lifetimes: the job ends with its client (job killed), with the server, and all of them with Snakemake.
"""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

#: Imported by the server; no model, no weights, no CUDA. All jobs of a run thus use the code as it was when it began.
MODULES = (
    "turncredit.pipeline.script",
    "turncredit.pipeline.rounds",
    "pandas",  # pyarrow imports it (half a second) when a table is first built from Python values
    "pyarrow.parquet",
    "pyarrow.compute",
    "transformers.models.qwen2.modeling_qwen2",
    "turncredit.envs.household",
    "turncredit.agents.transcript",
    "turncredit.agents.window",
    "turncredit.policy.base",
    "turncredit.policy.engines.lockstep",
    "turncredit.training.sft",
    "turncredit.rollouts.rollout",
    "turncredit.training.update",
    "turncredit.rollouts.evaluate",
)
#: The server's environment; each job sets its own number of threads.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def start(*, also: tuple[str, ...] = ()) -> tuple[str | None, str]:
    """Start the server for this process, from its main thread, and return the shell that uses it.

    Returns `(path, "")`, or `(None, reason)` if it cannot work here: not Linux 5.3 or later, or a temporary folder that
    is mounted noexec or whose path is too long for a socket. The server also imports `also`. It ends, and removes its
    folder, when this process ends.
    """
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return None, "the warm launcher needs Linux 5.3 or later"
    folder = Path(tempfile.mkdtemp(prefix="turncredit-warm-"))  # mode 0700
    shell, address = folder / "warm-shell", folder / "socket"
    # -I and -S: the client only needs the standard library, and starts in 10 ms without site-packages.
    client = [sys.executable, "-IS", str(Path(__file__).with_name("client.py")), str(address)]
    shell.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n', encoding="utf-8")
    shell.chmod(0o700)
    try:
        subprocess.run([str(shell), "-c", ":"], check=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"the warm launcher cannot run programs in {folder} ({error})"
    # The socket is bound here, so that a job that starts before the server is ready waits for it.
    with socket.socket(socket.AF_UNIX) as listener, (folder / "server.log").open("wb") as log:
        try:
            listener.bind(str(address))
        except OSError as error:  # such as a path of more than 107 bytes
            shutil.rmtree(folder, ignore_errors=True)
            return None, f"the warm launcher cannot make a socket in {folder} ({error}); set TMPDIR to a shorter path"
        listener.listen(64)
        numbers = [str(listener.fileno()), str(os.getpid())]
        subprocess.Popen(
            [sys.executable, "-m", "turncredit.pipeline.launch.server", str(folder), *numbers, *also, *MODULES],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, **ONE_THREAD},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
    return str(shell), ""
