"""An environment served by the protocol of OpenEnv (the package openenv 0.10.0), for other trainers.

WebSocket `/ws`: one session for each connection, which plays rollout after rollout. Messages are JSON:

    {"type": "reset", "data": {"seed": 3}}          -> {"type": "observation", "data": {observation, reward, done}}
    {"type": "step", "data": {"message": "look"}}   -> the same
    {"type": "state"}                               -> {"type": "state", "data": {"episode_id", "step_count", ...}}
    {"type": "close"}                               ends the connection
    anything else                                   -> {"type": "error", "data": {"message", "code"}}

HTTP: `POST /reset`, `POST /step`, `GET /state`, and `GET /health`, `/metadata`, `/schema`. OpenEnv's own server opens a
fresh environment for every HTTP request, so nothing can be played. Here a rollout is continued by the `episode_id` that
`/reset` was given or has returned. Sessions of both kinds are bounded in number, and end when they are idle.

An environment may run in another process (`Environment.guarded`), ask another machine (`Environment.remote`), or be
the user's own. It is then called in a thread, one call at a time, so that a call that hangs stops neither the server
nor its end.

The server is aiohttp, which the package depends on anyway. OpenEnv's own needs FastAPI, uvicorn and websockets.
"""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from itertools import cycle
from typing import Any, TypeVar

from aiohttp import WSCloseCode, WSMsgType, web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

import turncredit
from turncredit import envs
from turncredit.config import validated
from turncredit.envs.environment import Environment
from turncredit.envs.guard import open_guarded
from turncredit.errors import UserError
from turncredit.rollouts.tasks import split_rows

T = TypeVar("T")

MAX_BYTES = 1 << 20
"""Of a message; a longer one is refused."""
HEARTBEAT = 30.0
"""Seconds between pings, which show whether a client is still connected."""
PATIENCE = 60.0
"""Seconds after which a guarded environment's engine hangs: it is ended, and the call starts it again."""
CALL_SECONDS = 60.0
"""Seconds that a call of the user's own environment may take."""

#: HTTP status by error code; 400 for the others
STATUS = {"CAPACITY_REACHED": 503, "SESSION_ERROR": 404, "INVALID_JSON": 422, "VALIDATION_ERROR": 422}


class Action(BaseModel):
    """An action: the command, as the environment wants it."""

    model_config = ConfigDict(extra="forbid")

    message: str = Field(description="the command, such as: go to fridge 1")
    metadata: dict[str, Any] = Field(default_factory=dict)


class Observation(BaseModel):
    """What the environment shows. `reward` and `done` stand beside it, not in it."""

    message: str = Field(description="the environment's text")
    goal: str = Field(description="the task")
    admissible: list[str] | None = Field(description="the actions that are allowed now, if they can be listed")
    success: bool = Field(description="whether the goal is reached")
    valid: bool = Field(description="whether the last action was understood and allowed")
    metadata: dict[str, Any] = Field(description="task_id, family and episode_id")


class State(BaseModel):
    """Where a session is."""

    episode_id: str | None = None
    step_count: int = 0
    task_id: str | None = None
    score: float = Field(0.0, description="the sum of the rewards so far")
    done: bool = False


class Reset(BaseModel):
    """What a reset may say; further keys are ignored, as OpenEnv ignores them."""

    seed: int | None = Field(None, ge=0, description="the same seed opens the same task; without it, the next one")
    episode_id: str | None = Field(None, max_length=255)
    task_id: str | None = Field(None, description="opens this task")


class HttpStep(BaseModel):
    """The body of `POST /step`; further keys are ignored."""

    action: dict[str, Any]
    episode_id: str


class Refused(Exception):
    """A message that cannot be answered, with OpenEnv's code for it."""

    def __init__(self, code: str, message: str, **more: Any):
        super().__init__(message)
        self.data = {"message": message, "code": code, **more}


#: what an answer reports as an error
MISTAKES = (Refused, UserError, ValidationError)


def described(error: Exception) -> dict[str, Any]:
    """The message and the code of one of the `MISTAKES`; of an invalid message also its `errors`."""
    if isinstance(error, Refused):
        return error.data
    if isinstance(error, ValidationError):
        errors = json.loads(error.json(include_url=False, include_input=False))
        return {"message": "Invalid message", "code": "VALIDATION_ERROR", "errors": errors}
    return {"message": str(error), "code": "EXECUTION_ERROR"}


