"""What an observation shows of a position: the grid, and relations as the player sees them.

The symbols are those of RAGEN and verl-agent (`grid_lookup` in RAGEN's ragen/env/sokoban/config.py). Relations name the
sides where something is in the way and say where targets are; they say nothing of how to get there.
"""

from __future__ import annotations

from turncredit.envs.sokoban.level import DIRECTIONS, Position, Room

#: symbols of the text format, and those that are shown
SHOWN = {"#": "#", " ": "_", ".": "O", "*": "√", "$": "X", "@": "P", "+": "S"}
_FREE = "free"


def grid(room: Room, position: Position) -> str:
    """The rows of the level, symbols apart."""
    return "\n".join(" ".join(SHOWN[symbol] for symbol in row) for row in room.draw(position))


def relations(room: Room, position: Position) -> str:
    """The player's surroundings; then each box, seen from the player, with its own; then targets, seen from it.

    You: up wall, left box. Box 2 left: down wall; target 1 right 2 up. Box on target 1 up: free.

    Targets that have a box are left out.
    """
    player, boxes = position
    targets = [target for target in room.targets if target not in boxes]
    parts = [f"You: {_sides(room, player, boxes)}."]
    for box in boxes:
        where, sides = _from(room, player, box), _sides(room, box, boxes)
        if box in room.targets:
            parts.append(f"Box on target {where}: {sides}.")
        else:
            parts.append(
                f"Box {where}: {sides}; {', '.join(f'target {_from(room, box, target)}' for target in targets)}."
            )
    return " ".join(parts)


def _sides(room: Room, square: int, boxes: tuple[int, ...]) -> str:
    found = []
    for direction, beside in zip(DIRECTIONS, room.beside, strict=True):
        if beside[square] < 0:
            found.append(f"{direction} wall")
        elif beside[square] in boxes:
            found.append(f"{direction} box")
    return ", ".join(found) or _FREE


def _from(room: Room, one: int, other: int) -> str:
    """Where another square is: `2 left 1 up`."""
    down, right = (b - a for a, b in zip(room.squares[one], room.squares[other], strict=True))
    ways = ((right, "right"), (-right, "left"), (down, "down"), (-down, "up"))
    return " ".join(f"{count} {way}" for count, way in ways if count > 0)
