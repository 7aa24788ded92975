"""TurnLOO: the rollout's return minus the mean of the other rollouts that reached the same turn."""

from __future__ import annotations

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Singleton
from turncredit.data.turns import Turns


def turn_loo(turns: Turns, *, singleton: Singleton = "raw") -> dict[str, np.ndarray]:
    """A(i, t) = R_i - mean of R_j over the group's other rollouts that have a turn t.

    RLOO with a baseline for each turn: rollouts that have ended no longer count. A rollout that is alone at a turn
    has nothing to be compared with and gets its return (`singleton="zero"`: 0).

    Source: agent-credit-bench's `turn_loo` at c440648, which gives a rollout alone at its turn the return itself.

    Returns `peers` (how many other rollouts have the turn) and `advantage` (each N).
    """
    return_N = turns.return_R[turns.rollout_N]
    width = int(turns.length_R.max())
    cell_N = turns.group_N * width + turns.turn_N
    peers_N = np.bincount(cell_N)[cell_N] - 1
    advantage_N = return_N - (np.bincount(cell_N, return_N)[cell_N] - return_N) / np.maximum(peers_N, 1)
    if singleton == "zero":
        advantage_N[peers_N == 0] = 0.0
    return {"peers": peers_N, "advantage": advantage_N}


TURN_LOO = Part("turn_loo", turn_loo, "estimator")

PARTS = (TURN_LOO,)
METHODS = (
    Method("turn_loo", "the return minus the mean of the siblings that reached the same turn", TURN_LOO, family="rloo"),
)
