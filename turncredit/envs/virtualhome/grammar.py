"""The rule judge's grammar of VirtualHome (actions of its grammar in either form, the replies of `home`).

It judges generated tasks' sentences; of a recorded program's it knows the words only, and counts an action on an object
that they mention as one that the task may need. What is in hand, washed, switched on or put down is inferred from the
window's own actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.judging import Turn
from turncredit.envs.virtualhome.actions import parse
from turncredit.envs.virtualhome.expert import Wish, read_wish
from turncredit.envs.virtualhome.home import REFUSED
from turncredit.envs.virtualhome.things import FURNITURE, opens

_LISTED = re.compile(r"(?:You see|In it:|On it:) ([^.]*)\.")
_WORD = re.compile(r"[a-z]+(?:_[a-z]+)*")
_WALKS = ("WALK", "RUN", "FIND")
_WASHES = ("WASH", "RINSE", "SCRUB")
_PUTS = ("PUTIN", "PUTBACK", "PUTOBJBACK", "DROP", "RELEASE")
#: an action that undoes another one
_UNDOES = {"CLOSE": "OPEN", "SWITCHOFF": "SWITCHON", "PLUGOUT": "PLUGIN", "STANDUP": "SIT", "PUTOFF": "PUTON"}


class Goal(NamedTuple):
    """A task's sentence: what a generated task wishes for (None for another sentence), and all its words."""

    wish: Wish | None
    words: frozenset[str]


class Act(NamedTuple):
    """An action and its reply, read: verb and objects (classes), and the classes that the reply shows."""

    text: str
    verb: str
    objects: tuple[str, ...]
    refused: bool
    reply: str
    shown: frozenset[str]

    @property
    def thing(self) -> str:
        """The first object."""
        return self.objects[0] if self.objects else ""

    @property
    def place(self) -> str:
        """The second object."""
        return self.objects[1] if len(self.objects) > 1 else ""


class Scene(NamedTuple):
    """A window with what its earlier turns tell."""

    goal: Goal
    wish: Wish
    before: Sequence[Act]
    now: Act
    held: frozenset[str]
    washed: frozenset[str]
    placed: frozenset[str]

    def done_before(self) -> bool:
        """Whether the same action succeeded earlier in the window, and was not undone since."""
        for act in reversed(self.before):
            if act.refused:
                continue
            if act.text == self.now.text:
                return True
            if _UNDOES.get(act.verb) == self.now.verb and act.objects == self.now.objects:
                return False
        return False

    def wanted(self) -> frozenset[str]:
        """The things that are still to be brought somewhere."""
        return frozenset(self.wish.things) - self.placed


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Goal:
    """The goal of a task's sentence."""
    sentence = " ".join(text.lower().split())
    return Goal(read_wish(sentence), frozenset(_WORD.findall(sentence)))


@lru_cache(maxsize=1 << 14)
def read_turn(turn: Turn) -> Act:
    """A turn, read; the verb is empty where the action has no known form."""
    parsed = parse(turn.action)
    verb, mentions = parsed if parsed else ("", ())
    reply = turn.observation.strip()
    shown = frozenset(
        name.split(" ")[0] for listed in _LISTED.findall(reply) for name in listed.split(", ") if name != "nothing"
    )
    text = " ".join(turn.action.lower().split())
    return Act(text, verb, tuple(one.name for one in mentions), reply.startswith(REFUSED), reply, shown)


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).verb)


