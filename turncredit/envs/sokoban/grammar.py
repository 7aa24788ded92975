"""The rule judge's grammar of Sokoban (directions, and the replies of `game` in any view).

A grid shows everything, so the table of distances tells whether a push has made the level unsolvable. Where replies
have relations only, a box that walls hold in a corner off the targets counts as that. Whether an action was the best is
never asked: a push is D where it brings a box onto a target, or fewer rows and columns away from one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.judging import Turn
from turncredit.envs.sokoban.actions import parse
from turncredit.envs.sokoban.game import NO_ACTION, REFUSED
from turncredit.envs.sokoban.level import DIRECTIONS, STEPS, BadLevel, Level, Square, read
from turncredit.envs.sokoban.planner import DEAD, MOST_POSITIONS, distances_of, positions
from turncredit.envs.sokoban.view import ON_TARGET, SHOWN, relations

_SYMBOL = {shown: symbol for symbol, shown in SHOWN.items()}
_ROW = re.compile(rf"[{''.join(map(re.escape, _SYMBOL))}]+")
_BOX = re.compile(r"Box ([\w ]+): (\w+ \w+ \w+ \w+); ([^.]*)\.")
_WAY = re.compile(r"(\d+) (up|down|left|right)")


class Box(NamedTuple):
    """A box: what is beside it (direction to wall, box or free), whether it is on a target, where others are."""

    beside: dict[str, str]
    on_target: bool
    targets: tuple[Square, ...]

    @property
    def cornered(self) -> bool:
        """Whether walls keep it where it is, off the targets."""
        walls = {direction for direction, what in self.beside.items() if what == "wall"}
        return not self.on_target and bool(walls & {"up", "down"}) and bool(walls & {"left", "right"})


class Act(NamedTuple):
    """An action and the position after it: boxes by where they are from the player."""

    text: str
    direction: str
    refused: bool
    shown: str
    boxes: dict[Square, Box]
    dead: bool
    """Whether the level is known to be unsolvable after it."""


@lru_cache(maxsize=4096)
def read_goal(text: str) -> str:
    """The task's sentence; it is the same for all levels."""
    return text


@lru_cache(maxsize=1 << 14)
def read_turn(turn: Turn) -> Act:
    """A turn, read; the direction is empty where the action has no known form."""
    reply = turn.observation.strip()
    refused = reply.startswith((REFUSED, NO_ACTION))
    shown = reply.partition("\n")[2] if refused else reply
    level = _level(shown)
    boxes = _boxes(relations(*level) if level else shown)
    parsed = parse(turn.action)
    direction = DIRECTIONS[parsed.direction] if parsed else ""
    text = " ".join(turn.action.lower().split())
    return Act(text, direction, refused or not direction, shown, boxes, _dead(level, boxes))


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return bool(read_turn(turn).direction)


def judge(goal: str, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del goal, after  # all levels have the same goal, and what comes later does not change what an action was
    if now.refused:
        if any(act.refused and (act.text, act.shown) == (now.text, now.shown) for act in before):
            return "R", f"repeats '{now.text}', which was not possible here"
        return "N", "the action was not possible; nothing changed"
    if before and before[-1].dead:
        return "N", "the level cannot be solved any more"
    if now.dead:
        return "R", f"after '{now.text}' the level cannot be solved any more"
    if any(act.shown == now.shown for act in before):
        return "R", "back in an earlier position"
    ahead = STEPS[now.direction]
    box = now.boxes.get(ahead)
    if box is not None and (not before or ahead in before[-1].boxes):
        return _push(box, ahead)
    ready = {direction for direction in DIRECTIONS if _leads_nearer(now, direction)}
    if ready and not (before and any(_leads_nearer(before[-1], direction) for direction in DIRECTIONS)):
        return "D", f"stands where a box can be pushed {' or '.join(sorted(ready))}, nearer to a target"
    return "N", "a walk that does not reach a box"


def _push(box: Box, step: Square) -> tuple[str, str]:
    """The role of a push by one step, which has not made the level unsolvable."""
    if box.on_target:
        return "D", "pushes a box onto a target"
    if _away(box.targets) < _away([(row + step[0], column + step[1]) for row, column in box.targets]):
        return "D", "pushes a box nearer to a target"
    return "N", "pushes a box, no nearer to a target"


def _away(squares: Sequence[Square]) -> int:
    """Rows and columns to the nearest of these."""
    return min((abs(row) + abs(column) for row, column in squares), default=0)


def _leads_nearer(act: Act, direction: str) -> bool:
    """Whether the player is beside a box that can be pushed this way, towards a target."""
    box = act.boxes.get(STEPS[direction])
    if box is None or box.on_target or box.beside[direction] != "free":
        return False
    down, right = STEPS[direction]
    return any(r * down + c * right > 0 for r, c in box.targets)


def _level(shown: str) -> Level | None:
    """The level of a grid; None where there is none."""
    lines = (line.replace(" ", "") for line in shown.splitlines())
    rows = ["".join(_SYMBOL[symbol] for symbol in line) for line in lines if _ROW.fullmatch(line)]
    try:
        return read(rows) if rows else None
    except BadLevel:
        return None


def _dead(level: Level | None, boxes: dict[Square, Box]) -> bool:
    if level is not None and positions(len(level.room.squares), len(level.start.boxes)) <= MOST_POSITIONS:
        return distances_of(level.room).distance(level.start) == DEAD
    return any(box.cornered for box in boxes.values())


def _boxes(text: str) -> dict[Square, Box]:
    """The boxes of a text of relations, by where they are from the player."""
    found = {}
    for where, beside, rest in _BOX.findall(text):
        sides = dict(zip(DIRECTIONS, beside.split(), strict=True))
        targets = () if rest == ON_TARGET else tuple(map(_square, rest.split(",")))
        found[_square(where)] = Box(sides, rest == ON_TARGET, targets)
    return found


def _square(text: str) -> Square:
    """Rows down and columns right, of `1 up 2 left`."""
    row = column = 0
    for count, way in _WAY.findall(text):
        down, right = STEPS[way]
        row, column = row + int(count) * down, column + int(count) * right
    return row, column
