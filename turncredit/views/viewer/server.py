"""The server: one address on this machine, a token, and nothing that a request could change."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import ipaddress
import logging
import secrets
import socket
from collections.abc import Awaitable, Callable, Mapping
from functools import partial

from aiohttp import web
from markupsafe import Markup, escape

from turncredit.errors import UserError
from turncredit.views.pages.frame import asset
from turncredit.views.viewer.addresses import SCRIPTS, STYLES
from turncredit.views.viewer.sources import TABLE, Absent
from turncredit.views.viewer.viewer import Viewer

#: Where the viewer listens unless another host is asked for.
LOOPBACK = "127.0.0.1"
#: Ports that are tried, from the first one on, unless one is asked for.
PORT, TRIED = 8765, 20
#: Names of this machine in the header Host, whatever it listens on.
LOCAL = frozenset({"127.0.0.1", "localhost", "::1"})
#: Scripts and styles only from here; styles may stand in the page, because the size of a bar is one.
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
)
HEADERS = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
    "Server": "turncredit",
}
#: The page that sets the cookie and goes on to the one that was asked for.
ENTRANCE = Markup(
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>turncredit</title><link rel="icon" href="data:,">'
    '<meta http-equiv="refresh" content="0; url={0}"><p><a href="{0}">Go on</a>'
)
_TYPES = {"css": "text/css", "js": "text/javascript"}

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


def bind(host: str, port: int | None) -> socket.socket:
    """A socket that listens on `host`, at `port` or at the first free one from `PORT` on. Raises UserError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    error: OSError | None = None
    for number in range(PORT, PORT + TRIED) if port is None else [port]:
        found = socket.socket(family, socket.SOCK_STREAM)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind((host, number))
            found.listen(64)
            return found
        except OSError as caught:
            found.close()
            error = caught
    where = f"port {port}" if port is not None else f"the ports {PORT} to {PORT + TRIED - 1}"
    reason = error.strerror if error is not None else "unknown error"
    raise UserError(f"{where} of {host} cannot be used ({reason}); is another viewer there? Choose one with --port")


def application(viewer: Viewer, token: str, port: int, hosts: frozenset[str] = LOCAL) -> web.Application:
    """The server of `viewer`. A first request brings the `token`, the others a cookie; `hosts` are its own names."""
    cookie = f"turncredit-{port}"

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = _refused(request, hosts) or _admitted(request, token, cookie)
        if response is None:
            try:
                response = await handler(request)
            except web.HTTPException as error:
                response = _page(viewer.problem(error.reason, "Not found"), error.status)
        response.headers.update(HEADERS)
        return response

    app = web.Application(middlewares=[guarded])
    router = app.router
    router.add_get("/static/{name}", _static)
    router.add_get("/", _handler(viewer, lambda _: viewer.first()))
    router.add_get("/experiment/{source}", _handler(viewer, lambda request: viewer.experiment(_source(request))))
    for kind, of_source in {"compare": viewer.compare, "trail": viewer.trail}.items():
        router.add_get(f"/{kind}/{{source}}", _handler(viewer, partial(_of_source, of_source)))
    of_round = {"round": viewer.round, "group": viewer.group, "rollout": viewer.rollout, "pair": viewer.pair}
    for kind, of_one in of_round.items():
        path = f"/{kind}/{{source}}/{{round:{TABLE}|[^/]+/[^/]+/[^/]+}}"
        router.add_get(path, _handler(viewer, partial(_of_round, of_one)))
    return app


def _source(request: web.Request) -> str:
    return request.match_info["source"]


def _of_source(make: Callable[[str, Mapping[str, str]], str], request: web.Request) -> str:
    return make(_source(request), dict(request.query))


def _of_round(make: Callable[[str, str, Mapping[str, str]], str], request: web.Request) -> str:
    return make(_source(request), request.match_info["round"], dict(request.query))


