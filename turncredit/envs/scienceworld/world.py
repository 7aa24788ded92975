"""One rollout in the simulator: scores become rewards, and a Java process that has died is started again."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from turncredit.envs.protocol import Step
from turncredit.envs.scienceworld import gold
from turncredit.envs.scienceworld import simulator as java
from turncredit.envs.scienceworld.replies import refused
from turncredit.envs.scienceworld.settings import Settings, spelled_out
from turncredit.errors import OutsideFault

T = TypeVar("T")

LONGEST_ACTION = 300
"""Characters of an action; longer ones are not even read, and match nothing."""
BROKEN = "The simulator cannot go on from here."


class Task(NamedTuple):
    """A variation of one of the simulator's tasks, and the actions of its gold path (empty: not stored)."""

    name: str
    variation: int
    goal: str
    gold: tuple[str, ...] = ()


class ScienceWorld:
    """One rollout. `step` takes any text; what the simulator does not understand changes nothing and takes a turn.

    `redone` counts how often the rollout was played again from its start, because the Java process had died.
    """

    redone = 0

    def __init__(self, task: Task, settings: Settings):
        self.task, self._settings = task, settings
        self.goal = task.goal
        self._simplifications = spelled_out(settings.simplifications, task.name)
        self._world: java.World | None = None
        self._played: list[tuple[str, str]] = []
        """Actions, and what they led to."""
        self._score = 0.0
        self._done = True
        self._opened = False
        """Whether the rollout has begun in some Java process."""

    def reset(self) -> str:
        """Start again; the description of the room in which the agent is."""
        self.close()
        self._played, self._score, self._done, self._opened, self.redone = [], 0.0, False, False, 0
        return self._surviving(lambda world: world.look())

    def step(self, action: str) -> Step:
        """Carry out one action. A fatal mistake, which gives a negative score, ends the rollout with a score of 0.

        Raises RuntimeError where the rollout has ended, UserError where Java cannot be kept running.
        """
        if self._done:
            raise RuntimeError("the rollout has ended; call reset")
        sent = as_sent(action)
        reply = self._surviving(lambda world: world.step(sent))
        self._played.append((sent, reply.text))
        before = self._score
        if java.broke(reply):  # nobody's fault but the simulator's: the rollout ends with what it has
            self._done = True
            return Step(BROKEN, 0.0, True, False, False)
        self._score = min(1.0, max(0.0, round(reply.score, 6)))
        won = reply.completed and self._score == 1.0
        self._done = reply.completed or reply.score < 0 or len(self._played) >= self._settings.horizon
        earned = float(won) if self._settings.reward == "success" else self._score - before
        return Step(reply.text, earned * self._settings.success_reward, self._done, won, not refused(reply.text))

    def progress(self) -> float:
        """The simulator's score; 1 exactly if the task is completed, 0 after a fatal mistake."""
        return self._score

    def gold(self) -> tuple[str, ...]:
        """The task's gold path: the stored one, or extracted now."""
        return self.task.gold or gold.path(self.task.name, self.task.variation, self._simplifications)

    @property
    def last_reply(self) -> str:
        """What the last action led to; empty before the first one."""
        return self._played[-1][1] if self._played else ""

    def close(self) -> None:
        """Free the world in the Java process."""
        if self._world is not None:
            self._world.close()
            self._world = None

    def _surviving(self, ask: Callable[[java.World], T]) -> T:
        """The answer of the world. Where the Java process has died, it is started and all actions are played again."""

        def asked() -> T:
            world = self._world
            if world is None or world.simulator is not java.simulator():
                world = self._open()
            return ask(world)

        turn = f"task {self.task.name}, variation {self.task.variation}, turn {len(self._played)}"
        return java.surviving(asked, turn)

    def _open(self) -> java.World:
        """A world in which all actions have been played, in the Java process that runs now."""
        world = java.simulator().world(self.task.name, self.task.variation, self._simplifications)
        for turn, (action, recorded) in enumerate(self._played):
            if world.step(action).text != recorded:
                raise OutsideFault(
                    f"environment 'scienceworld': the Java process died, and turn {turn} is not reproduced when "
                    f"the rollout is redone (task {self.task.name}, variation {self.task.variation}); run again"
                )
        self.redone += self._opened
        self._world, self._opened = world, True
        return world


def as_sent(action: str) -> str:
    """An action on one line, without what cannot be printed; empty, which matches nothing, where it is too long."""
    line = " ".join("".join(char if char.isprintable() else " " for char in action).split())
    return line if len(line) <= LONGEST_ACTION else ""
