"""A real HTTP server that speaks the OpenAI chat protocol and misbehaves when told to."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Behaviour = Callable[["Handler", int, dict[str, Any]], None]


USAGE = {"prompt_tokens": 500, "completion_tokens": 20, "total_tokens": 520}


def completion(content: str | None, finish_reason: Any = "stop", usage: Any = USAGE) -> dict[str, Any]:
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 0,
        "model": "tiny",
        "choices": [{"index": 0, "finish_reason": finish_reason, "message": {"role": "assistant", "content": content}}],
        "usage": usage,
    }


def answer(role: str = "E", evidence: str = "first visit") -> str:
    return json.dumps({"evidence": evidence, "role": role})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: ChatServer
    counted = False  # among the requests in flight

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        with self.server.lock:
            number = len(self.server.requests)
            self.server.requests.append(body)
            self.server.headers.append({name.title(): value for name, value in self.headers.items()})
            self.server.callers.add(self.client_address)
            self.server.in_flight += 1
            self.server.most_in_flight = max(self.server.most_in_flight, self.server.in_flight)
        self.counted = True
        try:
            if self.path != "/v1/chat/completions":
                self.error(404, "no such path")
            else:
                self.server.behave(self, number, body)
        finally:
            self.leave()

    def leave(self) -> None:
        """No longer in flight: before the last byte of the answer, or the caller's next request may come first."""
        with self.server.lock:
            self.server.in_flight -= self.counted
            self.counted = False

    # What a behaviour can do.

    def say(self, content: str | None, finish_reason: Any = "stop", usage: Any = USAGE) -> None:
        self.send(200, json.dumps(completion(content, finish_reason, usage)).encode())

    def error(self, status: int, message: str, **headers: str) -> None:
        body = json.dumps({"error": {"message": message, "type": "error", "code": status}}).encode()
        self.send(status, body, **headers)

    def send(self, status: int, body: bytes, content_type: str = "application/json", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()
        self.leave()
        self.wfile.write(body)

    def half(self, content: str) -> None:
        """Promise a whole answer, send half of it, hang up."""
        body = json.dumps(completion(content)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body[: len(body) // 2])
        self.hang_up()

    def half_chunked(self, content: str) -> None:
        """Half of a chunked stream: no last chunk, then the end of the connection."""
        body = json.dumps(completion(content)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        half = body[: len(body) // 2]
        self.wfile.write(f"{len(half):x}\r\n".encode() + half + b"\r\n")
        self.hang_up()

    def half_events(self, content: str) -> None:
        """A server that streams events although it was not asked to, and stops in the middle."""
        delta = {"id": "1", "object": "chat.completion.chunk", "choices": [{"index": 0, "delta": {"content": content}}]}
        self.send(200, f"data: {json.dumps(delta)}\n\n".encode(), content_type="text/event-stream")

    def hang_up(self) -> None:
        self.wfile.flush()
        self.close_connection = True
        self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, format: str, *args: Any) -> None:
        """Silent: a test's output is its own."""


class ChatServer(ThreadingHTTPServer):
    """`with ChatServer() as server: server.behave = ...; server.url`."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int] = ("127.0.0.1", 0), handler: type[Handler] = Handler) -> None:
        super().__init__(address, handler)
        self.lock = threading.Lock()
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.in_flight = self.most_in_flight = 0
        self.callers: set[tuple[str, int]] = set()  # one for each connection
        self.behave: Behaviour = lambda handler, *_: handler.say(answer())
        self.thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> ChatServer:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, *_: Any) -> None:
        """A client that hangs up is part of the tests."""


def first(count: int, misbehave: Callable[[Handler], None]) -> Behaviour:
    """Misbehave for the first `count` requests, then answer."""

    def behave(handler: Handler, number: int, _: dict[str, Any]) -> None:
        misbehave(handler) if number < count else handler.say(answer())

    return behave


def slow(seconds: float) -> Callable[[Handler], None]:
    def misbehave(handler: Handler) -> None:
        time.sleep(seconds)
        handler.say(answer())

    return misbehave