def judge(goal: Goal, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what an action was
    if now.refused or not now.verb:
        if any(act.text == now.text for act in before):
            return "R", f"repeats '{now.text}', which was not possible"
        return "N", "the action was not possible; nothing changed"
    if goal.wish is None:
        return _by_words(goal, before, now)
    scene = _scene(goal, goal.wish, before, now)
    for verbs, rule in _RULES:
        if now.verb in verbs:
            return rule(scene)
    return "N", f"'{now.text}' changes nothing that the task needs"


def _by_words(goal: Goal, before: Sequence[Act], now: Act) -> tuple[str, str]:
    """A recorded program's task, whose sentence is people's own."""
    if any(act.text == now.text and not act.refused for act in before):
        return "R", f"'{now.text}' again"
    if any(goal.words & set(name.split("_")) or name in goal.words for name in now.objects):
        return ("E" if now.verb in _WALKS else "D"), f"the task mentions {' and '.join(now.objects)}"
    return ("E", "a first visit") if now.verb in _WALKS else ("N", "the task does not mention it")


def _walk(scene: Scene) -> tuple[str, str]:
    now, wish = scene.now, scene.wish
    name = now.thing
    last = next((act for act in reversed(scene.before) if not act.refused), None)
    if last is not None and last.verb in _WALKS and last.objects == now.objects:
        return "R", f"walks to {name} again"
    carrying = scene.held & scene.wanted()
    if carrying and name == wish.place:
        return "D", f"takes {', '.join(sorted(carrying))} to {name}, where the task wants it"
    if name in scene.wanted() and name not in scene.held:
        return "D", f"walks to {name}, which the task asks for"
    if name in (*wish.devices, wish.seat) and not scene.wanted():
        return "D", f"walks to {name}, which the task names"
    if name in scene.placed:
        return "R", f"walks back to {name}, which is where it belongs"
    visits = [act for act in scene.before if act.verb in _WALKS and not act.refused and act.objects == now.objects]
    if visits:
        leads = FURNITURE[wish.place].rooms if carrying and wish.place in FURNITURE else ()
        if name in leads:
            return "D", f"takes what the task asks for to the {name}"
        return "R", f"walks to {name}, seen a few turns before; nothing new"
    if name in FURNITURE and not opens(name):
        return "N", f"walks to {name}, which the task does not name"
    return "E", f"first look at {name}"


def _open(scene: Scene) -> tuple[str, str]:
    name = scene.now.thing
    if scene.done_before():
        return "R", f"opens {name} again"
    if name == scene.wish.place and scene.held & scene.wanted():
        return "D", f"opens {name}, where what it holds is to go"
    if scene.now.shown & scene.wanted():
        return "D", f"opening {name} shows {', '.join(sorted(scene.now.shown & scene.wanted()))}"
    return "E", f"first look into {name}"


def _grab(scene: Scene) -> tuple[str, str]:
    thing = scene.now.thing
    if thing in scene.placed:
        return "R", f"takes {thing} from where it belongs"
    if thing not in scene.wish.things:
        return "R", f"takes {thing}, which the task does not ask for"
    if any(act.verb == "GRAB" and act.thing == thing and not act.refused for act in scene.before):
        return "R", f"takes {thing} again after putting it down"
    return "D", f"takes {thing}, which the task asks for"


def _put(scene: Scene) -> tuple[str, str]:
    thing, place, wish = scene.now.thing, scene.now.place, scene.wish
    if thing not in wish.things:
        return "N", f"puts {thing} down, which the task does not ask for"
    if place != wish.place or (scene.now.verb == "PUTIN") != opens(place):
        return "R", f"puts {thing} {'down' if not place else f'at {place}'}, where the task does not want it"
    return "D", f"puts {thing} where the task wants it"


def _wash(scene: Scene) -> tuple[str, str]:
    thing = scene.now.thing
    if not scene.wish.washed or thing not in scene.wish.things:
        return "N", f"the task does not ask for washing {thing}"
    return ("R", f"{thing} was washed before") if thing in scene.washed else ("D", f"washes {thing}, as the task asks")


def _switch(scene: Scene) -> tuple[str, str]:
    now, wish = scene.now, scene.wish
    name = now.thing
    if name not in wish.devices:
        if now.verb == "SWITCHOFF" and name == wish.place:
            return "D", f"switches off {name}, which can then be opened"
        return "N", f"the task does not ask for {name}"
    if now.verb in ("SWITCHOFF", "PLUGOUT"):
        return "R", f"undoes what the task asks of {name}"
    if scene.wanted() and scene.before:
        return "R", f"switches on {name} before everything is in it"
    return "D", f"{now.text}, which the task needs"


def _sit(scene: Scene) -> tuple[str, str]:
    if scene.now.thing == scene.wish.seat and scene.now.verb == "SIT":
        return "D", f"sits down on {scene.now.thing}, as the task asks"
    return "R", "sits or lies down where the task does not want it"


def _close(scene: Scene) -> tuple[str, str]:
    return "N", f"closing {scene.now.thing} is nothing the task needs"


_RULES: tuple[tuple[tuple[str, ...], Callable[[Scene], tuple[str, str]]], ...] = (
    (_WALKS, _walk),
    (("OPEN",), _open),
    (("CLOSE",), _close),
    (("GRAB",), _grab),
    (_PUTS, _put),
    (_WASHES, _wash),
    (("SWITCHON", "SWITCHOFF", "PLUGIN", "PLUGOUT"), _switch),
    (("SIT", "LIE"), _sit),
)


def _scene(goal: Goal, wish: Wish, before: Sequence[Act], now: Act) -> Scene:
    held: set[str] = set()
    washed: set[str] = set()
    put: set[str] = set()
    for act in before:
        if act.refused:
            continue
        if act.verb == "GRAB":
            held.add(act.thing)
            put.discard(act.thing)
        elif act.verb in _WASHES:
            washed.add(act.thing)
        elif act.verb in _PUTS:
            held.discard(act.thing)
            if act.thing in wish.things and act.place == wish.place:
                put.add(act.thing)
    last = next((act for act in reversed(before) if not act.refused), None)
    if last is not None and (listed := re.search(r"You hold ([^.]*)\.", last.reply)):
        held |= {name.split(" ")[0] for name in listed[1].split(", ")}
    placed = put & washed if wish.washed else put  # washed before or after: the goal has no order
    return Scene(goal, wish, before, now, frozenset(held), frozenset(washed), frozenset(placed))
