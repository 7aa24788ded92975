"""The rule judge's grammar of household games (ALFWorld's commands and texts).

What is in hand and what has been cleaned, heated or cooled is inferred from the window's own actions. What the rubric
leaves open follows the paper's labelled rollouts A1-A3 (TRIAGE, appendix G): going to where the next required change
is made, with the wanted object in hand, is D; so is opening the container that holds it; examining something right
after opening it is a repeat, examining it after arriving there is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.judging import Turn

_GOALS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("clean", r"put (?:a|some) clean (\w+) (?:in|on) (\w+)"),
        ("clean", r"clean some (\w+) and put it (?:in|on) (\w+)"),
        ("heat", r"put (?:a|some) hot (\w+) (?:in|on) (\w+)"),
        ("heat", r"heat some (\w+) and put it (?:in|on) (\w+)"),
        ("cool", r"put (?:a|some) cool (\w+) (?:in|on) (\w+)"),
        ("cool", r"cool some (\w+) and put it (?:in|on) (\w+)"),
        ("several", r"put (?:two|three|all) (\w+) (?:in|on) (\w+)"),
        ("several", r"find (?:two|three|all) (\w+) and put them (?:in|on) (\w+)"),
        ("light", r"look at (?:the )?(\w+) under the (\w+)"),
        ("light", r"examine the (\w+) with the (\w+)"),
        ("one", r"put (?:a |some |the )?(\w+) (?:in|on) (?:a |the )?(\w+)"),
    )
)
_COMMANDS = tuple(
    (verb, re.compile(pattern + "$"))
    for verb, pattern in (
        ("go", r"go to (?P<place>.+)"),
        ("open", r"open (?P<place>.+)"),
        ("close", r"close (?P<place>.+)"),
        ("take", r"take (?P<thing>.+) from (?P<place>.+)"),
        ("put", r"move (?P<thing>.+) to (?P<place>.+)"),
        ("put", r"put (?P<thing>.+) in/on (?P<place>.+)"),
        ("clean", r"clean (?P<thing>.+) with (?P<place>.+)"),
        ("heat", r"heat (?P<thing>.+) with (?P<place>.+)"),
        ("cool", r"cool (?P<thing>.+) with (?P<place>.+)"),
        ("use", r"use (?P<thing>.+)"),
        ("slice", r"slice (?P<thing>.+) with .+"),
        ("examine", r"examine (?P<thing>.+)"),
        ("look", r"look"),
        ("inventory", r"inventory"),
    )
)
_APPLIANCE = {"clean": ("sinkbasin", "sink"), "heat": ("microwave",), "cool": ("fridge",)}
_TREATED = {"clean": "cleaned", "heat": "heated", "cool": "cooled"}
_UNDOES = {"heat": "cool", "cool": "heat"}
"""The treatment after which an object is no longer as the goal wants it."""
_CHANGES = ("take", "put", "clean", "heat", "cool")
_FAILED = "Nothing happens."
_LISTED = re.compile(r"(?:On|In) (?:the )?[\w ]*?,? you see (.*?)\.")
_NAME = re.compile(r"\ba ([a-z]+ \d+)")
_CARRIED = re.compile(r"You are carrying: a (?:\w+ )*?([a-z]+ \d+)\.")


class Goal(NamedTuple):
    """The task sentence: `kind` is a treatment, several, light, one, or unknown; `place` a receptacle or the lamp."""

    kind: str
    thing: str
    place: str

    @property
    def treatment(self) -> str:
        """The verb clean, heat or cool, or nothing."""
        return self.kind if self.kind in _APPLIANCE else ""


class Act(NamedTuple):
    """A command and its reply, read: names as the game writes them, `shown` the names listed in the reply."""

    text: str
    verb: str
    thing: str
    place: str
    failed: bool
    reply: str
    shown: tuple[str, ...]


class Scene(NamedTuple):
    """A window with what follows from its earlier turns: the object in hand (None where none is known to be), the
    objects that were treated as the goal wants, taken, and put where they belong.
    """

    goal: Goal
    before: Sequence[Act]
    now: Act
    after: Sequence[Act]
    held: str | None
    treated: frozenset[str]
    taken: frozenset[str]
    placed: frozenset[str]

    @property
    def carrying(self) -> bool:
        """Whether an object that the goal asks for is in hand."""
        return self.held is not None and _kind(self.held) == self.goal.thing

    @property
    def raw(self) -> bool:
        """Whether what is in hand must still be cleaned, heated or cooled."""
        return bool(self.goal.treatment) and self.held not in self.treated

    def done_before(self) -> bool:
        """Whether the same command succeeded earlier in the window."""
        return any(act.text == self.now.text and not act.failed for act in self.before)

    def shows(self) -> str | None:
        """An object the goal asks for that the reply lists, other than those put where they belong."""
        names = (name for name in self.now.shown if _kind(name) == self.goal.thing and name not in self.placed)
        return next(names, None)


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Goal:
    """The goal of a task sentence; kind `unknown` where it has another form."""
    sentence = text.lower()
    for kind, pattern in _GOALS:
        if match := pattern.search(sentence):
            return Goal(kind, *match.groups())
    return Goal("unknown", "", "")


@lru_cache(maxsize=1 << 16)
def read_turn(turn: Turn) -> Act:
    """A turn's command and reply, read; the verb is empty where the command has no known form."""
    text = " ".join(turn.action.lower().split())
    reply = turn.observation.strip()
    verb, thing, place = "", "", ""
    for name, pattern in _COMMANDS:
        if match := pattern.match(text):
            parts = match.groupdict()
            verb, thing, place = name, parts.get("thing", ""), parts.get("place", "")
            break
    shown = tuple(name for listed in _LISTED.findall(reply) for name in _NAME.findall(listed))
    return Act(text, verb, thing, place, reply == _FAILED, reply, shown)


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).verb)


