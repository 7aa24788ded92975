"""A viewer's server in a thread of this process, and requests to it."""

from __future__ import annotations

import asyncio
import http.client
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from aiohttp import web

from turncredit.views.viewer.server import LOCAL, LOOPBACK, application, bind
from turncredit.views.viewer.viewer import Viewer

TOKEN = "a-token-of-the-tests"


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    text: str


@dataclass(frozen=True)
class Served:
    """A server; `get` sends what a browser sends that has opened the address with the token."""

    port: int

    @property
    def address(self) -> str:
        return f"http://{LOOPBACK}:{self.port}"

    @property
    def cookie(self) -> dict[str, str]:
        return {"Cookie": f"turncredit-{self.port}={TOKEN}"}

    def get(self, path: str, headers: Mapping[str, str] | None = None, *, method: str = "GET") -> Answer:
        """The answer to a request; `headers` take the place of the cookie."""
        connection = http.client.HTTPConnection(LOOPBACK, self.port, timeout=60)
        try:
            connection.request(method, path, headers=dict(self.cookie if headers is None else headers))
            answer = connection.getresponse()
            return Answer(answer.status, dict(answer.getheaders()), answer.read().decode())
        finally:
            connection.close()


@contextmanager
def served(viewer: Viewer, hosts: frozenset[str] = LOCAL) -> Iterator[Served]:
    """A server of `viewer` until the block ends."""
    listening = bind(LOOPBACK, None)
    port = listening.getsockname()[1]
    loop = asyncio.new_event_loop()
    runner = web.AppRunner(application(viewer, TOKEN, port, hosts))
    ready = threading.Event()

    async def start() -> None:
        await runner.setup()
        await web.SockSite(runner, listening).start()
        ready.set()

    def run() -> None:
        asyncio.set_event_loop(loop)
        loop.run_until_complete(start())
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert ready.wait(30)
    try:
        yield Served(port)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(30)
