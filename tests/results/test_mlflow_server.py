"""The import to a real `mlflow server`; skipped where the package `mlflow` with its server is not installed."""

from __future__ import annotations

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from tests.results import synthetic
from turncredit.views import tracking
from turncredit.views.collect import read_config

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(importlib.util.find_spec(name) for name in ("flask", "fastapi")),
        reason="needs MLflow's server, which mlflow-skinny leaves out (make mlflow installs it)",
    ),
]


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server with an empty database."""
    folder = tmp_path_factory.mktemp("mlflow")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    stores = ("--backend-store-uri", f"sqlite:///{folder}/server.db", "--artifacts-destination", str(folder / "files"))
    with (folder / "server.log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "mlflow", "server", "--port", str(port), "--workers", "1", *stores],
            cwd=folder,
            env={**os.environ, "MLFLOW_DISABLE_TELEMETRY": "true", "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        uri = f"http://127.0.0.1:{port}"
        _wait_for(f"{uri}/health", folder / "server.log")
        yield uri
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)


def _wait_for(url: str, log: Path, seconds: float = 400) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            time.sleep(0.5)
    raise RuntimeError(f"mlflow server does not answer:\n{log.read_text(encoding='utf-8')[-3000:]}")


def seen(uri: str, experiment: str) -> dict[str, dict[str, float]]:
    """The last value of each metric, by the name of its run."""
    from mlflow.tracking import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return {run.info.run_name: run.data.metrics for run in client.search_runs([found.experiment_id])}


def test_a_server_and_a_file_get_the_same_runs_and_numbers(server, tmp_path, monkeypatch):
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    config = synthetic.experiment(methods=["flat_grpo", "random_credit"], seeds=[0], rounds=2, games=6)
    folder = synthetic.make(tmp_path, config)
    offline = tracking.track(experiment=read_config(folder), results=folder)
    monkeypatch.setenv("MLFLOW_TRACKING_URI", server)
    assert tracking.track(experiment=read_config(folder), results=folder) == offline
    name = read_config(folder).experiment
    there = seen(server, name)
    assert "flat_grpo/seed0/round02" in there
    assert there == seen(f"sqlite:///{folder}/mlflow.db", name)
    again = tracking.track(experiment=read_config(folder), results=folder)
    assert again == {"imported": 0, "known": offline["imported"]}
    assert seen(server, name) == there
