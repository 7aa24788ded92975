"""Calls of environments that are under way while the policy samples for other rollouts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from turncredit.errors import OutsideFault
from turncredit.rollouts.tasks import Games


class Calls:
    """Calls of environments that are under way. Those of built-in environments end at once."""

    def __init__(self, games: Games):
        self._games = games
        self._slots: dict[Future[Any], int] = {}

    def __len__(self) -> int:
        """Calls whose results have not been taken."""
        return len(self._slots)

    def start(self, running: Mapping[int, Any], method: str, *arguments: Sequence[Any]) -> None:
        """Call a method of the environments in these slots, such as `step` with an action for each."""
        if running:
            futures = self._games.start(list(running.values()), method, *arguments)
            self._slots.update(zip(futures, running, strict=True))

    def ended(self, *, wait: bool) -> list[tuple[int, Any]]:
        """The slots whose calls have ended since the last time, with their results.

        `wait`: until there is at least one, if any is under way. Raises the UserError of a call that failed; an
        OutsideFault is in the place of the result.
        """
        if not self._slots:
            return []
        done = self._games.ended(self._slots, until_one=wait)
        return [(self._slots.pop(future), _outcome(future)) for future in sorted(done, key=self._slots.__getitem__)]

    def cancel(self) -> None:
        """Do not wait for what is under way."""
        for future in self._slots:
            future.cancel()
        self._slots = {}


def _outcome(future: Future[Any]) -> Any:
    error = future.exception()
    return error if isinstance(error, OutsideFault) else future.result()
