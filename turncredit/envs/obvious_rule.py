"""Obvious rules, for `turncredit env baselines`: scripts that see a task's sentence and the observations, and no more.

A world that such a rule wins says little of a policy that wins it, too.
"""

from __future__ import annotations

from collections.abc import Generator

Script = Generator[str, str, None]
"""Yields an empty text first; then it is sent an observation and yields the action that follows it."""


class Rule:
    """A script with the methods of an `Expert`. Once it has ended, its actions are empty, and refused."""

    def __init__(self, script: Script):
        self._script, self._action = script, next(script)

    def observe(self, observation: str, action: str | None = None) -> None:
        """Send an observation to the script. What it did itself it knows."""
        del action
        try:
            self._action = self._script.send(observation)
        except StopIteration:
            self._action = ""

    def act(self) -> str:
        """The action that the script has yielded."""
        return self._action
