"""A chat server that answers every request after a fixed time, as cheaply as Python can: python server.py PORT SECONDS.

It replaces a model's server, so that the client is measured. GET / returns the number of requests, the most at once,
and the seconds from the first to the last.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time

_BODY = json.dumps(
    {
        "id": "1",
        "object": "chat.completion",
        "created": 0,
        "model": "bench",
        "choices": [
            {
                "index": 0,
                "finish_reason": "stop",
                "message": {"role": "assistant", "content": '{"evidence": "first visit to a shelf", "role": "E"}'},
            }
        ],
        "usage": {"prompt_tokens": 900, "completion_tokens": 24, "total_tokens": 924},
    }
).encode()
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"


class Server:
    """Counts requests; answers each after `seconds`."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.count = self.busy = self.most = 0
        self.first = self.last = 0.0

    def begin(self) -> None:
        """A request has come."""
        self.first = self.first or time.monotonic()
        self.count += 1
        self.busy += 1
        self.most = max(self.most, self.busy)

    def end(self) -> None:
        """A request is answered."""
        self.busy -= 1
        self.last = time.monotonic()

    async def connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection until it closes."""
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                if head.startswith(b"GET"):
                    body = json.dumps(
                        {"count": self.count, "most": self.most, "seconds": self.last - self.first}
                    ).encode()
                else:
                    lines = head.lower().split(b"\r\n")
                    await reader.readexactly(next(int(x[15:]) for x in lines if x.startswith(b"content-length:")))
                    self.begin()
                    await asyncio.sleep(self.seconds)
                    self.end()
                    body = _BODY
                writer.write(_HEAD % len(body) + body)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()


async def main(port: int, seconds: float) -> None:
    """Serve on the loopback interface until killed."""
    server = await asyncio.start_server(Server(seconds).connection, "127.0.0.1", port, backlog=512)
    print("ready", flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]), float(sys.argv[2])))
