"""The warm launcher: local jobs are forked from a process that has already imported what they need.

A fresh Python that imports torch and transformers takes seconds, many of this pipeline's jobs less than one. So a
local run has *servers* (`server.py`) that have imported libraries and nothing else: a light one, ready at once, for
jobs without a model, a heavy one, and a late one for what comes at the end, which waits a while so as not to take the
processor from the first jobs. Snakemake starts a job's script through its shell; `start` makes a tiny *client*
(`client.py`) that shell. The client hands script, streams, environment and folder to a server, which forks one child
for it; the client lives as long as the child and ends as the child ended. Whatever is unusual runs as a plain process
instead. docs/running.md has the measurements.

Who dies with whom: the child with its client (job killed), with its server, and all of them with Snakemake.
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

#: Imported by all servers. All jobs of a run thus use the code as it was when the run began.
LIGHT = (
    "pandas",  # pyarrow imports it, half a second, as soon as a table is made of Python's values
    "pyarrow.parquet",
    "pyarrow.compute",
    "turncredit.workflow.job",
    "turncredit.envs.household",
    "turncredit.rollouts.demos",
)
#: Imported by the heavy server as well; no model, no weights, no CUDA.
HEAVY = (
    "transformers.models.qwen2.modeling_qwen2",
    "turncredit.agents.transcript",
    "turncredit.agents.window",
    "turncredit.policy.base",
    "turncredit.policy.engines.lockstep",
    "turncredit.training.sft",
    "turncredit.rollouts.rollout",
    "turncredit.stages.credit",
    "turncredit.training.update",
    "turncredit.rollouts.evaluate",
)
#: Imported by the late server as well: statistics, pictures, and a database.
LATE = (
    "turncredit.analysis.fidelity",
    "turncredit.report.report",
    "matplotlib.backends.backend_agg",
    "matplotlib.backends.backend_svg",
    "turncredit.results.tracking",
    "mlflow.tracking",
    "mlflow.store.tracking.sqlalchemy_store",
    "sqlalchemy.dialects.sqlite",
    "alembic.command",
)
#: Seconds that the late server waits before it imports, if no job comes.
LATE_AFTER = 15
#: The server of each script (by file name); the heavy one's are not named.
SERVER_OF = {
    **dict.fromkeys(("resolved_config", "tasks", "demos"), "light"),
    **dict.fromkeys(("report", "track", "fidelity", "pages"), "late"),
}

#: Environment variables that must be the same in a server and in its job: libraries read them when imported.
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
#: What a job may have otherwise than its server: it takes over how many threads it may use.
ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
#: Read when mlflow is imported; `turncredit.results.tracking` sets the same.
NO_TELEMETRY = {"MLFLOW_DISABLE_TELEMETRY": "true"}


def start(*, also: tuple[str, ...] = ()) -> tuple[str | None, str]:
    """Start the servers for this process and return the shell that uses them.

    Returns `(path, "")`, or `(None, reason)` where it cannot work here: not Linux, no pidfd (kernel before 5.3), or
    a temporary folder in which nothing may be executed. All servers import `also`. They end, and remove their
    folder, when this process does.
    """
    if not sys.platform.startswith("linux") or not hasattr(os, "pidfd_open"):
        return None, "the warm launcher needs Linux"
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError as error:
        return None, f"the warm launcher needs pidfd ({error.strerror})"
    folder = Path(tempfile.mkdtemp(prefix="turncredit-warm-"))  # mode 0700
    shell = folder / "warm-shell"
    # -I and -S: the client needs the standard library only, and starts in 10 ms without site-packages.
    places = ",".join(f"{script}={server}" for script, server in SERVER_OF.items())
    client = [sys.executable, "-IS", str(Path(__file__).with_name("client.py")), str(folder), places]
    shell.write_text(f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n')
    shell.chmod(0o700)
    try:
        subprocess.run([str(shell), "-c", ":"], check=True, timeout=60, stdin=subprocess.DEVNULL)
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder, ignore_errors=True)
        return None, f"the warm launcher cannot run programs in {folder} ({error})"
    _serve(folder, "light", (*also, *LIGHT))
    _serve(folder, "heavy", (*also, *LIGHT, *HEAVY))
    _serve(folder, "late", (*also, *LIGHT, *LATE), wait=LATE_AFTER)
    return str(shell), ""


def _serve(folder: Path, name: str, modules: tuple[str, ...], wait: float = 0) -> None:
    """Start one server. Its socket is bound here: a job that comes before the server is ready waits for it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener, (folder / f"{name}.log").open("wb") as log:
        listener.bind(str(folder / name))
        listener.listen(64)
        numbers = [str(listener.fileno()), str(os.getpid()), str(wait)]
        command = [sys.executable, "-m", "turncredit.workflow.launch.server", str(folder), *numbers, *modules]
        subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=log,
            env={**os.environ, **ONE_THREAD, **NO_TELEMETRY},
            pass_fds=[listener.fileno()],
            start_new_session=True,
        )
