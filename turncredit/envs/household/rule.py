"""The obvious rule: carry the first object that the sentence names to the first place that it names, and no more."""

from __future__ import annotations

import re

from turncredit.envs.household.expert import kind_of, read_goal
from turncredit.envs.obvious_rule import Rule, Script

_PLACE = re.compile(r"(?:a|an|and a|and an) ([a-z]+ \d+)")
_SEEN = re.compile(r"[a-z]+ \d+")


def rule(goal: str) -> Rule:
    """Goes to the places in their order, opens what is closed, takes the object, and puts it where it is to go."""
    return Rule(_script(goal))


def _script(goal: str) -> Script:
    _, thing, target = read_goal(goal)
    observation = yield ""
    places = _PLACE.findall(observation)
    for place in places:
        observation = yield f"go to {place}"
        if f"{place} is closed" in observation:
            observation = yield f"open {place}"
        found = next((name for name in _SEEN.findall(observation) if kind_of(name) == thing), None)
        if found is not None and kind_of(place) != target:
            break
    else:
        return
    yield f"take {found} from {place}"
    goals = [place for place in places if kind_of(place) == target]
    for place in goals[:1]:
        observation = yield f"go to {place}"
        if f"{place} is closed" in observation:
            yield f"open {place}"
        yield f"move {found} to {place}"  # the editions word it in one of these two ways
        yield f"put {found} in/on {place}"
