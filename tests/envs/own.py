"""Small environments for the tests of the plug-in protocol."""

from __future__ import annotations

import asyncio
import time

from turncredit.envs.environment import Environment
from turncredit.envs.protocol import Step


class Doors:
    """Three doors, one after the other; `open` passes one. The least that an environment can be."""

    opened: list[Doors] = []  # noqa: RUF012 - the tests look at them

    def __init__(self, row, settings):
        self.row, self.closed = row, False
        Doors.opened.append(self)

    def reset(self):
        self.at = 0
        return "a door"

    def step(self, action):
        self.at += 1
        return Step("a door", float(self.at == 3), self.at == 3, success=self.at == 3, valid=action == "open")

    def close(self):
        self.closed = True


class Slow(Doors):
    """The same behind a network: every step takes 20 ms."""

    async def reset(self):
        return Doors.reset(self)

    async def step(self, action):
        await asyncio.sleep(0.02)
        return Doors.step(self, action)

    async def close(self):
        Doors.close(self)


class Faulty(Doors):
    """Goes wrong in turn 1, in the way that its task is called."""

    def step(self, action):
        if self.at == 1:
            return getattr(self, self.row["task_id"])()
        return super().step(action)

    def raises(self):
        raise ValueError("the hinge\nbroke")

    def exits(self):
        raise SystemExit(3)

    def loses_its_connection(self):
        raise ConnectionResetError("by peer")

    def hides_what_it_lost(self):
        try:
            self.loses_its_connection()
        except ConnectionError as error:
            raise RuntimeError("no tool answers") from error

    def hangs(self):
        time.sleep(60)

    def says_a_number(self):
        return 7

    def sees_nothing(self):
        return Step(None, 0.0, False)

    def sees_half_a_character(self):
        return Step("a \ud800", 0.0, False)

    def pays_in_words(self):
        return Step("a door", "much", False)

    def pays_nan(self):
        return Step("a door", float("nan"), False)

    def is_vaguely_done(self):
        return Step("a door", 0.0, "perhaps")


class FaultyLater(Faulty):
    """The same, asynchronous."""

    async def step(self, action):
        if self.at == 1 and self.row["task_id"] == "hangs":
            await asyncio.sleep(60)
        return Faulty.step(self, action)


def rows(split, count, seed, settings):
    return [{"task_id": f"{split}-{number}", "goal": "pass three doors."} for number in range(count)]


def environment(kind, **fields):
    return Environment(name=kind.__name__.lower(), open_task=kind, **{"make_tasks": rows, **fields})


ENVIRONMENT = environment(Doors)
