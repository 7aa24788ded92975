"""A client of one AppWorld environment server, over HTTP (appworld 0.1.3, `appworld serve environment`).

Every call is `POST /<method>` with the task's id, answered by {"output": ...}; `GET /tasks/<id>` describes a task.
"""

from __future__ import annotations

import http.client
import json
import urllib.error
import urllib.request
from contextlib import suppress
from typing import Any

from turncredit.data.http_calls import body_of


class ServerLost(Exception):
    """The server has ended, hangs, or has gone wrong: the call can be made again on another one."""


class Unsuitable(Exception):
    """The server says that the call itself is wrong."""


class Server:
    """A server's address. It has one world at a time."""

    def __init__(self, url: str):
        self.url = url.rstrip("/")

    def call(self, method: str, seconds: float, **arguments: Any) -> Any:
        """The output of `POST /<method>`. Raises ServerLost and Unsuitable, with a line that names the server."""
        return self._output(f"/{method}", self._ask(f"/{method}", seconds, json.dumps(arguments).encode()))

    def task(self, task_id: str, seconds: float) -> dict[str, Any]:
        """A task: its instruction, supervisor and date. Raises ServerLost and Unsuitable."""
        return self._output(f"/tasks/{task_id}", self._ask(f"/tasks/{task_id}", seconds))

    def ready(self, seconds: float) -> bool:
        """Whether it answers."""
        try:
            self._ask("/", seconds)
        except (ServerLost, Unsuitable):
            return False
        return True

    def _ask(self, path: str, seconds: float, body: bytes | None = None) -> Any:
        request = urllib.request.Request(self.url + path, data=body, headers={"Content-Type": "application/json"})
        what = f"the AppWorld server {self.url}, asked for {path},"
        try:
            return json.loads(body_of(request, seconds, directly=True))
        except urllib.error.HTTPError as error:
            said = b""
            with suppress(OSError, http.client.HTTPException):  # it hangs or breaks off before the end of its message
                said = error.read(2000)
            message = " ".join(said.decode(errors="replace").split())[:300]
            kind = Unsuitable if error.code < 500 else ServerLost
            raise kind(f"{what} answered {error.code}: {message}") from None
        except TimeoutError:
            raise ServerLost(f"{what} did not answer within {seconds:g} s") from None
        except (OSError, ValueError) as error:  # refused, cut off, or no JSON
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            if isinstance(reason, TimeoutError):
                raise ServerLost(f"{what} did not answer within {seconds:g} s") from None
            raise ServerLost(f"{what} cannot be reached: {reason or type(reason).__name__}") from None
        except http.client.HTTPException as error:
            raise ServerLost(f"{what} broke off: {type(error).__name__}") from None

    def _output(self, path: str, answer: Any) -> Any:
        if not isinstance(answer, dict) or "output" not in answer:
            raise Unsuitable(
                f"{self.url} is not an AppWorld environment server: it answered {path} without an 'output'"
            )
        return answer["output"]
