"""The changing part of a game: one immutable tuple, so that a snapshot costs nothing."""

from __future__ import annotations

from typing import NamedTuple


class World(NamedTuple):
    """Objects, receptacles and locations are numbered by sorted id; sets of them are integer bit masks.

    The order of bits is therefore the order in which the game prints things.
    """

    location: int
    held: int
    """The object in hand, -1 for none."""
    opened: int
    """Receptacles."""
    contents: tuple[int, ...]
    """Objects in each receptacle."""
    beside: tuple[int, ...]
    """Objects at each location (the domain's `objectAtLocation`)."""
    taken: tuple[int, ...]
    """Objects that were taken out of each receptacle and not put back into it."""
    clean: int
    hot: int
    cool: int
    toggled: int
    sliced: int