def judge(goal: Goal, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    if now.failed:
        if any(act.text == now.text for act in before):
            return "R", f"repeats '{now.text}', which is not possible or done already"
        return "N", "the action was not possible; nothing changed and nothing was shown"
    scene = _scene(goal, before, now, after)
    if scene.placed and goal.kind in ("one", *_APPLIANCE) and now.verb != "take":
        return "N", "the task was done already"
    rule = _RULES.get(now.verb)
    return rule(scene) if rule else ("N", "changes nothing that the task needs")


def _go(scene: Scene) -> tuple[str, str]:
    goal, now = scene.goal, scene.now
    visits = [
        at for at, act in enumerate(scene.before) if act.verb == "go" and not act.failed and act.place == now.place
    ]
    if scene.carrying:
        return _go_carrying(scene, scene.before[visits[-1] :] if visits else None)
    if visits:
        following = scene.after[0] if scene.after else None
        takes = following if following is not None and following.verb == "take" and not following.failed else None
        if takes is not None and _kind(takes.thing) == goal.thing and scene.held is None:
            return "D", f"returns to {now.place} for {takes.thing}, which was seen there"
        if now.reply.endswith("is closed.") and _opens_next(scene):
            return "E", f"returns to the closed {now.place} and looks into it now"
        return "R", f"returns to {now.place}, visited a few turns before; nothing new"
    at_destination = _kind(now.place) == goal.place and goal.kind in ("one", "several")
    if scene.shows() and not at_destination:
        return "E", f"first visit to {now.place} shows {scene.shows()}"
    if at_destination and scene.held is None:
        return "N", f"goes to the destination {now.place} with nothing to put there"
    if f"The {now.place} is open." in now.reply:
        return "R", f"returns to the open {now.place}; what is in it was shown when it was opened"
    if now.reply.endswith("is closed.") and _opens_next(scene) is False:
        return "N", f"passes the closed {now.place} without opening it"
    return "E", f"first visit to {now.place}"


def _opens_next(scene: Scene) -> bool | None:
    """Whether the place gone to is opened before another one is gone to; None where the window does not show it."""
    for act in scene.after:
        if act.verb == "open" and act.place == scene.now.place and not act.failed:
            return True
        if act.verb == "go" and not act.failed:
            return False
    return None


def _go_carrying(scene: Scene, since_visit: Sequence[Act] | None) -> tuple[str, str]:
    """Going somewhere with a wanted object in hand; `since_visit` are the turns since the place was visited last."""
    goal, now, kind = scene.goal, scene.now, _kind(scene.now.place)
    if since_visit is not None and not any(act.verb in _CHANGES and not act.failed for act in since_visit):
        return "R", f"returns to {now.place} with {scene.held}; nothing has changed since it was there"
    if scene.raw:
        if kind in _APPLIANCE[goal.treatment]:
            return "D", f"takes {scene.held} to where it can be {_TREATED[goal.treatment]}"
    elif goal.kind == "light":
        if any(_kind(name) == goal.place for name in now.shown):
            return "D", f"takes {scene.held} to the {goal.place}"
        if since_visit is None:
            return "E", f"first visit to {now.place}, looking for the {goal.place}"
    elif kind == goal.place:
        return "D", f"takes {scene.held} to where the task wants it"
    if since_visit is not None:
        return "R", f"returns to {now.place}, where {scene.held} is not needed"
    return "N", f"takes {scene.held} to {now.place}, where it is not needed"


def _open(scene: Scene) -> tuple[str, str]:
    place = scene.now.place
    destination = _kind(place) == scene.goal.place
    if scene.carrying and destination and not scene.raw and not scene.done_before():
        return "D", f"opens {place}, where {scene.held} is to go"
    if scene.done_before():
        return "R", f"opens {place} again; its contents were shown before"
    if scene.shows() and not scene.carrying and (scene.goal.treatment or not destination):
        return "D", f"opening {place} shows {scene.shows()}, which the task asks for"
    return "E", f"first look into {place}"


def _close(scene: Scene) -> tuple[str, str]:
    if scene.done_before():
        return "R", f"closes {scene.now.place} again"
    return "N", f"closing {scene.now.place} is nothing the task needs"


def _take(scene: Scene) -> tuple[str, str]:
    goal, thing, place = scene.goal, scene.now.thing, scene.now.place
    if goal.kind == "unknown":
        return "E", f"takes {thing}; the task sentence is not understood"
    if _kind(thing) != goal.thing:
        return "R", f"takes {thing}, but the task asks for a {goal.thing}"
    if thing in scene.placed or (goal.kind in ("one", "several") and _kind(place) == goal.place):
        return "R", f"takes {thing} out of {place}, where it belongs"
    if thing in scene.taken:
        return "R", f"takes {thing} again after putting it down"
    return "D", f"takes {thing}, which the task asks for"


def _put(scene: Scene) -> tuple[str, str]:
    goal, thing, place = scene.goal, scene.now.thing, scene.now.place
    if goal.kind == "unknown":
        return "E", f"puts {thing} down; the task sentence is not understood"
    if _kind(thing) != goal.thing:
        return "N", f"puts {thing} down, which the task does not ask for"
    if goal.kind == "light" or _kind(place) != goal.place:
        return "R", f"puts {thing} in {place}, where the task does not want it"
    if goal.treatment and thing in scene.taken and thing not in scene.treated:
        return "R", f"puts {thing} in {place} before it is {_TREATED[goal.treatment]}"
    return "D", f"puts {thing} in {place}, as the task asks"


def _treat(scene: Scene) -> tuple[str, str]:
    thing, how = scene.now.thing, _TREATED[scene.now.verb]
    wanted = _kind(thing) == scene.goal.thing and scene.now.verb == scene.goal.treatment
    if scene.done_before() and not (wanted and thing not in scene.treated):
        return "R", f"{thing} was {how} before"
    if wanted:
        return "D", f"{thing} is {how}, as the task asks"
    return "R", f"{thing} is {how}, which the task does not ask for"


def _use(scene: Scene) -> tuple[str, str]:
    thing = scene.now.thing
    if scene.done_before():
        return "R", f"uses {thing} again"
    if scene.goal.kind == "light" and _kind(thing) == scene.goal.place:
        return "D", f"turns on {thing}, which the task needs"
    return "N", f"{thing} is nothing the task needs"


def _examine(scene: Scene) -> tuple[str, str]:
    now = scene.now
    for act in scene.before:
        examined = act.verb == "examine" and act.thing == now.thing and act.reply == now.reply
        opened = act.verb == "open" and act.place == now.thing and now.reply in act.reply
        if examined or opened:
            return "R", f"{now.thing} was looked at before, and nothing about it has changed"
    if now.reply.endswith("is closed."):
        return "N", f"{now.thing} is closed; nothing is shown"
    return "E", f"first examination of {now.thing}"


def _look(scene: Scene) -> tuple[str, str]:
    now = scene.now
    if any(act.verb == now.verb and act.reply == now.reply for act in scene.before):
        return "R", f"'{now.verb}' again with the same result"
    if now.reply.endswith("you see nothing."):
        return "N", "looking around shows nothing"
    return "E", f"first '{now.verb}'"


_RULES: dict[str, Callable[[Scene], tuple[str, str]]] = {
    "go": _go,
    "open": _open,
    "close": _close,
    "take": _take,
    "put": _put,
    "clean": _treat,
    "heat": _treat,
    "cool": _treat,
    "use": _use,
    "examine": _examine,
    "look": _look,
    "inventory": _look,
}


def _scene(goal: Goal, before: Sequence[Act], now: Act, after: Sequence[Act]) -> Scene:
    held = _held_at_start((*before, now, *after))
    treated: set[str] = set()
    undone: set[str] = set()
    taken: set[str] = set()
    placed: set[str] = set()
    for act in before:
        if act.failed:
            continue
        if act.verb == "take":
            held = act.thing
            taken.add(act.thing)
            placed.discard(act.thing)
        elif act.verb == "put":
            held = None
            ready = not goal.treatment or act.thing in treated
            if _kind(act.thing) == goal.thing and _kind(act.place) == goal.place and goal.kind != "light" and ready:
                placed.add(act.thing)
        elif act.verb == goal.treatment:
            treated.add(act.thing)
            undone.discard(act.thing)
        elif act.verb == _UNDOES.get(goal.treatment):
            treated.discard(act.thing)
            undone.add(act.thing)
    if held is not None and held not in taken:
        # It was taken before the window began; unless the window shows its treatment, that may have come before too.
        later = any(act.verb == goal.treatment and act.thing == held and not act.failed for act in (now, *after))
        if not later and held not in undone:
            treated.add(held)
    return Scene(goal, before, now, after, held, frozenset(treated), frozenset(taken), frozenset(placed))


def _held_at_start(turns: Sequence[Act]) -> str | None:
    """What was in hand before the first of `turns`, as far as they show it."""
    for act in turns:
        if act.failed:
            continue
        if act.verb == "take" or act.reply == "You are not carrying anything.":
            return None
        if act.verb in ("put", *_APPLIANCE):
            return act.thing
        if match := _CARRIED.search(act.reply):
            return match.group(1)
    return None


def _kind(name: str) -> str:
    """`mug` of `mug 2`."""
    return name.rsplit(" ", 1)[0]
