"""One rollout in AppWorld: code is executed in a world on a server, until the task is declared complete.

A server that ends or hangs is replaced, the world is opened again and the actions so far are executed again in it; the
rollout goes on only if they are answered as before. This is reported on standard error, and `redone` counts it.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

from turncredit.envs.appworld.client import Server, ServerLost, Unsuitable
from turncredit.envs.appworld.servers import Servers
from turncredit.envs.appworld.settings import Settings
from turncredit.envs.appworld.words import OPENING
from turncredit.envs.protocol import Step
from turncredit.errors import OutsideFault, UserError

ATTEMPTS = 3
"""How often a call is made, each time on another server."""

SPARE_SECONDS = 60.0
"""What a call may take beyond the time limit of the code, for saving and loading the world's databases."""


class AppWorld:
    """One rollout. Its methods are coroutines, so that the servers of several rollouts work at the same time.

    `redone` counts the servers that were lost since `reset`, each of which had the rollout done again on another one.
    """

    redone = 0

    def __init__(self, task_id: str, settings: Settings, servers: Servers):
        self.task_id = task_id
        self._settings, self._servers = settings, servers
        self._server: Server | None = None
        self._executed: list[tuple[str, str]] = []
        self._turns = 0

    async def reset(self) -> str:
        """Open the task's world; who the supervisor is, and the date."""
        return await self._elsewhere(self._reset)

    async def step(self, action: str) -> Step:
        """Execute an action's code. At the end the world is evaluated: when the task is complete, or at the horizon."""
        return await self._elsewhere(lambda: self._step(action))

    async def close(self) -> None:
        """Give the server back."""
        if self._server is not None:
            self._servers.give_back(self._server)
            self._server = None

    async def _elsewhere(self, call: Callable[[], Any]) -> Any:
        return await asyncio.get_running_loop().run_in_executor(_threads(os.getpid(), self._settings), call)

    def _reset(self) -> str:
        self._turns, self._executed, self.redone = 0, [], 0
        world = self._asked(None)
        return OPENING.format(**world["supervisor"], datetime=world["datetime"])

    def _step(self, action: str) -> Step:
        settings = self._settings
        reply = self._asked("execute", code=action)
        self._executed.append((action, reply))
        self._turns += 1
        done = self._asked("task_completed") or self._turns >= settings.horizon
        success, reward = self._evaluated() if done else (False, 0.0)
        if len(reply) > settings.longest_reply:
            reply = f"{reply[: settings.longest_reply]}\n[{len(reply) - settings.longest_reply} more characters]"
        return Step(reply, reward, done, success, valid=settings.api_call in action)

    def _evaluated(self) -> tuple[bool, float]:
        """Whether all tests pass, and the reward."""
        result = self._asked("evaluate", suppress_errors=True, report=False)
        passed, count = len(result["passes"]), result["num_tests"]
        success = bool(result["success"])
        share = float(success) if self._settings.reward == "success" or not count else passed / count
        return success, share * self._settings.success_reward

    # ------------------------------------------------------------ calls that survive their server

    def _asked(self, method: str | None, **arguments: Any) -> Any:
        """The answer of the rollout's world to a method; for None, the description of the world, once it is open.

        Raises UserError, naming server, task and turn, where servers are lost again and again.
        """
        lost = ""
        for attempt in range(1, ATTEMPTS + 1):
            try:
                self._server = self._server or self._servers.lend()
            except UserError as error:
                kind = OutsideFault if lost else type(error)
                raise kind(f"{error}{lost and f'; before that, {lost}'}") from None
            try:
                world = self._open() if lost or method is None else None
                return world if method is None else self._call(method, **arguments)
            except Unsuitable as error:
                raise UserError(f"environment 'appworld': {error} {self._when()}") from None
            except ServerLost as error:
                self._lose()
                if attempt == ATTEMPTS:
                    raise OutsideFault(
                        f"environment 'appworld': {error} {self._when()}, in each of {ATTEMPTS} attempts; see its log, "
                        "and whether its data have the task"
                    ) from None
                self.redone += 1
                lost = str(error)
                print(f"environment 'appworld': {error} {self._when()}; on another server", file=sys.stderr)
        raise AssertionError("unreachable")

    def _open(self) -> dict[str, Any]:
        """Open the world on the server, and play the rollout's actions so far."""
        assert self._server is not None
        world = self._call(
            "initialize",
            experiment_name=_folder(self._server),
            timeout_seconds=self._settings.code_seconds,  # not ground_truth_mode: 0.1.3 refuses every real value of it
            max_interactions=self._settings.horizon + 1,  # the horizon is ours; this one does not count every action
        )
        for number, (code, reply) in enumerate(self._executed):
            if self._call("execute", code=code) != reply:
                raise OutsideFault(
                    "environment 'appworld': a server was lost, and the rollout cannot be repeated on "
                    f"{self._server.url}: its action of turn {number} is answered otherwise {self._when()}; run "
                    "the job again"
                )
        return world

    def _call(self, method: str, **arguments: Any) -> Any:
        assert self._server is not None
        return self._server.call(method, self._settings.code_seconds + SPARE_SECONDS, task_id=self.task_id, **arguments)

    def _lose(self) -> None:
        if self._server is not None:
            self._servers.discard(self._server)
            self._server = None

    def _when(self) -> str:
        return f"(task '{self.task_id}', turn {self._turns})"


def _folder(server: Server) -> str:
    """The output folder for a server's worlds, which are evaluated from there: no two rollouts may share one.

    It has this machine's name as well, because machines may share AppWorld's root folder.
    """
    return re.sub(r"[^\w.-]+", "-", f"turncredit-{socket.gethostname()}-{server.url.partition('://')[2]}")


@cache
def _threads(_process: int, settings: Settings) -> ThreadPoolExecutor:
    """Threads of this process that wait for servers. They are kept: a server ends with the thread that started it."""
    return ThreadPoolExecutor(len(settings.urls) or settings.servers, thread_name_prefix="appworld")
