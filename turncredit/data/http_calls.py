"""HTTP for whatever asks a server: a time limit for the whole answer, and no proxy before this machine's own."""

from __future__ import annotations

import ipaddress
from functools import cache
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from urllib.request import OpenerDirector, Request

_AT_ONCE = 65_536


def body_of(request: Request, seconds: float, *, directly: bool = False) -> bytes:
    """The body of the answer to a request; a server on this machine, or any (`directly`), is asked without a proxy.

    Raises TimeoutError where the answer is not complete in time, which is looked at whenever something comes.
    """
    end = monotonic() + seconds
    with _opener(directly or is_here(request.full_url)).open(request, timeout=seconds) as answer:
        parts = []
        while part := answer.read1(_AT_ONCE):
            parts.append(part)
            if monotonic() > end:
                raise TimeoutError(f"no complete answer within {seconds:g} s")
    return b"".join(parts)


@cache
def _opener(directly: bool) -> OpenerDirector:
    from urllib.request import ProxyHandler, build_opener  # not at start-up, where only `is_here` is needed

    return build_opener(ProxyHandler({})) if directly else build_opener()


def is_here(url: str) -> bool:
    """Whether a URL is of this machine by its name: localhost, or an address such as 127.0.0.1 or [::1]."""
    host = urlsplit(url).hostname or ""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")