def parsed(raw: str | bytes) -> Any:
    """A message's JSON. Raises Refused."""
    try:
        return json.loads(raw)
    except (ValueError, RecursionError) as error:
        raise Refused("INVALID_JSON", f"Invalid JSON: {error}") from None


class Served:
    """An environment and the tasks of one of its splits. Sessions that ask for no task get them in turn."""

    def __init__(self, environment: Environment, settings: Any, rows: Sequence[Mapping[str, Any]]):
        self.environment, self.settings, self.rows = environment, settings, rows
        self._by_id = {row["task_id"]: row for row in rows}
        self._next = cycle(rows)
        self._ours = envs.is_ours(environment) and not environment.concurrent
        remote = environment.remote is not None and environment.remote(settings)
        self.waits = environment.guarded or remote or not self._ours

    def open(self, task: Mapping[str, Any]) -> Any:
        """A fresh rollout of a task. An environment of the user's own is guarded: its errors name it and the task."""
        if not self._ours:
            return open_guarded(self.environment, task, self.settings, CALL_SECONDS)
        assert self.environment.open_task is not None
        return self.environment.open_task(task, self.settings)

    def task(self, options: Reset) -> Mapping[str, Any]:
        """The task that a reset asks for. Raises Refused for an unknown one."""
        if options.task_id is not None:
            if options.task_id not in self._by_id:
                raise Refused("EXECUTION_ERROR", f"unknown task_id '{options.task_id}'")
            return self._by_id[options.task_id]
        return next(self._next) if options.seed is None else self.rows[options.seed % len(self.rows)]


