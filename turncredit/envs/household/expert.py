"""A rule-based expert that knows only what it has observed, and plausible noise for demonstrations.

The planner looks into closed drawers; a policy cannot learn that. Demonstrations therefore come from this
agent, which reads the task and the observations, searches receptacles in the order in which the room lists
them, and remembers what it has seen.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from turncredit.envs.protocol import Rng

#: The plan that it writes beside its actions, for agents that learn one:
#: the subgoal of the action; whether the subgoal before, another one, was reached; what led to the action
COLUMNS = {"subgoal": pa.string(), "completed": pa.bool_(), "reflection": pa.string()}

_GOALS = (
    ("clean", r"put a clean (?P<o>\w+) in (?P<r>\w+)|clean some (?P<o2>\w+) and put it in (?P<r2>\w+)"),
    ("heat", r"put a hot (?P<o>\w+) in (?P<r>\w+)|heat some (?P<o2>\w+) and put it in (?P<r2>\w+)"),
    ("cool", r"put a cool (?P<o>\w+) in (?P<r>\w+)|cool some (?P<o2>\w+) and put it in (?P<r2>\w+)"),
    ("pick2", r"put two (?P<o>\w+) in (?P<r>\w+)|find two (?P<o2>\w+) and put them in (?P<r2>\w+)"),
    ("look", r"look at (?P<o>\w+) under the (?P<r>\w+)|examine the (?P<o2>\w+) with the (?P<r2>\w+)"),
    ("pick", r"put a (?P<o>\w+) in (?P<r>\w+)|put some (?P<o2>\w+) on (?P<r2>\w+)"),
)
_TOOL = {"clean": "sinkbasin", "heat": "microwave", "cool": "fridge"}
_UNDOES = {"heat": "cool", "cool": "heat"}
_STATE = {"clean": "clean", "heat": "hot", "cool": "cool"}

_CONTENTS = re.compile(
    r"(?:On the (?P<on>[a-z]+ \d+)|The (?P<into>[a-z]+ \d+) is open\. In it), you see (?P<list>.*?)\."
)
_CLOSED = re.compile(r"The ([a-z]+ \d+) is closed\.|You close the ([a-z]+ \d+)\.")
_TAKEN = re.compile(r"You pick up the ([a-z]+ \d+) from the ([a-z]+ \d+)\.")
_PUT = re.compile(r"You (?:move|put) the ([a-z]+ \d+) (?:to|in/on) the ([a-z]+ \d+)\.")
_TREATED = re.compile(r"You (clean|heat|cool) the ([a-z]+ \d+) using the ")
_FACING = re.compile(r"You are facing the ([a-z]+ \d+)")
_NAME = re.compile(r"[a-z]+ \d+")
_MISTAKE = "Nothing happens."


class Task(Protocol):
    """What the expert may know of an environment: the task's text, and how its edition phrases a `put`."""

    goal: str
    put_command: str


class Room(Task, Protocol):
    """The part of an environment that noise needs."""

    def admissible(self) -> tuple[str, ...]:
        """The commands that are allowed now."""
        ...


class Plan(NamedTuple):
    """What the expert is about to do: a command, the subgoal it serves, why, and whether the subgoal is reached."""

    subgoal: str
    command: str
    why: str
    reached: Callable[[], bool]


def names_in(text: str) -> list[str]:
    """The things and receptacles that a text names, such as `mug 2`, in its order."""
    return _NAME.findall(text)


def contents_in(observation: str) -> Iterator[tuple[str, list[str]]]:
    """Each receptacle whose contents an observation shows, and what is in it."""
    for match in _CONTENTS.finditer(observation):
        yield match["on"] or match["into"], names_in(match["list"])


def kind_of(name: str) -> str:
    """`mug` of `mug 2`."""
    return name.rsplit(" ", 1)[0]


def read_goal(goal: str) -> tuple[str, str, str]:
    """Family, object kind and target (or lamp) kind of a task sentence. Raises ValueError."""
    for family, pattern in _GOALS:
        match = re.match(pattern, goal)
        if match:
            return family, match["o"] or match["o2"], match["r"] or match["r2"]
    raise ValueError(f"not a household task: {goal!r}")


