"""A guard around third-party environments: any failure in one becomes an error that names it, its task and its turn.

It catches exceptions, calls that take longer than `env.timeout`, and values of the wrong type. A call that takes too
long, and an exception that says that a connection or a server failed, is an OutsideFault. All calls are made by
one thread that runs an asyncio loop: a call that hangs can be abandoned, and the coroutines of several rollouts' steps
run concurrently. This adds about 50 microseconds to a call; built-in environments are called directly.
"""

from __future__ import annotations

import asyncio
import inspect
import math
import os
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from typing import Any, NamedTuple

from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step
from turncredit.errors import OutsideFault, UserError, kind_of

_PATIENCE = 1.0
"""Seconds after its timeout at which a call that never yields to the loop is abandoned."""


class Guarded:
    """One rollout's environment behind the guard: the same methods, all of them synchronous."""

    def __init__(self, env: Any, environment: Environment, task_id: str, timeout: float | None):
        self.env, self.environment, self.task_id, self.timeout = env, environment, task_id, timeout
        self.turn = 0

    def reset(self) -> str:
        """The environment's `reset`, a text."""
        return call(self, "reset")

    def step(self, action: str) -> Step:
        """The environment's `step`."""
        return call(self, "step", action)

    def close(self) -> None:
        """The environment's `close`."""
        call(self, "close")

    def progress(self) -> float:
        """The environment's `progress`, a finite number."""
        return call(self, "progress")

    def distance(self) -> int:
        """The environment's `distance`, a whole number."""
        return call(self, "distance")

    def oracle(self) -> list[str]:
        """The environment's `oracle`."""
        return call(self, "oracle")

    def admissible(self) -> list[str]:
        """The environment's `admissible`."""
        return call(self, "admissible")

    def snapshot(self) -> Any:
        """The environment's `snapshot`, with the turn."""
        return self.turn, call(self, "snapshot")

    def restore(self, state: Any) -> None:
        """The environment's `restore`."""
        self.turn, inner = state
        call(self, "restore", inner)

    def __getattr__(self, name: str) -> Any:
        """Attributes that are not part of the protocol."""
        return getattr(self.env, name)


class GuardedExpert:
    """An environment's expert behind the guard of the rollout that it plays."""

    def __init__(self, expert: Any, guarded: Guarded):
        self._expert, self._guarded = expert, guarded

    def observe(self, observation: str, action: str | None = None) -> None:
        """The expert's `observe`."""
        _together([_Call(self._guarded, self._expert, "observe", (observation, action))])

    def columns(self) -> dict[str, Any]:
        """The expert's `columns`."""
        return _together([_Call(self._guarded, self._expert, "columns", ())])[0]

    def act(self) -> str:
        """The expert's `act`, a text."""
        return _together([_Call(self._guarded, self._expert, "act", ())])[0]


class _Call(NamedTuple):
    """A method of `owner` (an environment, its expert, its description), called on behalf of `guarded`."""

    guarded: Guarded
    owner: Any
    method: str
    arguments: tuple[Any, ...]

    def where(self) -> str:
        """Environment and method, for messages."""
        owner = "expert." if self.method in ("observe", "act", "columns") else ""
        return f"environment '{self.guarded.environment.name}': {owner}{self.method}()"

    def when(self) -> str:
        """Task and turn, for messages."""
        if self.method in _ON_DESCRIPTION:
            return f"(task '{self.guarded.task_id}')"
        return f"(task '{self.guarded.task_id}', turn {self.guarded.turn})"


_ON_DESCRIPTION = ("open_task", "expert", "random_command", "slip_command")


def open_guarded(environment: Environment, row: Mapping[str, Any], settings: Any, timeout: float | None) -> Guarded:
    """A fresh rollout of the task `row`, guarded. Raises UserError."""
    guarded = Guarded(None, environment, str(row["task_id"]), timeout)
    guarded.env = _together([_Call(guarded, environment, "open_task", (row, settings))])[0]
    return guarded


def call(guarded: Guarded, method: str, *arguments: Any) -> Any:
    """The checked result of a method of the environment. Raises UserError."""
    return _together([_Call(guarded, guarded.env, method, arguments)])[0]


def call_each(
    guarded: Sequence[Guarded], method: str, *arguments: Sequence[Any], keep_faults: bool = False
) -> list[Any]:
    """`call` for several rollouts at once, each with its own arguments; coroutines run concurrently.

    With `keep_faults`, an OutsideFault of one is in the place of its result.
    """
    rows = zip(*arguments, strict=True) if arguments else ((),) * len(guarded)
    calls = [_Call(one, one.env, method, row) for one, row in zip(guarded, rows, strict=True)]
    return _together(calls, keep_faults=keep_faults)


def start(guarded: Guarded, method: str, *arguments: Any) -> Future[Any]:
    """`call` without waiting: its future, which has the checked result or the UserError."""
    return _running().start(_Call(guarded, guarded.env, method, arguments))


def ended(futures: Collection[Future[Any]], timeout: float | None, *, until_one: bool) -> set[Future[Any]]:
    """The futures of `start` that are done; `until_one`: waits for at least one.

    Raises UserError for a call that blocks all others for longer than `timeout` seconds (None: no limit).
    """
    return _running().ended(futures, timeout, until_one=until_one)


def call_description(guarded: Guarded, method: str, *arguments: Any, **named: Any) -> Any:
    """The result of a function of the environment's description (`expert`, `random_command`, ...) for this rollout."""
    function = getattr(guarded.environment, method)
    owner = _Bound(**{method: lambda *given: function(*given, **named)})
    return _together([_Call(guarded, owner, method, arguments)])[0]


class _Bound:
    def __init__(self, **functions: Any):
        self.__dict__.update(functions)


