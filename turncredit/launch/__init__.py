"""The warm launcher: local jobs are forked from a process that has already imported the heavy libraries.

A fresh Python that imports torch and transformers takes seconds, many of this pipeline's jobs less than one. So a
local run has one *server* (`server.py`) that has imported those libraries and nothing else. Snakemake starts a job's
script through its shell; `start` makes a tiny *client* (`client.py`) that shell. The client hands script, streams,
environment and folder to the server, which forks one child for it; the client lives as long as the child and ends as
the child ended. Whatever is unusual is run as a plain process instead. docs/running.md has the measurements.

Who dies with whom: the child with its client (job killed), with the server, and all of them with Snakemake.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

#: What the server imports, in this order, answering jobs in between: an early light job need not wait for the rest.
MODULES = (
    "numpy",
    "pyarrow",
    "pyarrow.compute",
    "pyarrow.parquet",
    "pydantic",
    "yaml",
    "torch",
    "tokenizers",
    "safetensors.torch",
    "transformers",
    "transformers.models.qwen2.modeling_qwen2",
)

#: Environment variables that must be the same in the server and in a job: libraries read them when imported.
SAME_ENV = (
    "PYTHON",
    "OMP_",
    "MKL_",
    "OPENBLAS_",
    "KMP_",
    "TORCH",
    "CUDA",
    "LD_",
    "HF_",
    "TRANSFORMERS_",
    "TOKENIZERS_",
)
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")


def start(*, first: tuple[str, ...] = (), parent: int | None = None) -> tuple[str | None, str]:
    """Start the server for the process `parent` (this one, if None) and return the shell that uses it.

    Returns `(path, "")`, or `(None, reason)` where it cannot work here: not Linux, no pidfd (kernel before 5.3), or
    a temporary folder in which nothing may be executed. The server imports `first`, then `MODULES`; it ends, and
    removes its folder, when `parent` does.
    """
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return None, "it needs Linux"
    parent = os.getpid() if parent is None else parent
    try:
        os.close(os.pidfd_open(parent))
    except OSError as error:
        return None, f"this kernel has no pidfd ({error.strerror})"
    folder = Path(tempfile.mkdtemp(prefix="turncredit-warm-"))  # mode 0700
    shell = folder / "warm-shell"
    client = Path(__file__).with_name("client.py")
    # -I and -S: the client needs the standard library only, and starts in 10 ms without site-packages.
    command = shlex.join([sys.executable, "-IS", str(client), str(folder)])
    shell.write_text(f'#!/bin/sh\nexec {command} "$@"\n')
    shell.chmod(0o700)
    try:
        subprocess.run([str(shell), "-c", ":"], check=True, timeout=30, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"{folder} does not run programs ({error})"
    subprocess.Popen(
        [sys.executable, "-m", "turncredit.launch.server", str(folder), str(parent), *first, *MODULES],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=(folder / "log").open("wb"),
        env={**os.environ, **ONE_THREAD},
        start_new_session=True,
    )
    return str(shell), ""
