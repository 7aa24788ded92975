"""Experts: one that searches a generated household by what it observes, one that follows a recorded program.

The first knows the task's sentence, its observations, and where things are usually kept (`things`); it looks for them
there, in that order. Both write the plan behind their actions for agents that learn one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa

from turncredit.envs.protocol import Rng
from turncredit.envs.virtualhome.actions import TEXTS, parse, write
from turncredit.envs.virtualhome.home import REFUSED, VirtualHome
from turncredit.envs.virtualhome.things import FURNITURE, THINGS, opens

#: The plan beside the actions: the subgoal; whether the subgoal before, another one, was reached; why this action
COLUMNS = {"subgoal": pa.string(), "completed": pa.bool_(), "reflection": pa.string()}

_LIST = r"((?:[a-z_]+(?: \d+)?)(?:, [a-z_]+(?: \d+)?)*)"
_SEEN = re.compile(rf"(?:You see|In it:|On it:) {_LIST}\.")
_INSIDE = re.compile(rf"In it: {_LIST}\.")
_HELD = re.compile(rf"You hold {_LIST}\.")
_WALKED = re.compile(r"You (?:walk to|run to|find) ([a-z_]+(?: \d+)?)\.")
_DID = re.compile(r"You ([a-z ]+?) ([a-z_]+(?: \d+)?)(?: (?:in|on|into) ([a-z_]+(?: \d+)?))?\.")
_START = re.compile(rf"You are in ([a-z_]+)\. You see {_LIST}\. Rooms: {_LIST}\.")


class Wish(NamedTuple):
    """A task's sentence, read: things to put somewhere (washed first), what to switch on, where to sit."""

    things: tuple[str, ...] = ()
    place: str = ""
    washed: bool = False
    devices: tuple[str, ...] = ()
    seat: str = ""


def _named(text: str) -> tuple[str, ...]:
    return tuple(text.split(" and "))


_SENTENCES: tuple[tuple[re.Pattern[str], Callable[[re.Match[str]], Wish]], ...] = tuple(
    (re.compile(pattern), make)
    for pattern, make in (
        (r"switch on (\w+(?: and \w+)*) and sit on (\w+)", lambda m: Wish(devices=_named(m[1]), seat=m[2])),
        (r"switch on (\w+(?: and \w+)*)", lambda m: Wish(devices=_named(m[1]))),
        (r"put (\w+) in (\w+) and switch on \2", lambda m: Wish((m[1],), m[2], devices=(m[2],))),
        (r"wash (\w+) and put it (?:in|on) (\w+)", lambda m: Wish((m[1],), m[2], washed=True)),
        (r"put (\w+) and (\w+) (?:in|on) (\w+)", lambda m: Wish((m[1], m[2]), m[3])),
        (r"put (\w+) (?:in|on) (\w+)", lambda m: Wish((m[1],), m[2])),
    )
)


def read_wish(sentence: str) -> Wish | None:
    """The wish of a generated task's sentence; None where it has another form."""
    for pattern, make in _SENTENCES:
        if match := pattern.fullmatch(sentence):
            return make(match)
    return None


def class_of(name: str) -> str:
    """`light` of `light 2`."""
    return name.split(" ", maxsplit=1)[0]


class Plan(NamedTuple):
    """What the expert is about to do: an action, the subgoal it serves, why, and whether the subgoal is reached."""

    subgoal: str
    action: str
    why: str
    reached: Callable[[], bool]


def expert(env: VirtualHome, rng: Rng) -> Searcher | Follower:
    """The expert for a task."""
    return Follower(env.program) if env.program else Searcher(env, rng)


class Task(Protocol):
    """What the expert may know of an environment."""

    goal: str


