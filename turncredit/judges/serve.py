"""A vLLM server on this node for the duration of a label job."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.request import Request

from turncredit.config.judge import JudgeConfig
from turncredit.data.http_calls import body_of
from turncredit.errors import UserError

_POLL = 0.5
#: Seconds between asking a server to stop and killing it.
_PATIENCE = 20.0


@contextmanager
def serving(config: JudgeConfig) -> Iterator[JudgeConfig]:
    """Start the server, wait until it is healthy, yield the configuration with its address, stop it at the end.

    The server's output goes where this process's output goes (the job's log). It listens on this machine only, on a
    free port, in a process group of its own that ends with this process, however that ends.
    Raises UserError if the server cannot be started, dies, or is not healthy within `serve.health_timeout` seconds.
    """
    if config.serve is None:
        raise UserError("judge.serve is not set; set it to start a server")
    port = _free_port()
    if shutil.which(config.serve.python) is None:
        raise UserError(f"judge.serve: '{config.serve.python}' is not found; name an interpreter that has vLLM")
    command = [
        *(sys.executable, "-m", "turncredit.data.process_lifetime", config.serve.python),
        *("-m", "vllm.entrypoints.openai.api_server", "--model", config.model),
        *("--host", "127.0.0.1", "--port", str(port), *config.serve.args),
    ]
    # As the server starts, FlashInfer's sampler is compiled with CUDA's compiler; without one the server would end.
    environment = {"VLLM_USE_FLASHINFER_SAMPLER": "0", **os.environ}
    sys.stdout.flush()
    server = subprocess.Popen(command, start_new_session=True, env=environment)
    try:
        _wait_until_healthy(server, f"http://127.0.0.1:{port}/health", config.serve.health_timeout)
        yield config.model_copy(update={"base_url": f"http://127.0.0.1:{port}/v1"})
    finally:
        _stop(server)


def _wait_until_healthy(server: subprocess.Popen[bytes], url: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise UserError(
                f"judge.serve: the server ended with status {server.returncode} before it was ready; "
                "its output is in the job's log"
            )
        try:
            body_of(Request(url), 5)
            return
        except OSError:  # not listening yet, or not ready
            pass
        time.sleep(_POLL)
    raise UserError(f"judge.serve: the server was not healthy within {timeout:g} s; raise judge.serve.health_timeout")


def _stop(server: subprocess.Popen[bytes]) -> None:
    """End the server and the workers it has started."""
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, how)
        except ProcessLookupError:
            break
        try:
            server.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            continue
    server.wait()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]
