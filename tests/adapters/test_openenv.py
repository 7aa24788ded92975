"""`turncredit env serve` with OpenEnv's own client and models of its messages: `make test-adapters`."""

from __future__ import annotations

import json
import os
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

core = pytest.importorskip("openenv.core", reason="openenv is in an environment of its own: make test-adapters")
from openenv.core.env_server import types  # noqa: E402 - after the skip

TURNCREDIT = Path(__file__).parents[2] / ".venv/bin/turncredit"
SETTINGS = "{receptacles: [4, 5], distractors: [1, 2], horizon: 5}"


@pytest.fixture(scope="module", params=["household", "webshop"])
def served(request) -> Iterator[tuple[str, str]]:
    """The name of an environment and the address of its server."""
    chosen = SETTINGS if request.param == "household" else "{products: 50, horizon: 5}"
    command = [TURNCREDIT, "env", "serve", request.param, "--settings", chosen, "--port", "0", "--count", "4"]
    with subprocess.Popen(
        [*command, "--sessions", "3"], stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": "."}
    ) as server:
        line = server.stdout.readline()
        assert "by OpenEnv's protocol" in line, line
        yield request.param, line.split()[0]
        server.terminate()
        assert server.wait(20) == 0


def asked(url, body=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=20) as answer:
        return json.loads(answer.read())


def test_its_client_plays_rollouts_to_their_end(served):
    _, url = served
    with core.GenericEnvClient(base_url=url).sync() as client:
        first = client.reset(seed=1)
        assert first.observation["goal"]
        assert (first.reward, first.done) == (None, False)
        assert first.metadata["task_id"] == first.observation["metadata"]["task_id"]
        for turn in range(5):
            result = client.step({"message": "look"})
            assert result.done == (turn == 4)
            assert client.state()["step_count"] == turn + 1
        with pytest.raises(RuntimeError, match=r"the rollout has ended; reset first \(code: EXECUTION_ERROR\)"):
            client.step({"message": "look"})
        again = client.reset(seed=1)
        assert again.observation["message"] == first.observation["message"]
        assert client.state()["step_count"] == 0


def test_its_sessions_are_apart_and_bounded(served):
    _, url = served
    clients = [core.GenericEnvClient(base_url=url).sync() for _ in range(4)]
    shown = [client.reset().observation["metadata"]["task_id"] for client in clients[:3]]
    assert len(set(shown)) == 3
    clients[0].step({"message": "look"})
    assert [client.state()["step_count"] for client in clients[:3]] == [1, 0, 0]
    with pytest.raises(RuntimeError, match=r"Server at capacity: 3/3 .*CAPACITY_REACHED"):
        clients[3].reset()
    clients[0].close()
    late = core.GenericEnvClient(base_url=url).sync()
    assert late.reset().observation["goal"]
    for client in (*clients[1:], late):
        client.close()


def test_what_it_says_over_http_are_openenvs_own_models(served):
    name, url = served
    first = types.ResetResponse.model_validate(asked(f"{url}/reset", {"seed": 2, "episode_id": "mine"}))
    assert first.metadata["episode_id"] == "mine"
    body = types.StepRequest(action={"message": "look"}, episode_id="mine", timeout_s=5)
    result = types.StepResponse.model_validate(asked(f"{url}/step", body.model_dump()))
    assert result.reward is not None
    assert types.State.model_validate(asked(f"{url}/state?episode_id=mine")).step_count == 1
    assert types.HealthResponse.model_validate(asked(f"{url}/health")).status == "healthy"
    assert types.EnvironmentMetadata.model_validate(asked(f"{url}/metadata")).name == name
    schema = types.SchemaResponse.model_validate(asked(f"{url}/schema"))
    assert set(schema.observation["properties"]) == set(first.observation)
