"""States of environments that cannot save them: a state is the actions that led to it, which are played again.

It costs what the actions cost. That they lead to the same state is the environment's promise (`deterministic`); the
last observation is compared.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

from turncredit.envs.environment import Environment, Row
from turncredit.envs.protocol import State
from turncredit.errors import UserError


def restorable(environment: Environment) -> Environment:
    """`environment` as one whose states can be restored; itself if it does that, or cannot even replay."""
    if not environment.restores_by_replay:
        return environment
    assert environment.open_task is not None
    open_task = environment.open_task

    def open_replaying(row: Row, settings: Any) -> Any:
        where = f"environment '{environment.name}': task '{row['task_id']}'"
        return _then(open_task(row, settings), lambda env: Replaying(env, where))

    # Without env_class, open_task is the class itself (`Environment.check`).
    capable = environment.env_class or cast(type, open_task)
    return replace(environment, open_task=open_replaying, env_class=capable, before_steps=None)


class Replaying:
    """A rollout of an environment that remembers its actions."""

    restores_by_replay = True

    def __init__(self, env: Any, where: str):
        self.env, self._where = env, where
        self._actions: list[str] = []
        self._observation: Any = None

    def reset(self) -> Any:
        """Start again."""
        return _then(self.env.reset(), self._first)

    def step(self, action: str) -> Any:
        """Carry out an action, and remember it."""
        return _then(self.env.step(action), lambda result: self._after(action, result))

    def snapshot(self) -> State:
        """The actions so far, and the last observation."""
        return tuple(self._actions), self._observation

    def restore(self, state: State) -> Any:
        """Play a snapshot's actions from the start. Raises UserError where they lead elsewhere."""
        actions, observation = state
        reset = self.reset()
        if inspect.isawaitable(reset):
            return self._restore_awaiting(reset, actions, observation)
        for action in actions:
            self.step(action)
        return self._compare(observation)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the environment's own."""
        return getattr(self.env, name)

    async def _restore_awaiting(self, reset: Any, actions: tuple[str, ...], observation: Any) -> None:
        await reset
        for action in actions:
            await self.step(action)
        self._compare(observation)

    def _first(self, observation: Any) -> Any:
        self._actions, self._observation = [], observation
        return observation

    def _after(self, action: str, result: Any) -> Any:
        self._actions.append(action)
        # Where the result is no step, the guard says what is wrong with it.
        self._observation = result[0] if isinstance(result, tuple) and result else None
        return result

    def _compare(self, observation: Any) -> None:
        if self._observation != observation:
            raise UserError(
                f"{self._where}: the same {len(self._actions)} actions led to another observation when they were "
                "played again, so its steps are not deterministic; declare deterministic=False, and do without "
                "what continues rollouts from the middle (audits, vineppo, carl)"
            )


def _then(result: Any, finish: Callable[[Any], Any]) -> Any:
    """`finish(result)`; of a coroutine, once it has ended."""
    if not inspect.isawaitable(result):
        return finish(result)

    async def awaited() -> Any:
        return finish(await result)

    return awaited()
