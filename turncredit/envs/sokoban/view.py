"""What an observation shows of a position: the grid, and relations as the player sees them.

The symbols are those of RAGEN and verl-agent (`grid_lookup` in RAGEN's ragen/env/sokoban/config.py). Relations name the
sides where something is in the way and say where targets are; they say nothing of how to get there.
"""

from __future__ import annotations

from turncredit.envs.sokoban.level import Position, Room

#: symbols of the text format, and those that are shown
SHOWN = {"#": "#", " ": "_", ".": "O", "*": "√", "$": "X", "@": "P", "+": "S"}
ON_TARGET = "on a target"


def grid(room: Room, position: Position) -> str:
    """The rows of the level, symbols apart."""
    return "\n".join(" ".join(SHOWN[symbol] for symbol in row) for row in room.draw(position))


def relations(room: Room, position: Position) -> str:
    """What is beside the player; then each box: where it is from the player, what is beside it, where targets are.

    You: wall free free box. Box 0 up 1 right: free free free wall; target 2 down 1 left.

    Sides are listed in the order up, down, left, right; they are a wall, a box or free. Of a box on a target no targets
    are listed, and no targets that have a box. Equal parts have equal lengths, which a small policy learns sooner.
    """
    player, boxes = position
    targets = [target for target in room.targets if target not in boxes]
    parts = [f"You: {_sides(room, player, boxes)}."]
    for box in boxes:
        open_targets = ", ".join(f"target {_from(room, box, target)}" for target in targets)
        rest = ON_TARGET if box in room.targets else open_targets
        parts.append(f"Box {_from(room, player, box)}: {_sides(room, box, boxes)}; {rest}.")
    return " ".join(parts)


def _sides(room: Room, square: int, boxes: tuple[int, ...]) -> str:
    around = (beside[square] for beside in room.beside)
    return " ".join("wall" if side < 0 else "box" if side in boxes else "free" for side in around)


def _from(room: Room, one: int, other: int) -> str:
    """Where another square is: `1 up 2 left`."""
    down, right = (b - a for a, b in zip(room.squares[one], room.squares[other], strict=True))
    return f"{abs(down)} {'down' if down > 0 else 'up'} {abs(right)} {'right' if right > 0 else 'left'}"
