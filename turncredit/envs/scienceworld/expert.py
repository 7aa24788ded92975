"""The expert, which plays a task's gold path; noise that does no harm; subgoals derived from the path.

The gold path is the simulator's own agent's, which knows where everything is and goes straight there. In some tasks it
acts on what it has not looked at: a policy that imitates it has seen nothing of it (docs/environments/scienceworld.md).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from turncredit.envs.protocol import Rng
from turncredit.envs.scienceworld.replies import NEIGHBOURS, refused, room

#: The plan that it writes beside its actions, for agents that learn one (as in the household)
COLUMNS = {"subgoal": pa.string(), "completed": pa.bool_(), "reflection": pa.string()}

_ON_THE_WAY = re.compile(r"(?:go to|teleport to|open door to) |look around\Z")
_WATCHING = re.compile(r"(?:examine|wait|use thermometer)")
_PLACE = re.compile(r" (?:in|from) (?:inventory|[a-z ]+)\Z")
_THING = re.compile(r"^\t?(?:an?|the|A) (?:substance called )?([a-z][a-z ]+?)(?: \(|[.,]|\Z)", re.MULTILINE)
_HARMLESS = ("look around", "inventory")


class Run(Protocol):
    """What expert and noise may know of a rollout."""

    def gold(self) -> tuple[str, ...]:
        """The gold path."""
        ...

    @property
    def last_reply(self) -> str:
        """What the last action led to."""
        ...


class Planned(NamedTuple):
    """An action of the gold path and the subgoal it serves."""

    action: str
    subgoal: str


class Expert:
    """Plays the gold path. Led to another room by an action that was not its own, it goes back first.

    After other actions it goes on as if nothing had happened: a path that depends on time (something grows, or gets
    warm) may then fail. `rng` decides nothing.
    """

    def __init__(self, env: Run, _rng: Rng) -> None:
        self._path = planned(env.gold())
        self._next = 0
        self._last = ""
        self._room = ""
        self._left: str | None = None
        """The room that it has been led away from."""
        self._reflection = ""
        self._observation = ""
        self._subgoal, self._completed = "", False

    def observe(self, observation: str, action: str | None = None) -> None:
        """See a reply; `action` is given if another action than `act`'s was carried out.

        Whoever takes the path's next action, the path goes on.
        """
        before, self._room, self._observation = self._room, room(observation) or self._room, observation
        if not before:
            return
        done = self._last if action is None else action
        if self._left is None and self._next < len(self._path) and done == self._path[self._next].action:
            self._next += 1
        elif self._room == self._left:
            self._left = None
        elif self._room != before:
            self._left = self._left or before

    def act(self) -> str:
        """The next action; after the end of the path, `look around`."""
        if self._left is not None:
            step = Planned(f"go to {first_room(self._room, self._left)}", f"go back to {self._left}")
        elif self._next < len(self._path):
            step = self._path[self._next]
        else:
            step = Planned("look around", "look around")
        self._completed = bool(self._subgoal) and step.subgoal != self._subgoal and self._left is None
        self._reflection = self._why()
        self._subgoal, self._last = step.subgoal, step.action
        return step.action

    def columns(self) -> dict[str, Any]:
        """The plan behind the last action (`COLUMNS`)."""
        return {"subgoal": self._subgoal, "completed": self._completed, "reflection": self._reflection}

    def _why(self) -> str:
        """What led to the action, in a few words: what the last one came to."""
        if self._left is not None:
            return f"I am in the {self._room}"
        if self._observation and refused(self._observation):
            return "nothing happened"
        if (here := room(self._observation)) is not None:
            return f"I am in the {here}"
        return " ".join(self._observation.split())[:80].rstrip(".").lower()


def planned(gold: Sequence[str]) -> list[Planned]:
    """The actions of a gold path with their subgoals, derived by rule.

    Ways and looks serve to find what the next action is about. Watching (measuring, examining, waiting) is one subgoal,
    with the thing that it began with. Any other action is a subgoal of its own.
    """
    subgoals: list[str] = []
    for number, action in enumerate(gold):
        if _ON_THE_WAY.match(action):
            acts = (later for later in gold[number:] if not _ON_THE_WAY.match(later))
            subgoals.append(f"find {about(next(acts, 'something'))}")
        elif _WATCHING.match(action):
            before = subgoals[-1] if subgoals else ""
            subgoals.append(before if before.startswith("watch ") else f"watch {about(action)}")
        else:
            subgoals.append(_PLACE.sub("", action))
    return [Planned(action, subgoal) for action, subgoal in zip(gold, subgoals, strict=True)]


def about(action: str) -> str:
    """The thing that an action is done to."""
    text = re.sub(r"^(?:pick up|put down|focus on|look in|[a-z]+1?) ?", "", action)
    if action.startswith("use ") and " on " in text:
        text = text.partition(" on ")[2]
    return _PLACE.sub("", text.partition(" to ")[0].partition(" into ")[0]) or "time pass"


def first_room(start: str, goal: str) -> str:
    """The next room on a shortest way."""
    ways = [[start]]
    for way in ways:
        for beyond in NEIGHBOURS[way[-1]]:
            if beyond == goal:
                return [*way, goal][1]
            if beyond not in way:
                ways.append([*way, beyond])
    return goal


def slip_command(env: Run, rng: Rng) -> str:
    """An action that does no harm: into a neighbouring room, a look at something in sight, a look around."""
    here = room(env.last_reply)
    things = _THING.findall(env.last_reply)
    forms = [*(f"go to {name}" for name in NEIGHBOURS.get(here or "", ())), *_HARMLESS]
    if things:
        forms += [f"examine {_pick(things, rng)}"] * 2
    return _pick(forms, rng)


def random_command(env: Run, rng: Rng) -> str:
    """A harmless action, or, in half of the cases, one that is refused."""
    action = slip_command(env, rng)
    if rng.random() < 0.5:
        return action
    thing = _pick(_THING.findall(env.last_reply) or ["red box"], rng)
    forms = (f"open {thing} {thing}", f"go to {thing}", f"take {action}", f"{action} now", f"use {thing}")
    return _pick(forms, rng)


def _pick(options: Sequence[str], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