class Expert:
    """Searches, remembers and carries out one task.

    Call `observe` with the first observation and then with each further one, and `act` for the next command; `columns`
    has the plan behind it.
    With `skip`, it forgets to clean, heat or cool. `rng` only decides where it looks again when it is lost.
    """

    def __init__(self, env: Task, rng: Rng, skip: bool = False) -> None:
        self.family, self._object_kind, self._target_kind = read_goal(env.goal)
        self._put_command = env.put_command
        self._rng = rng
        self._skip = skip
        self._receptacles: list[str] = []
        self._contents: dict[str, list[str]] = {}
        """What was last seen in each receptacle that has been looked into."""
        self._closed: set[str] = set()
        self._at: str | None = None
        self._held: str | None = None
        self._origin = ""
        """Where the held object was taken from."""
        self._treated: dict[str, set[str]] = {}
        """Object to its treatments so far."""
        self._refused: set[str] = set()
        """Commands that were refused although they should have worked."""
        self._last = ""
        self._plan = Plan("", "", "", lambda: False)
        self._completed = False
        self._failed = False
        """Whether the last observation was a refusal."""

    def observe(self, observation: str, action: str | None = None) -> None:
        """Observe what the environment printed; `action` is given if another command than `act`'s was carried out."""
        if not self._receptacles:
            self._receptacles = names_in(observation)
            return
        self._failed = observation == _MISTAKE
        if self._failed:
            if action in (None, self._last):
                self._learn_from_mistake(self._last)
            return
        for receptacle, things in contents_in(observation):
            self._at = receptacle
            self._contents[receptacle] = things
            self._closed.discard(receptacle)
        if match := _CLOSED.search(observation):
            self._at = match[1] or match[2]
            self._closed.add(self._at)
        elif match := _TAKEN.search(observation):
            self._held, self._origin = match[1], match[2]
            self._forget(match[1], match[2])
        elif match := _PUT.search(observation):
            self._held = None
            self._contents.setdefault(match[2], []).append(match[1])
        elif match := _TREATED.search(observation):
            states = self._treated.setdefault(match[2], set())
            states.add(match[1])
            states.discard(_UNDOES.get(match[1], ""))
        elif match := _FACING.search(observation):
            self._at = self._at or match[1]

    def act(self) -> str:
        """The next command."""
        plan = self._decide()
        self._completed = plan.subgoal != self._plan.subgoal and self._plan.reached()
        self._plan, self._last = plan, plan.command
        return self._last

    def columns(self) -> dict[str, Any]:
        """The plan behind the last command (`COLUMNS`)."""
        reflection = "nothing happened" if self._failed else self._plan.why
        return {"subgoal": self._plan.subgoal, "completed": self._completed, "reflection": reflection}

    @property
    def finished(self) -> bool:
        """Whether it believes that there is nothing left to do (with `skip`, mostly wrongly)."""
        if self.family == "look":
            return False
        need = 2 if self.family == "pick2" else 1
        ready = [o for o in self._delivered() if self._skip or not self._needs_treatment(o)]
        return len(ready) >= need

    # -- memory --

    def _learn_from_mistake(self, action: str) -> None:
        """Correct the memory after a command of its own was refused, so that it does not try the same again."""
        self._refused.add(action)
        if action.startswith("go to "):
            receptacle = action.removeprefix("go to ")
            if receptacle in self._receptacles:  # already there: it shares the location
                self._at = receptacle
        elif action.startswith("take ") and (names := names_in(action)):
            self._forget(names[0], names[-1])

    def _forget(self, thing: str, receptacle: str) -> None:
        if thing in self._contents.get(receptacle, ()):
            self._contents[receptacle].remove(thing)

    def _needs_treatment(self, thing: str) -> bool:
        return self.family in _TOOL and self.family not in self._treated.get(thing, ())

    def _target(self) -> str | None:
        """The receptacle to fill: the one with most of the wanted things in it, else the first listed."""
        fitting = [
            r
            for r in self._receptacles
            if kind_of(r) == self._target_kind
            and not (self._held and self._put_command.format(o=self._held, r=r) in self._refused)
        ]
        return max(fitting, key=lambda r: len(self._wanted_in(r)), default=None)

    def _wanted_in(self, receptacle: str) -> list[str]:
        return [o for o in self._contents.get(receptacle, ()) if kind_of(o) == self._object_kind]

    def _delivered(self) -> list[str]:
        target = self._target()
        return self._wanted_in(target) if target else []

    def _locate(self, kind: str) -> tuple[str, str] | None:
        """The first remembered thing of a kind that is still to be fetched, and its receptacle."""
        done = set() if self.family == "look" else {o for o in self._delivered() if not self._needs_treatment(o)}
        for receptacle in self._receptacles:
            for thing in self._contents.get(receptacle, ()):
                if kind_of(thing) == kind and thing not in done and f"use {thing}" not in self._refused:
                    return thing, receptacle
        return None

    # -- decisions --

    def _decide(self) -> Plan:
        if self.finished:
            return Plan("look around", "look", "the task is done", lambda: False)
        if self._held is None:
            location = self._locate(self._object_kind)
            if location is None:
                return self._search(self._object_kind)
            thing, receptacle = location
            command = self._reach(receptacle) or f"take {thing} from {receptacle}"
            return Plan(f"take {thing}", command, f"{thing} is in {receptacle}", lambda: self._held == thing)
        held = self._held
        if kind_of(held) != self._object_kind:
            command = self._reach(self._origin) or self._put_command.format(o=held, r=self._origin)
            return Plan(f"put {held} back", command, f"{held} is not wanted", lambda: self._held is None)
        if self.family == "look":
            return self._light()
        if self._needs_treatment(held) and not self._skip:
            return self._treat(held)
        target = self._target()
        if target is None:
            return self._search(self._target_kind)
        command = self._reach(target) or self._put_command.format(o=held, r=target)
        return Plan(
            f"put {held} in {target}", command, f"{held} is ready", lambda: held in self._contents.get(target, ())
        )

    def _light(self) -> Plan:
        location = self._locate(self._target_kind)
        if location is None:
            return self._search(self._target_kind)
        lamp, receptacle = location
        command = self._reach(receptacle, opened=False) or f"use {lamp}"
        return Plan(f"use {lamp}", command, f"{lamp} is in {receptacle}", lambda: False)

    def _treat(self, thing: str) -> Plan:
        for tool in self._receptacles:
            command = f"{self.family} {thing} with {tool}"
            if kind_of(tool) == _TOOL[self.family] and command not in self._refused:
                return Plan(
                    f"{self.family} {thing}",
                    self._reach(tool, opened=False) or command,
                    f"{thing} is not {_STATE[self.family]}",
                    lambda: not self._needs_treatment(thing),
                )
        return self._search(_TOOL[self.family])

    def _reach(self, receptacle: str, opened: bool = True) -> str | None:
        """The command that brings the agent to a receptacle (and opens it); None when it is there."""
        if self._at != receptacle:
            return f"go to {receptacle}"
        if opened and receptacle in self._closed:
            return f"open {receptacle}"
        return None

    def _search(self, kind: str) -> Plan:
        """Look into the next receptacle in the room's order; those of the target's kind come last."""
        unseen = [r for r in self._receptacles if r not in self._contents]
        if not unseen:
            others = [r for r in self._receptacles if r != self._at]
            command = f"go to {others[int(self._rng.random() * len(others))]}"
        else:
            unseen.sort(key=lambda r: (r != self._at, kind_of(r) == self._target_kind))
            command = self._reach(unseen[0]) or f"examine {unseen[0]}"
        why = f"{self._at} is closed" if command.startswith("open ") else f"no {kind} yet"
        return Plan(f"find a {kind}", command, why, lambda: self._locate(kind) is not None)


