"""What the simulator's replies say: whether an action was refused, and where the agent is."""

from __future__ import annotations

import re

# The texts of the simulator (1.2.3) for actions that are not understood, not possible, or change nothing.
_REFUSED_AT_START = re.compile(
    r"No known action matches that input|I'm not sure|It'?s not clear|You can't|Something can't be|That can't be"
    r"|That is not flammable|That is already|That object (?:already appears|does not appear) "
    r"|That thing doesn't appear|Connections must specify|You must disconnect|The door doesn't appear"
    r"|Unknown action|<?ERROR"
)
_REFUSED = re.compile(
    r" is already (?:open|closed|activated|deactivated|connected|on fire)\b"
    r"| is not (?:something that can be activated|moveable|movable|openable|closeable|open|edible|a container"
    r"|flammable|currently passable)\b"
    r"| isn't open\b| appears broken, and can't| can't be poured out\b| is in is not movable"
    r"| is empty, so there's nothing to pour| does not contain any liquids| aren't able to move"
    r"| does not appear to produce anything new"
)
_LONGEST_REFUSAL = 200
_ROOM = re.compile(
    r"This (?:room|outside location) is called the ([a-z ]+)\.|^You (?:move|teleport) to the ([a-z ]+)\.$"
)

#: which rooms have a door in common; the building is the same in all tasks
NEIGHBOURS: dict[str, tuple[str, ...]] = {
    "hallway": ("art studio", "bedroom", "greenhouse", "kitchen", "living room", "workshop"),
    "kitchen": ("bathroom", "hallway", "outside"),
    "outside": ("foundry", "greenhouse", "kitchen"),
    "greenhouse": ("hallway", "outside"),
    "art studio": ("hallway",),
    "bedroom": ("hallway",),
    "living room": ("hallway",),
    "workshop": ("hallway",),
    "bathroom": ("kitchen",),
    "foundry": ("outside",),
}


def refused(reply: str) -> bool:
    """Whether the action was not understood, was not possible, or changed nothing, by the reply's words.

    The question which of several things is meant (`Ambiguous request`) is no refusal: a number answers it.
    """
    text = reply.strip()
    if not text or _REFUSED_AT_START.match(text):
        return True
    return "\n" not in text and len(text) <= _LONGEST_REFUSAL and bool(_REFUSED.search(text))


def room(reply: str) -> str | None:
    """The room in which the agent is after this reply; None where it does not say."""
    match = _ROOM.search(reply)
    name = (match[1] or match[2]) if match else ""
    return name if name in NEIGHBOURS else None