# ---------------------------------------------------------------- the calling thread


class _Loop:
    """A daemon thread with an asyncio loop; a call that never returns can't keep the process from ending."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.running: dict[int, tuple[_Call, float]] = {}
        threading.Thread(target=self.loop.run_forever, name="environments", daemon=True).start()

    def run(self, calls: Sequence[_Call], *, keep_faults: bool) -> list[Any]:
        """The results of all calls, in order. Raises the exception of the first call that fails."""
        future = asyncio.run_coroutine_threadsafe(self._all(calls, keep_faults), self.loop)
        timeout = calls[0].guarded.timeout if calls else None
        self.ended([future], timeout, until_one=True)
        return future.result()

    def start(self, call: _Call) -> Future[Any]:
        """The future of one call."""
        return asyncio.run_coroutine_threadsafe(self._one(call), self.loop)

    def ended(self, futures: Collection[Future[Any]], timeout: float | None, *, until_one: bool) -> set[Future[Any]]:
        """The futures that are done, after at least one is if `until_one`."""
        patience = (None if timeout is None else timeout / 4) if until_one else 0
        while not (done := wait(futures, patience, FIRST_COMPLETED).done):
            self._give_up_hanging(timeout)
            if not until_one:
                break
        return done

    def _give_up_hanging(self, timeout: float | None) -> None:
        """Raise for a call that blocked the loop, so that its own timeout could not fire."""
        for running, since in list(self.running.values()):
            if timeout is not None and time.monotonic() - since > timeout + _PATIENCE:
                _loops.pop(os.getpid(), None)  # the thread is lost; another call would wait behind this one
                raise _took_too_long(running)

    async def _all(self, calls: Sequence[_Call], keep_faults: bool) -> list[Any]:
        return await asyncio.gather(*(self._outcome(one) if keep_faults else self._one(one) for one in calls))

    async def _outcome(self, call: _Call) -> Any:
        try:
            return await self._one(call)
        except OutsideFault as fault:
            return fault

    async def _one(self, call: _Call) -> Any:
        self.running[id(call)] = call, time.monotonic()
        deadline = asyncio.timeout(call.guarded.timeout)
        try:
            async with deadline:
                result = getattr(call.owner, call.method)(*call.arguments)
                if inspect.isawaitable(result):
                    result = await result
            return _checked(call, result)
        except UserError:
            raise
        except (Exception, SystemExit) as error:  # third-party code may raise anything
            if isinstance(error, TimeoutError) and deadline.expired():
                raise _took_too_long(call) from None
            detail = f": {' '.join(str(error).split())}" if str(error).strip() else ""
            raise kind_of(error)(f"{call.where()} raised {type(error).__name__}{detail} {call.when()}") from error
        finally:
            del self.running[id(call)]


#: by process: a forked one has no thread
_loops: dict[int, _Loop] = {}


def _together(calls: Sequence[_Call], *, keep_faults: bool = False) -> list[Any]:
    return _running().run(calls, keep_faults=keep_faults)


def _running() -> _Loop:
    if os.getpid() not in _loops:
        _loops[os.getpid()] = _Loop()
    return _loops[os.getpid()]


def _took_too_long(call: _Call) -> OutsideFault:
    return OutsideFault(
        f"{call.where()} took longer than env.timeout, {call.guarded.timeout:g} s {call.when()}; fix it or raise "
        "env.timeout"
    )


# ---------------------------------------------------------------- checks of results


def _checked(call: _Call, result: Any) -> Any:
    """`result` as the protocol's type. Raises UserError if it has another type."""
    method = call.method
    if method == "step":
        result = _step(call, result)
        call.guarded.turn += 1
    elif method == "reset":
        if not _is_text(result):
            raise _wrong(call, _text(result), result)
        call.guarded.turn = 0
    elif method in ("act", "random_command", "slip_command"):
        if not _is_text(result):
            raise _wrong(call, _text(result), result)
    elif method == "progress":
        if not _is_number(result):
            raise _wrong(call, "a finite number", result)
        result = float(result)
    elif method == "distance":
        if not _is_number(result) or result != int(result):
            raise _wrong(call, "a whole number", result)
        result = int(result)
    elif method in ("admissible", "oracle"):
        if isinstance(result, str) or not isinstance(result, Sequence) or not all(_is_text(x) for x in result):
            raise _wrong(call, "a list of texts", result)
        result = list(result)
    return result


def _step(call: _Call, result: Any) -> Step:
    if not isinstance(result, tuple) or len(result) not in (3, 4, 5):
        raise _wrong(call, "a Step(observation, reward, done, success, valid)", result)
    step = Step(*result)
    if not _is_text(step.observation):
        raise _wrong(call, f"{_text(step.observation)} as observation", step.observation)
    if not _is_number(step.reward):
        raise _wrong(call, "a finite number as reward", step.reward)
    for name in ("done", "success", "valid"):
        if type(getattr(step, name)).__name__ not in ("bool", "bool_"):  # Python's, or NumPy's
            raise _wrong(call, f"true or false as {name}", getattr(step, name))
    return Step(step.observation, float(step.reward), bool(step.done), bool(step.success), bool(step.valid))


def _text(value: Any) -> str:
    """What must be in the place of a value that is no text (`_is_text`)."""
    return "a text that UTF-8 can encode" if isinstance(value, str) else "a text"


def _is_text(value: Any) -> bool:
    """Whether a value is a text without half a character (a lone surrogate)."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: Any) -> bool:
    try:
        return not isinstance(value, bool | str) and math.isfinite(value)
    except TypeError:
        return False


def _wrong(call: _Call, expected: str, value: Any) -> UserError:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"{shown[:57]}..."
    return UserError(f"{call.where()} must return {expected}, not {shown} of type {type(value).__name__} {call.when()}")