_VERBS = ("take", "open", "close", "use", "clean", "heat", "cool", "slice", "examine", "go to")


_IDLE = ("examine", "help", "inventory", "look")


def slip_command(env: Room, rng: Rng) -> str:
    """A random admissible command that does something: the agent acts, but not towards its goal."""
    acts = [command for command in env.admissible() if not command.startswith(_IDLE)]
    return acts[int(rng.random() * len(acts))]


def random_command(env: Room, rng: Rng) -> str:
    """A random command: in half the cases an admissible one, in the others plausible but mostly refused."""

    def pick(options: tuple[str, ...] | list[str]) -> str:
        return options[int(rng.random() * len(options))]

    admissible = env.admissible()
    command = pick(admissible)
    if rng.random() < 0.5:
        return command
    names = sorted({name for option in admissible for name in names_in(option)})
    names.append(f"{read_goal(env.goal)[1]} 1")
    first, second, verb = pick(names), pick(names), pick(_VERBS)
    forms = (
        f"{verb} {first}",
        f"take {first} from {second}",
        env.put_command.format(o=first, r=second),
        f"{pick(('clean', 'heat', 'cool'))} {first} with {second}",
        f"go to {kind_of(first)} {int(rng.random() * 9) + 1}",
        command.rsplit(" ", 1)[0],
    )
    return pick(forms)
