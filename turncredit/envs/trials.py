"""Several trials of one game in one rollout, for agents that learn from a failed one (Reflexion).

While trials are left, one that ends without success does not end the rollout: its last observation ends with the marker
`FAILED`. The agent's next response is a lesson and not a command; the environment is reset, and the reply is the first
observation of the next trial. So a rollout of several trials is a rollout like any other, of an environment whose steps
are deterministic and whose states can be restored if the game's own are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import replace
from numbers import Real
from typing import Any, cast

import numpy as np

from turncredit.data.transcript_markers import FAILED
from turncredit.envs.environment import Environment, Row
from turncredit.envs.failures import FailureRule, TextRule
from turncredit.envs.protocol import State, Step
from turncredit.errors import UserError, kind_of


def with_trials(environment: Environment, trials: int) -> Environment:
    """`environment` with rollouts of at most this many trials."""
    assert environment.open_task is not None
    open_task = environment.open_task

    def open_trials(row: Row, settings: Any) -> Any:
        where = f"environment '{environment.name}': reset()"
        return _then(open_task(row, settings), lambda env: Trials(env, trials, where, f"(task '{row['task_id']}')"))

    failures = environment.failures
    if failures is not None:
        reply = failures.error_reply
        failures = FailureRule(_unmarked(failures.failed), None if reply is None else _unmarked(reply))
    # Without env_class, open_task is the class itself (`Environment.check`).
    capable = environment.env_class or cast(type, open_task)
    return replace(environment, open_task=open_trials, env_class=capable, failures=failures, before_steps=None)


class Trials:
    """One rollout of an environment: trial after trial until one succeeds, or none is left.

    A failed trial's rewards are subtracted again in its last step, unless it is the last trial: a rollout's return is
    that of its last trial, and a failed trial before it adds nothing.
    """

    def __init__(self, env: Any, trials: int, where: str, when: str):
        self.env, self.trials = env, trials
        self._where, self._when = where, when
        self._trial, self._score, self._failed = 1, 0.0, False
        self._redone = 0
        """How often the trials before this one were redone."""

    @property
    def redone(self) -> int:
        """How often the rollout's trials so far were redone (`turncredit.envs.protocol.Redone`)."""
        return self._redone + self.env.redone

    def reset(self) -> Any:
        """Start the first trial."""
        self._trial, self._score, self._failed, self._redone = 1, 0.0, False, 0
        return _then(self.env.reset(), _plain)

    def step(self, action: str) -> Any:
        """Carry out an action; after a failed trial, whatever it is, start the next one."""
        if not self._failed:
            return _then(self.env.step(action), self._after)
        self._redone += getattr(self.env, "redone", 0)  # a reset forgets it
        try:
            return _then(self.env.reset(), self._next_trial, self._cannot_reset)
        except Exception as error:  # third-party code may raise anything
            raise self._cannot_reset(error) from error

    def admissible(self) -> Any:
        """The actions that are allowed now: none where a lesson is asked for."""
        return [] if self._failed else self.env.admissible()

    def snapshot(self) -> State:
        """The trial, its rewards so far, whether it has failed, and the game's state if it has not."""
        return self._trial, self._score, self._failed, None if self._failed else self.env.snapshot()

    def restore(self, state: State) -> Any:
        """Continue from a snapshot. The game's own `restore` is a coroutine where asynchronous steps are replayed."""
        self._trial, self._score, self._failed, inner = state
        return None if self._failed else self.env.restore(inner)

    def __getattr__(self, name: str) -> Any:
        """Everything else is the environment's own."""
        return getattr(self.env, name)

    def _after(self, result: Any) -> Any:
        if not _is_step(result):
            return result  # the guard says what is wrong with it
        step = Step(*result)
        if step.done and not step.success and self._trial < self.trials:
            self._failed = True
            observation = f"{_plain(step.observation)}{FAILED}"
            return step._replace(observation=observation, reward=0.0 - self._score, done=False)
        self._score += step.reward
        return step._replace(observation=_plain(step.observation))

    def _next_trial(self, observation: Any) -> Step:
        self._trial, self._score, self._failed = self._trial + 1, 0.0, False
        return Step(_plain(observation), 0.0, False)

    def _cannot_reset(self, error: Exception) -> UserError:
        detail = f": {' '.join(str(error).split())}" if str(error).strip() else ""
        return kind_of(error)(
            f"{self._where} raised {type(error).__name__}{detail} after a failed trial {self._when}; an agent with "
            "several trials needs an environment that can start again: fix it, or choose another agent (agent.name)"
        )


def _is_step(result: Any) -> bool:
    """Whether a result has the fields of a Step, of their types."""
    if not isinstance(result, tuple) or len(result) not in (3, 4, 5):
        return False
    step = Step(*result)
    decided = all(isinstance(value, bool | np.bool_) for value in (step.done, step.success))
    return isinstance(step.observation, str) and isinstance(step.reward, Real) and decided


def _plain(observation: Any) -> Any:
    """An observation without the marker, in case the environment's own text ends with it."""
    return observation.removesuffix(FAILED) if isinstance(observation, str) else observation


def _unmarked(rule: TextRule) -> TextRule:
    return lambda reply: rule(reply.removesuffix(FAILED))


def _then(result: Any, finish: Callable[[Any], Any], otherwise: Callable[[Exception], Exception] | None = None) -> Any:
    """`finish(result)`; of a coroutine, once it has ended. What one raises becomes `otherwise` of it."""
    if not inspect.isawaitable(result):
        return finish(result)

    async def awaited() -> Any:
        try:
            value = await result
        except Exception as error:
            if otherwise is None:
                raise
            raise otherwise(error) from error
        return finish(value)

    return awaited()
