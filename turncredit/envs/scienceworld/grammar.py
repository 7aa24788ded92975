"""The rule judge's grammar of ScienceWorld. TRIAGE has none for it; the roles follow TRIAGE's definitions.

What a task is about follows from its words: an action is decisive where it changes something that the task names, or
focuses on something for the first time. Many tasks name only a kind of thing ("an animal"), so a first focus counts as
decisive whatever it is on.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.bag_of_words import words
from turncredit.envs.judging import Turn
from turncredit.envs.scienceworld.replies import refused, room

_LOOKS = frozenset(
    (
        *("look around", "look at", "look in", "look on", "look", "examine", "describe"),
        *("inventory", "read", "objects", "help", "task"),
    )
)
_GOES = frozenset(("go to", "go through", "teleport to"))
_HANDLES = frozenset(
    ("pick up", "take", "move", "pour", "dunk", "mix", "connect", "use", "activate", "turn on", "eat", "flush")
)
_UNDOES = {
    "put down": "pick up",
    "drop": "take",
    "deactivate": "activate",
    "turn off": "turn on",
    "disconnect": "connect",
    "close": "open",
}
_OTHERS = frozenset(["open", "focus on", "focus", "wait", "wait1", "reset task"])
_VERBS = sorted({*_LOOKS, *_GOES, *_HANDLES, *_UNDOES, *_OTHERS}, key=lambda verb: (-len(verb), verb))
_VERB = re.compile(rf"({'|'.join(_VERBS)})\b\s*")
_TOO_COMMON = frozenset(("task", "first", "next", "then", "focus", "thing", "room", "located", "box", "move", "place"))


class Act(NamedTuple):
    """A command: its verb and what it is about, the reply, whether it was refused, the room that the reply names."""

    verb: str
    text: str
    reply: str
    refused: bool
    room: str | None


@lru_cache(maxsize=4096)
def read_goal(text: str) -> frozenset[str]:
    """The words of the task that can name things."""
    return words(text) - _TOO_COMMON


@lru_cache(maxsize=1 << 14)
def read_turn(turn: Turn) -> Act:
    """The action's verb and the rest of its text, and what the reply says."""
    action = " ".join(turn.action.lower().split())
    match = _VERB.match(action)
    verb, text = (match[1], action[match.end() :]) if match else ("", action)
    return Act(verb, text, turn.observation.strip(), refused(turn.observation), room(turn.observation))


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).verb)


def judge(goal: frozenset[str], before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what an action was
    same = [act for act in before if (act.verb, act.text) == (now.verb, now.text)]
    if now.refused:
        return ("R", "repeats an action that was refused") if same else ("N", "the action was refused")
    if now.verb in _LOOKS:
        if any(act.reply == now.reply for act in same):
            return "R", "looks again at what has not changed"
        return "E", f"first look: {now.verb} {now.text}".rstrip()
    if now.verb in _GOES:
        return _goes(before, now)
    if now.verb in ("focus on", "focus"):
        if same:
            return "R", f"focuses on '{now.text}' again"
        return "D", f"focuses on '{now.text}'"
    if now.verb in ("wait", "wait1"):
        return "N", "lets time pass"
    if now.verb == "reset task":
        return "R", "gives up what has been reached"
    if now.verb in _UNDOES:
        return _undoes(before, now)
    if now.verb == "open":
        return "E", f"opens '{now.text}'"
    if now.verb in _HANDLES:
        return _handles(goal, same, now)
    return "N", "answers which thing is meant" if now.text.isdigit() else "an action of no known kind"


def _goes(before: Sequence[Act], now: Act) -> tuple[str, str]:
    named = [act.room for act in before if act.room]
    been = [name for name, earlier in zip(named, [None, *named], strict=False) if name != earlier]
    useful = bool(before) and not before[-1].refused and before[-1].verb not in (*_GOES, *_LOOKS)
    if now.room is None or now.room not in been:
        return "E", f"goes to the {now.room or now.text}"
    if len(been) > 1 and been[-2] == now.room and not useful:
        return "R", f"goes back to the {now.room} with nothing done"
    return "N", f"goes to the {now.room} again"


def _undoes(before: Sequence[Act], now: Act) -> tuple[str, str]:
    opposite = _UNDOES[now.verb]
    last = before[-1] if before else None
    if last is not None and (last.verb, last.text) == (opposite, now.text) and opposite != "activate":
        return "R", f"undoes '{opposite} {now.text}' at once"
    return "N", f"{now.verb} '{now.text}'"


def _handles(goal: frozenset[str], same: Sequence[Act], now: Act) -> tuple[str, str]:
    if any(act.reply == now.reply and not act.refused for act in same):
        return "R", f"'{now.verb} {now.text}' again, with the same result"
    if now.verb == "use" and "thermometer" in now.text:
        return "E", f"measures: {now.text}"
    named = words(now.text) & goal
    if named:
        return "D", f"{now.verb} '{now.text}', of which the task names {', '.join(sorted(named))}"
    if now.verb in ("connect", "mix", "activate", "turn on"):
        return "D", f"{now.verb} '{now.text}' changes something"
    return "N", f"the task does not name '{now.text}'"
