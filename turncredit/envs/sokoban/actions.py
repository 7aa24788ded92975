"""The actions: `up`, `down`, `left`, `right`, as verl-agent and RAGEN have them, and gym-sokoban's longer names.

In gym-sokoban, of which both are wrappers, `push up` pushes the box that is there and walks where there is none, and
`move up` only walks. RAGEN's and verl-agent's `up` is `push up`.
"""

from __future__ import annotations

from typing import NamedTuple

from turncredit.envs.sokoban.level import DIRECTIONS


class Action(NamedTuple):
    """A direction's number; `pushes` is false where a box may not be moved."""

    direction: int
    pushes: bool


_KNOWN = {
    f"{prefix}{name}": Action(number, prefix != "move ")
    for number, name in enumerate(DIRECTIONS)
    for prefix in ("", "push ", "move ")
}


def parse(text: str) -> Action | None:
    """The action that a text names, whatever its case and spaces; None for anything else."""
    return _KNOWN.get(text) or _KNOWN.get(" ".join(text.lower().split()))