def _handler(viewer: Viewer, make: Callable[[web.Request], str]) -> Handler:
    async def handle(request: web.Request) -> web.Response:
        # A page is made in a thread, so that a slow one does not keep the others waiting.
        status = 200
        try:
            text = await asyncio.to_thread(make, request)
        except Absent as error:
            text, status = viewer.problem(str(error), "Not there"), 404
        except UserError as error:
            text = viewer.problem(str(error))
        except OSError as error:
            text = viewer.problem(f"{error.filename or 'a file'}: {error.strerror or error}")
        except Exception as error:  # a mistake of ours: the other pages still work
            logging.getLogger(__name__).exception("%s", request.rel_url)
            text, status = viewer.problem(f"a mistake of the viewer's ({error!r}); the terminal has more"), 500
        tag = f'"{hashlib.sha256(text.encode()).hexdigest()[:20]}"'
        if request.headers.get("If-None-Match") == tag:
            return web.Response(status=304, headers={"ETag": tag})
        return _page(text, status, {"ETag": tag})

    return handle


async def _static(request: web.Request) -> web.Response:
    name = request.match_info["name"]
    if name not in (*STYLES, *SCRIPTS):
        raise web.HTTPNotFound(reason="there is no such file")
    return web.Response(text=str(asset(name)), content_type=_TYPES[name.rpartition(".")[2]], charset="utf-8")


def _page(text: str, status: int, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(text=text, status=status, content_type="text/html", charset="utf-8", headers=headers)


def _refused(request: web.Request, hosts: frozenset[str]) -> web.Response | None:
    """The answer to a request under a name that is not this server's, as after DNS rebinding, or that would change."""
    host = _name_of(request.headers.get("Host", ""))
    if host not in hosts:
        return web.Response(status=403, text="This server does not answer to that name.\n")
    if request.method not in ("GET", "HEAD"):
        return web.Response(status=405, text="This server only shows.\n", headers={"Allow": "GET, HEAD"})
    return None


def _name_of(host: str) -> str:
    """The header Host without its port, in lower case."""
    host = host.lower()
    return host[1:].partition("]")[0] if host.startswith("[") else host.partition(":")[0]


def _admitted(request: web.Request, token: str, cookie: str) -> web.Response | None:
    """None for a request with the cookie; for one with the token, the cookie and the way on; else a refusal.

    The way on is a page and not a redirect: a browser holds a strict cookie back from a redirect that follows a link on
    another site, such as that of a terminal in a browser.
    """
    given = request.query.get("token")
    if given is not None and _equal(given, token):
        rest = {key: value for key, value in request.query.items() if key != "token"}
        response = _page(ENTRANCE.format(escape(str(request.rel_url.with_query(rest)))), 200)
        response.set_cookie(cookie, token, httponly=True, samesite="Strict", path="/")
        return response
    if _equal(request.cookies.get(cookie, ""), token):
        return None
    return web.Response(status=403, text="Open the address that `turncredit view` printed; it has the token.\n")


def _equal(one: str, other: str) -> bool:
    # A header may have any bytes, and those that are no UTF-8 come as lone surrogates.
    return hmac.compare_digest(one.encode(errors="surrogateescape"), other.encode())


def hosts_of(host: str) -> frozenset[str]:
    """The names under which a server on `host` answers: this machine's own, where it listens on all addresses.

    A page that rebinds a name of its own to this machine (DNS rebinding) comes with that name, never with one of these.
    """
    try:
        everywhere = ipaddress.ip_address(host).is_unspecified
    except ValueError:
        everywhere = False
    if not everywhere:
        return LOCAL | {host.lower()}
    name = socket.gethostname()
    try:
        own = {str(found[4][0]) for found in socket.getaddrinfo(name, None)}
    except OSError:
        own = set()
    return LOCAL | own | {name.lower(), socket.getfqdn().lower()}


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches `host`."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def new_token() -> str:
    """A token that cannot be guessed."""
    return secrets.token_urlsafe(24)


def serve(viewer: Viewer, host: str, port: int | None, started: Callable[[str], None]) -> None:
    """Serve until Ctrl-C. `started` is told the address, with its token, once it answers. Raises UserError."""
    listening = bind(host, port)
    number, token = listening.getsockname()[1], new_token()
    shown = LOOPBACK if host in ("0.0.0.0", "::") else host
    address = f"http://{f'[{shown}]' if ':' in shown else shown}:{number}/?token={token}"
    app = application(viewer, token, number, hosts_of(host))

    async def announce(_: web.Application) -> None:
        started(address)

    app.on_startup.append(announce)
    web.run_app(app, sock=listening, print=None, access_log=None, handle_signals=True)