class Searcher:
    """Looks for what a task needs and carries it out. `rng` decides nothing."""

    def __init__(self, env: Task, _rng: Rng) -> None:
        wish = read_wish(env.goal)
        assert wish is not None, env.goal
        self._wish = wish
        self._seen: set[str] = set()
        self._rooms: set[str] = set()
        """Rooms of the household."""
        self._visited: set[str] = set()
        """Rooms that it has been in."""
        self._opened: set[str] = set()
        """Furniture whose inside it has seen."""
        self._closed: set[str] = set()
        self._at = ""
        """The object that it walked to last."""
        self._held: tuple[str, ...] = ()
        self._inside: dict[str, str] = {}
        """Thing to the furniture that it was last seen or put in or on."""
        self._washed: set[str] = set()
        self._on: set[str] = set()
        self._off: set[str] = set()
        """Machines that it must switch off before it can open them."""
        self._unplugged: set[str] = set()
        self._seated = False
        self._last = ""
        self._failed = False
        self._completed = False
        self._plan = Plan("", "", "", lambda: False)

    def observe(self, observation: str, action: str | None = None) -> None:
        """See what the environment printed; `action` is given if another action than `act`'s was carried out."""
        self._failed = observation.startswith(REFUSED)
        if self._failed:
            self._learn(observation, self._last if action is None else action)
            return
        if match := _START.match(observation):
            self._visited.add(match[1])
            self._rooms.update(_names(match[3]))
        for match in _SEEN.finditer(observation):
            self._seen.update(_names(match[1]))
        held = _HELD.search(observation)
        self._held = tuple(_names(held[1])) if held else ()
        text = observation.partition(".")[0] + "."
        if match := _WALKED.match(text):
            self._arrived(match[1], observation)
        elif text == "You stand up.":
            self._seated = False
        elif match := _DID.match(text):
            self._did(match[1], match[2], match[3] or "", observation)

    def act(self) -> str:
        """The next action."""
        plan = self._decide()
        self._completed = plan.subgoal != self._plan.subgoal and self._plan.reached()
        self._plan, self._last = plan, plan.action
        return self._last

    def columns(self) -> dict[str, Any]:
        """The plan behind the last action (`COLUMNS`)."""
        reflection = "it was refused" if self._failed else self._plan.why
        return {"subgoal": self._plan.subgoal, "completed": self._completed, "reflection": reflection}

    # -- memory --

    def _arrived(self, name: str, observation: str) -> None:
        self._at = name
        if "You see " in observation:
            self._visited.add(name)
            return
        state = observation.partition("It is ")[2].partition(".")[0].split(" and ")
        self._note(self._closed, name, "closed" in state)
        self._note(self._on, name, "on" in state)
        self._note(self._unplugged, name, "unplugged" in state)
        if match := re.search(rf"(?:In|On) it: {_LIST}\.", observation):
            self._inside.update(dict.fromkeys(_names(match[1]), name))
        if "closed" not in state:
            self._opened.add(name)

    def _did(self, verb: str, name: str, place: str, observation: str) -> None:
        if verb == "open":
            self._closed.discard(name)
            self._opened.add(name)
            if match := _INSIDE.search(observation):
                self._inside.update(dict.fromkeys(_names(match[1]), name))
        elif verb == "close":
            self._closed.add(name)
        elif verb == "grab":
            self._inside.pop(name, None)
        elif verb == "put" and place:
            self._inside[name] = place
        elif verb in ("wash", "rinse", "scrub", "wipe"):
            self._washed.add(name)
        elif verb in ("switch on", "switch off"):
            self._note(self._on, name, verb == "switch on")
        elif verb in ("plug in", "plug out"):
            self._note(self._unplugged, name, verb == "plug out")
        elif verb in ("sit on", "lie on"):
            self._seated = True

    @staticmethod
    def _note(names: set[str], name: str, holds: bool) -> None:
        if holds:
            names.add(name)
        else:
            names.discard(name)

    def _learn(self, observation: str, action: str) -> None:
        """A refusal tells what stands in the way."""
        parsed = parse(action)
        name = self._name(parsed[1][-1]) if parsed and parsed[1] else ""
        if "sitting" in observation:
            self._seated = "not sitting" not in observation
        if "not close" in observation:
            self._at = ""
        for words, names in (("still on", self._on), ("unplugged", self._unplugged), ("not open", self._closed)):
            if words in observation:
                names.add(name)

    def _name(self, mention: Any) -> str:
        numbered = f"{mention.name} {mention.number}"
        return numbered if numbered in self._seen else mention.name

    # -- decisions --

    def _decide(self) -> Plan:
        wish = self._wish
        off = [device for device in wish.devices if device not in self._on]
        if self._seated and not (wish.seat and not off):
            return Plan("stand up", write("STANDUP"), "sitting", lambda: not self._seated)
        missing = [thing for thing in wish.things if not self._placed(thing)]
        if missing:
            in_hand = [thing for thing in missing if any(class_of(name) == thing for name in self._held)]
            return self._deliver((in_hand or missing)[0])
        if off:
            return self._switch(next((device for device in off if device in self._seen), off[0]))
        if wish.seat:
            subgoal = f"sit on {wish.seat}"
            return Plan(
                subgoal,
                self._reach(wish.seat) or write("SIT", wish.seat),
                f"{wish.devices[-1]} is on",
                lambda: self._seated,
            )
        return Plan("look again", write("WALK", wish.place or wish.devices[0]), "all seems done", lambda: False)

    def _placed(self, thing: str) -> bool:
        return any(
            self._inside.get(name) == self._wish.place and (not self._wish.washed or name in self._washed)
            for name in self._instances(thing)
        )

    def _instances(self, thing: str) -> list[str]:
        return sorted(name for name in {*self._seen, *self._held} if class_of(name) == thing)

    def _deliver(self, thing: str) -> Plan:
        held = next((name for name in self._held if class_of(name) == thing), None)
        if held is None:
            return self._fetch(thing)
        if self._wish.washed and held not in self._washed:
            return Plan(f"wash {held}", write("WASH", held), f"{held} is in hand", lambda: held in self._washed)
        place = self._wish.place
        subgoal = f"put {held} {'in' if opens(place) else 'on'} {place}"
        verb = "PUTIN" if opens(place) else "PUTBACK"
        action = self._reach(place) or self._opening(place) or write(verb, held, place)
        return Plan(subgoal, action, f"{held} is in hand", lambda: self._inside.get(held) == place)

    def _fetch(self, thing: str) -> Plan:
        """Take a thing that is known, or look for one."""
        extra = [name for name in self._held if class_of(name) not in self._wish.things]
        if len(self._held) == 2 and extra:
            return Plan(f"drop {extra[0]}", write("DROP", extra[0]), f"{extra[0]} is not needed", lambda: True)
        names = self._instances(thing)
        if not names:
            return self._search(thing)
        name = names[0]
        box = self._inside.get(name, "")
        if box in self._closed:
            action = self._reach(box) or self._opening(box)
        else:
            action = None if self._at in (name, box) and self._at else self._reach(name)
        where = f"{name} is in {box}" if box else f"{name} is in sight"
        return Plan(f"grab {name}", action or write("GRAB", name), where, lambda: name in self._held)

    def _search(self, thing: str) -> Plan:
        """Go where such things are kept: into rooms first seen, then into what is closed."""
        subgoal = f"find {thing}"

        def reached() -> bool:
            return bool(self._instances(thing))

        for place in THINGS[thing].places:
            if room := self._unvisited(place):
                return Plan(subgoal, write("WALK", room), f"no {thing} yet", reached)
            if opens(place) and place in self._seen and place not in self._opened:
                action = self._reach(place) or self._opening(place) or write("WALK", place)
                return Plan(subgoal, action, f"no {thing} yet", reached)
        boxes = sorted(name for name in self._seen if opens(name) and name not in self._opened)
        if boxes:  # somebody has put it elsewhere
            action = self._reach(boxes[0]) or self._opening(boxes[0]) or write("WALK", boxes[0])
            return Plan(subgoal, action, f"no {thing} yet", reached)
        return Plan(subgoal, write("WALK", min(self._visited)), f"no {thing} yet", reached)

    def _switch(self, device: str) -> Plan:
        action = self._reach(device)
        if action is None and device in self._unplugged:
            full = len(self._held) == 2
            action = write("DROP", self._held[0]) if full else write("PLUGIN", device)
        why = f"{device} is unplugged" if device in self._unplugged else f"{device} is off"
        return Plan(f"switch on {device}", action or write("SWITCHON", device), why, lambda: device in self._on)

    def _reach(self, name: str) -> str | None:
        """The action that brings it to an object; None where it is there."""
        if self._at == name:
            return None
        return write("WALK", self._unvisited(class_of(name)) or name)

    def _unvisited(self, name: str) -> str:
        """A room that it has not been in and where furniture that it has not seen may be; empty where there is none."""
        if name in self._seen or name not in FURNITURE:
            return ""
        there = (room for room in FURNITURE[name].rooms if room in self._rooms)
        return next((room for room in there if room not in self._visited), "")

    def _opening(self, name: str) -> str | None:
        """The action without which nothing goes in or out of furniture; None where nothing stands in the way."""
        if name not in self._closed:
            return None
        if len(self._held) == 2:
            return write("DROP", next((h for h in self._held if class_of(h) not in self._wish.things), self._held[-1]))
        return write("SWITCHOFF", name) if name in self._on else write("OPEN", name)


