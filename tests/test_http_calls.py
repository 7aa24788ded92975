"""Asking a server over HTTP: a limit for the whole answer, and this machine's own without a proxy."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.request import Request

import pytest

from turncredit.data.http_calls import body_of, is_here
from turncredit.envs.appworld.client import Server, Unsuitable
from turncredit.envs.searchqa.retrieve import Remote
from turncredit.errors import UserError


@contextmanager
def serving(write: Callable[[BaseHTTPRequestHandler], None]) -> Iterator[str]:
    """The address of a server whose answers `write` sends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            self.send_response(200)
            self.end_headers()
            write(self)

        do_POST = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Nothing on stderr."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def drip(handler: BaseHTTPRequestHandler) -> None:
    """A space every tenth of a second, for four seconds."""
    for _ in range(40):
        try:
            handler.wfile.write(b" ")
            handler.wfile.flush()
        except OSError:
            return
        time.sleep(0.1)


def test_a_server_that_sends_a_little_now_and_then_is_given_up():
    begin = time.monotonic()
    with serving(drip) as url:
        with pytest.raises(TimeoutError, match=r"no complete answer within 0\.5 s"):
            body_of(Request(url), 0.5)
        with pytest.raises(UserError, match=r"gave no answer within 0\.5 s"):
            Remote(f"{url}/retrieve", topk=1, timeout=0.5, attempts=1).search("mug")
    assert time.monotonic() - begin < 4


def test_this_machine_s_own_server_is_asked_without_a_proxy(monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    answer = json.dumps({"result": [[{"document": {"id": 1, "contents": '"Mug"\nA cup.'}}]]}).encode()
    with serving(lambda handler: handler.wfile.write(answer)) as url:
        assert [one.title for one in Remote(url, topk=1, timeout=5, attempts=1).search("mug")] == ["Mug"]


@pytest.mark.parametrize(
    ("url", "here"),
    [
        ("http://localhost:8000/retrieve", True),
        ("http://127.0.0.1:8000", True),
        ("http://[::1]:8000", True),
        ("http://10.0.0.5:8000", False),
        ("https://retriever.example.org", False),
    ],
)
def test_which_addresses_are_this_machine_s(url, here):
    assert is_here(url) is here


def test_a_server_that_is_not_appworld_s_is_named():
    with serving(lambda handler: handler.wfile.write(b"{}")) as url:
        with pytest.raises(Unsuitable, match=rf"{url} is not an AppWorld environment server: it answered /initialize"):
            Server(url).call("initialize", 5.0)
        with pytest.raises(Unsuitable, match="is not an AppWorld environment server: it answered /tasks/x"):
            Server(url).task("x", 5.0)
