"""AppWorld's own environment server, without its data: what it takes, and how it answers what it cannot do.

`make test-adapters` installs it in an environment of its own. Nothing of its content is read: it has none without data.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import time
import urllib.request
from pathlib import Path

import pytest

from turncredit.envs.appworld import Settings
from turncredit.envs.appworld.client import Server, ServerLost, Unsuitable
from turncredit.envs.appworld.servers import Servers
from turncredit.errors import UserError

ROOT = Path(__file__).resolve().parents[2]
PYTHON = Path(os.environ.get("TURNCREDIT_APPWORLD_PYTHON", ROOT / ".venv-appworld/bin/python"))
pytestmark = pytest.mark.skipif(not PYTHON.exists(), reason=f"no AppWorld at {PYTHON}: make test-adapters")

#: what the client sends, by method, besides the task's id
SENT = {
    "initialize": {"experiment_name", "timeout_seconds", "max_interactions"},
    "execute": {"code"},
    "task_completed": set(),
    "evaluate": {"suppress_errors", "report"},
}


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    code = f"from appworld.serve.environment import run; run(port={port})"
    folder = tmp_path_factory.mktemp("appworld")
    with subprocess.Popen([PYTHON, "-c", code], cwd=folder, stderr=subprocess.DEVNULL, stdout=subprocess.DEVNULL) as it:
        found, deadline = Server(f"http://127.0.0.1:{port}"), time.monotonic() + 120
        while not found.ready(2):
            assert it.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.2)
        yield found
        it.kill()


def test_it_has_the_methods_that_the_client_calls_with_the_arguments_that_it_sends(server):
    with urllib.request.urlopen(f"{server.url}/openapi.json", timeout=20) as answer:
        api = json.loads(answer.read())
    for method, sent in SENT.items():
        body = api["paths"][f"/{method}"]["post"]["requestBody"]["content"]["application/json"]["schema"]
        schema = api["components"]["schemas"][body["$ref"].rpartition("/")[2]]
        assert {"task_id", *sent} <= schema["properties"].keys()
        assert set(schema.get("required", ())) <= {"task_id", *sent}
    assert "get" in api["paths"]["/tasks/{task_id}"]


def test_what_it_cannot_do_is_a_lost_server_and_a_wrong_call_is_told_apart(server):
    with pytest.raises(ServerLost, match=r"asked for /initialize, answered 500: Internal Server Error"):
        server.call("initialize", 30, task_id="82e2fac_1")
    with pytest.raises(ServerLost, match=r"asked for /execute, answered 500"):
        server.call("execute", 30, task_id="82e2fac_1", code="1")
    with pytest.raises(ServerLost, match=r"asked for /tasks/82e2fac_1, answered 500"):
        server.task("82e2fac_1", 30)
    with pytest.raises(Unsuitable, match=r"answered 422: .*task_id.*field required"):
        server.call("initialize", 30)


def test_no_real_value_of_ground_truth_mode_is_accepted_which_is_why_none_is_sent(server):
    for mode in ("full", "minimal"):
        with pytest.raises(Unsuitable, match="permitted: 'fullminimal'"):
            server.call("initialize", 30, task_id="82e2fac_1", ground_truth_mode=mode)


def test_without_its_data_it_does_not_start_and_says_so_in_one_line(tmp_path):
    settings = Settings(root=str(tmp_path), command=str(PYTHON.parent / "appworld"))
    with pytest.raises(UserError, match=r"serve environment --port \d+ .* ended: .*Did not find any ./data") as error:
        Servers(settings).lend()
    assert "\n" not in str(error.value)