def _names(listed: str) -> list[str]:
    return [] if listed == "nothing" else listed.split(", ")


class Follower:
    """Carries out a recorded program line by line. Whoever carries out the next line, the program goes on after it."""

    def __init__(self, program: Sequence[str]) -> None:
        self._program, self._done, self._last, self._completed = program, 0, "", False

    def observe(self, _observation: str, action: str | None = None) -> None:
        """Hear that a turn is over; another action than the next line leaves that line to be done."""
        self._done += (self._last if action is None else action) == self._line

    def act(self) -> str:
        """The next line; the last one again when there is none."""
        self._completed = self._last not in ("", self._line)
        self._last = self._line
        return self._last

    def columns(self) -> dict[str, Any]:
        """The plan behind the last action (`COLUMNS`): the line as text, which is its own subgoal."""
        return {"subgoal": self._text, "completed": self._completed, "reflection": "the next step"}

    @property
    def _line(self) -> str:
        return self._program[min(self._done, len(self._program) - 1)]

    @property
    def _text(self) -> str:
        parsed = parse(self._last)
        return write(parsed[0], *(named.name for named in parsed[1])) if parsed and parsed[0] in TEXTS else self._last


def slip_command(env: VirtualHome, rng: Rng) -> str:
    """A random admissible action: the agent acts, but not towards its goal."""
    return _pick(env.admissible(), rng)


_NOISE = ("WALK", "GRAB", "OPEN", "CLOSE", "SWITCHON", "SIT", "WASH")


def random_command(env: VirtualHome, rng: Rng) -> str:
    """A random action: in half the cases an admissible one, in the others plausible but mostly refused."""
    action = _pick(env.admissible(), rng)
    if rng.random() < 0.5:
        return action
    names = sorted({name for name in env.household.names.values() if name != "character"})
    first, second = _pick(names, rng), _pick(names, rng)
    forms = (
        write(_pick(_NOISE, rng), first),
        write("PUTIN", first, second),
        write("PUTBACK", first, second),
        action.rpartition(" ")[0],
    )
    return _pick(forms, rng)


def _pick(options: Sequence[str], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