class Session:
    """One client's rollouts, one after the other."""

    def __init__(self, served: Served):
        self._served, self.state = served, State()
        self._env: Any = None
        self._task: Mapping[str, Any] = {}
        self.used = time.monotonic()

    def reset(self, options: Reset) -> dict[str, Any]:
        """Start a rollout; the first observation, without a reward."""
        task = self._served.task(options)
        self.close()
        self._env = self._served.open(task)
        self._task = task
        self.state = State(episode_id=options.episode_id or uuid.uuid4().hex, task_id=task["task_id"])
        return self._shown(self._env.reset(), None, success=False, valid=True)

    def step(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Carry out an action; the observation, the reward and whether the rollout has ended.

        Raises Refused where there is no rollout to continue, and ValidationError for what is not an action.
        """
        action = Action.model_validate(data)
        if self._env is None:
            raise Refused("EXECUTION_ERROR", "there is no rollout yet; reset first")
        if self.state.done:
            raise Refused("EXECUTION_ERROR", "the rollout has ended; reset first")
        step = self._env.step(action.message)
        self.state.step_count += 1
        self.state.score += step.reward
        self.state.done = step.done
        return self._shown(step.observation, step.reward, success=step.success, valid=step.valid)

    def close(self) -> None:
        """Release the running environment."""
        if self._env is not None:
            self._env.close()
            self._env = None

    def _shown(self, text: str, reward: float | None, *, success: bool, valid: bool) -> dict[str, Any]:
        self.used = time.monotonic()
        lists = "admissible" in self._served.environment.capabilities and not self.state.done
        about = {"task_id": self._task["task_id"], "family": self._task.get("family")}
        metadata = {**about, "episode_id": self.state.episode_id}
        observation = Observation(
            message=text,
            goal=self._task["goal"],
            admissible=list(self._env.admissible()) if lists else None,
            success=success,
            valid=valid,
            metadata=metadata,
        )
        shown = {"observation": observation.model_dump(), "reward": reward, "done": self.state.done}
        return {**shown, "metadata": metadata}


class Sessions:
    """The open sessions of a server: at most `limit`; those over HTTP end when they were idle for `idle` seconds."""

    def __init__(self, served: Served, limit: int, idle: float):
        self.served, self.limit, self.idle = served, limit, idle
        self._over_http: dict[str, Session] = {}
        self.sockets: dict[web.WebSocketResponse, Session] = {}
        self._alone = asyncio.Lock()

    async def aside(self, function: Callable[..., T], *arguments: Any) -> T:
        """The result of a function that may call the environment; in a thread, one at a time, if that may wait.

        An engine that hangs is ended, again and again, until the environment gives up the call. The thread is a daemon:
        it does not keep the process alive.
        """
        if not self.served.waits:
            return function(*arguments)
        async with self._alone:
            result: Future[T] = Future()
            threading.Thread(target=_call, args=(result, function, arguments), name="session", daemon=True).start()
            waiting = asyncio.wrap_future(result)
            while not (await asyncio.wait([waiting], timeout=PATIENCE))[0]:
                self.release()
            return waiting.result()

    def release(self) -> None:
        """End the engine of the environment, if it is another process."""
        if self.served.environment.release is not None:
            self.served.environment.release()

    def connect(self, socket: web.WebSocketResponse) -> Session:
        """The session of a new connection. Raises Refused where there is no room."""
        self.sockets[socket] = session = self.open()
        return session

    def open(self) -> Session:
        """A fresh session; over HTTP, rollouts that have ended make room. Raises Refused where there is none."""
        now = time.monotonic()
        self._drop(lambda session: now - session.used > self.idle)
        if self.active >= self.limit:
            self._drop(lambda session: session.state.done)
        if (active := self.active) >= self.limit:
            message = f"Server at capacity: {active}/{self.limit} sessions active. Cannot accept new connections."
            raise Refused("CAPACITY_REACHED", message, active_sessions=active, max_sessions=self.limit)
        return Session(self.served)

    @property
    def active(self) -> int:
        """The number of open sessions."""
        return len(self._over_http) + len(self.sockets)

    def _drop(self, unused: Callable[[Session], bool]) -> None:
        for episode_id, session in list(self._over_http.items()):
            if unused(session):
                self._over_http.pop(episode_id).close()

    def reset(self, options: Reset) -> dict[str, Any]:
        """Start a rollout over HTTP, in the session of its `episode_id` if there is one."""
        session = self._over_http.get(options.episode_id or "") or self.open()
        shown = session.reset(options)
        self._over_http[shown["metadata"]["episode_id"]] = session
        return shown

    def get(self, episode_id: str) -> Session:
        """The session of a rollout over HTTP. Raises Refused for an unknown one."""
        if episode_id not in self._over_http:
            raise Refused("SESSION_ERROR", f"unknown episode_id '{episode_id}'; POST /reset first")
        return self._over_http[episode_id]

    def close(self) -> None:
        """End all sessions."""
        for session in (*self._over_http.values(), *self.sockets.values()):
            session.close()


def _call(result: Future, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
    try:
        result.set_result(function(*arguments))
    except BaseException as error:  # raised where it is awaited
        result.set_exception(error)


def tasks(name: str, settings: Mapping[str, Any], split: str, count: int, seed: int) -> Served:
    """An environment with its first `count` tasks of a split. Raises UserError."""
    environment = envs.load(name)
    checked = validated(environment.Settings, {**environment.served, **settings}, "", "--settings")
    rows = split_rows(environment, split, count, seed, checked)
    if not rows:
        raise UserError(f"environment '{name}': the split '{split}' has no tasks; choose another --split")
    served = Served(environment, checked, rows)
    served.open(rows[0]).close()  # so that no client waits for an index
    return served


def application(served: Served, sessions: int, idle: float) -> web.Application:
    """The server's routes."""
    app = web.Application(client_max_size=MAX_BYTES, middlewares=[_errors])
    app[_SESSIONS] = Sessions(served, sessions, idle)
    app.add_routes(
        [
            web.get("/ws", _socket),
            web.post("/reset", _reset),
            web.post("/step", _step),
            web.get("/state", _state),
            web.get("/health", _health),
            web.get("/metadata", _metadata),
            web.get("/schema", _schema),
        ]
    )
    app.on_shutdown.append(_end)
    return app


_SESSIONS = web.AppKey("sessions", Sessions)


def serve(app: web.Application, host: str, port: int, started: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `started` is called with the address. Raises UserError where it cannot listen."""
    asyncio.run(_run(app, host, port, started))


async def _run(app: web.Application, host: str, port: int, started: Callable[[str], None]) -> None:
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        try:
            await web.TCPSite(runner, host, port).start()
        except OSError as error:
            raise UserError(f"cannot listen on {host}:{port}: {error.strerror}; choose another --port") from None
        started(f"http://{host}:{runner.addresses[0][1]}")
        await stop.wait()
    finally:
        await runner.cleanup()


async def _end(app: web.Application) -> None:
    for socket in list(app[_SESSIONS].sockets):
        with suppress(ConnectionError):
            await socket.close(code=WSCloseCode.GOING_AWAY)
    app[_SESSIONS].release()  # first: one that hangs would not let its rollouts be closed
    app[_SESSIONS].close()


# ---------------------------------------------------------------- the WebSocket


async def _socket(request: web.Request) -> web.WebSocketResponse:
    sessions = request.app[_SESSIONS]
    socket = web.WebSocketResponse(heartbeat=HEARTBEAT, max_msg_size=MAX_BYTES)
    await socket.prepare(request)
    try:
        session = await sessions.aside(sessions.connect, socket)
    except Refused as refused:  # after the handshake, as OpenEnv's clients expect
        await socket.send_json(_error(refused))
        await socket.close()
        return socket
    try:
        while not socket.closed:
            try:
                async with asyncio.timeout(sessions.idle):  # receive's own begins again with every answer to a ping
                    message = await socket.receive()
            except TimeoutError:
                late = f"nothing was said for {sessions.idle:g} s; connect again"
                await socket.send_json(_error(Refused("SESSION_ERROR", late)))
                break
            if message.type not in (WSMsgType.TEXT, WSMsgType.BINARY):
                break
            answer = await sessions.aside(_answer, session, message.data)
            if answer is None:
                break
            await socket.send_json(answer)
    except ConnectionError:
        pass  # the client has gone
    finally:
        sessions.sockets.pop(socket, None)
        await sessions.aside(session.close)
        with suppress(ConnectionError):
            await socket.close()
    return socket


def _error(error: Exception) -> dict[str, Any]:
    return {"type": "error", "data": described(error)}


def _answer(session: Session, raw: str | bytes) -> dict[str, Any] | None:
    """The answer to a message; None to `close`."""
    try:
        message = parsed(raw)
        if not isinstance(message, dict):
            raise Refused("VALIDATION_ERROR", "Invalid message", errors=[])
        kind, data = message.get("type", ""), message.get("data", {})
        if kind == "close":
            return None
        if kind == "state":
            return {"type": "state", "data": session.state.model_dump()}
        if kind == "reset":
            return {"type": "observation", "data": session.reset(Reset.model_validate(data))}
        if kind == "step":
            return {"type": "observation", "data": session.step(data)}
        raise Refused("UNKNOWN_TYPE", f"Unknown message type: {kind}")
    except MISTAKES as error:
        return _error(error)


# ---------------------------------------------------------------- HTTP


@web.middleware
async def _errors(request: web.Request, handler: Any) -> Any:
    """Mistakes as FastAPI, which OpenEnv's server is made with, reports them: `detail`, with a status."""
    try:
        return await handler(request)
    except MISTAKES as error:
        data = described(error)
        status = 500 if isinstance(error, UserError) else STATUS.get(data["code"], 400)
        return web.json_response({"detail": data.get("errors", data["message"])}, status=status)


async def _reset(request: web.Request) -> web.Response:
    options, sessions = Reset.model_validate(parsed(await request.read() or b"{}")), request.app[_SESSIONS]
    return web.json_response(await sessions.aside(sessions.reset, options))


async def _step(request: web.Request) -> web.Response:
    step = HttpStep.model_validate(parsed(await request.read() or b"{}"))
    sessions = request.app[_SESSIONS]
    return web.json_response(await sessions.aside(sessions.get(step.episode_id).step, step.action))


async def _state(request: web.Request) -> web.Response:
    return web.json_response(request.app[_SESSIONS].get(request.query.get("episode_id", "")).state.model_dump())


async def _health(_request: web.Request) -> web.Response:
    return web.json_response({"status": "healthy"})


async def _metadata(request: web.Request) -> web.Response:
    environment = request.app[_SESSIONS].served.environment
    empty = dict.fromkeys(("readme_content", "author", "documentation_url"))
    about = {"name": environment.name, "description": environment.summary, "version": turncredit.__version__}
    return web.json_response({**about, **empty})


async def _schema(_request: web.Request) -> web.Response:
    shown = Observation.model_json_schema()
    schemas = {"action": Action.model_json_schema(), "observation": shown, "state": State.model_json_schema()}
    return web.json_response({**schemas, "reset_observation": shown})
