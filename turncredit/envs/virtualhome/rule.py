"""The obvious rule: walk through all rooms, then do what the sentence says, in its order, without searching."""

from __future__ import annotations

import re

from turncredit.envs.obvious_rule import Rule, Script
from turncredit.envs.virtualhome.actions import write
from turncredit.envs.virtualhome.expert import read_wish
from turncredit.envs.virtualhome.things import opens

_ROOMS = re.compile(r"Rooms: ([^.]*)\.")


def rule(goal: str) -> Rule:
    """Opens only what it puts something into, and plugs nothing in. It does not read recorded programs' sentences."""
    return Rule(_script(goal))


def _script(goal: str) -> Script:
    observation, wish = (yield ""), read_wish(goal)
    rooms = _ROOMS.search(observation)
    if wish is None or rooms is None:
        return
    for room in rooms[1].split(", "):
        yield write("WALK", room)
    for thing in wish.things:
        yield write("WALK", thing)
        yield write("GRAB", thing)
        if wish.washed:
            yield write("WASH", thing)
        yield write("WALK", wish.place)
        if opens(wish.place):
            yield write("OPEN", wish.place)
        yield write("PUTIN" if opens(wish.place) else "PUTBACK", thing, wish.place)
    for device in wish.devices:
        yield write("WALK", device)
        yield write("SWITCHON", device)
    if wish.seat:
        yield write("WALK", wish.seat)
        yield write("SIT", wish.seat)
