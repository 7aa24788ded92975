"""Which errors of somebody's code say that something outside failed."""

from __future__ import annotations

import errno
import socket
import ssl
import urllib.error

import aiohttp
import httpx
import pytest
import requests
import urllib3

from turncredit.errors import OutsideFault, is_from_outside


def of(package, name, *bases, **attributes):
    """An error of a library that need not be installed."""
    return type(name, bases or (Exception,), {"__module__": f"{package}.exceptions", **attributes})("lost")


def raised(error, cause=None, *, hidden=False):
    """`error`, raised from `cause`; without one, while a lost connection was handled."""
    try:
        try:
            raise ConnectionResetError("by peer")
        except ConnectionResetError:
            if hidden:
                raise error from None
            if cause is not None:
                raise error from cause
            raise error  # noqa: B904 - what Python then keeps is the point
    except Exception as found:
        return found


def response(status):
    found = requests.Response()
    found.status_code = status
    return found


def answered(status):
    request = httpx.Request("GET", "http://tools")
    return httpx.HTTPStatusError("no", request=request, response=httpx.Response(status, request=request))


CLOSED = of("websockets", "ConnectionClosedError", type(of("websockets", "ConnectionClosed")))


@pytest.mark.parametrize(
    "error",
    [
        ConnectionResetError("by peer"),
        BrokenPipeError(),
        TimeoutError(),
        socket.gaierror(socket.EAI_AGAIN, "Temporary failure in name resolution"),
        OSError(errno.EHOSTUNREACH, "No route to host"),
        OSError(errno.ECONNREFUSED, "Connect call failed"),
        aiohttp.ServerDisconnectedError(),
        aiohttp.ClientPayloadError("half"),
        httpx.ConnectError("refused"),
        httpx.ReadTimeout("slow"),
        answered(503),
        requests.ConnectionError(),
        requests.ReadTimeout(),
        requests.HTTPError(response=response(502)),
        urllib3.exceptions.ProtocolError("broken"),
        urllib.error.HTTPError("http://tools", 504, "Gateway Timeout", None, None),  # type: ignore[arg-type]
        CLOSED,
        of("grpc", "RpcError", code=lambda _: type("Code", (), {"name": "UNAVAILABLE"})),
        OutsideFault("the server is gone"),
        raised(RuntimeError("no tool answers"), ConnectionResetError()),
        raised(KeyError("answer")),
        ExceptionGroup("unhandled errors in a TaskGroup", [ValueError("no"), httpx.ReadError("cut")]),
    ],
    ids=repr,
)
def test_a_connection_that_failed_and_a_server_that_is_down_are_outside(error):
    assert is_from_outside(error)


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("answer"),
        SystemExit(3),
        FileNotFoundError(errno.ENOENT, "No such file"),
        PermissionError(errno.EACCES, "Permission denied"),
        aiohttp.InvalidURL("tools"),
        httpx.UnsupportedProtocol("no http://"),
        answered(404),
        requests.exceptions.InvalidURL("tools"),
        requests.HTTPError(response=response(401)),
        urllib.error.HTTPError("http://tools", 404, "Not Found", None, None),  # type: ignore[arg-type]
        of("my_env", "ConnectionClosed"),
        of("grpc", "RpcError", code=lambda _: type("Code", (), {"name": "INVALID_ARGUMENT"})),
        ssl.SSLCertVerificationError(1, "certificate verify failed"),
        raised(requests.exceptions.SSLError("no"), ssl.SSLCertVerificationError(1, "certificate verify failed")),
        raised(ValueError("no"), hidden=True),
    ],
    ids=repr,
)
def test_a_mistake_in_code_in_an_address_or_in_a_request_is_not(error):
    assert not is_from_outside(error)


def test_causes_that_go_in_a_circle_come_to_an_end():
    one, other = ValueError("one"), ValueError("other")
    one.__cause__, other.__cause__ = other, one
    assert not is_from_outside(one)
