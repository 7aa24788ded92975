"""The trees of a table: which rollout each fork left, and where."""

from __future__ import annotations

import numpy as np

from turncredit.data.turns import PARENT, Turns
from turncredit.errors import UserError


def parents(turns: Turns, method: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The rollout that each one forked from, -1 for none; the turn there; how many forks lie between it and the start.

    Each (R). A fork leaves the state before its parent's turn. Raises UserError for a parent that is not in the fork's
    group, for a turn that the parent does not have, and for a rollout that is its own ancestor; errors name `method`.
    """
    codes_N, names = turns.texts("parent_rollout_id", method)
    numbers = {name: number for number, (_, name) in enumerate(turns.ids_R())}
    groups = turns.group_R
    parent_R = np.full(turns.rollouts, -1)
    for rollout, code in enumerate(codes_N[turns.first_R].tolist()):
        name = names[code]
        if name == PARENT["parent_rollout_id"]:
            continue
        parent = numbers.get(name)
        if parent is None or groups[parent] != groups[rollout]:
            raise UserError(
                f"{turns.where}: {turns.rollout_name(rollout)} is a fork of '{name}', which its group does not have"
            )
        parent_R[rollout] = parent
    depth_R = np.where(parent_R < 0, 0, -1)
    for depth in range(1, turns.rollouts):
        below = (depth_R < 0) & (depth_R[parent_R] == depth - 1)
        if not below.any():
            break
        depth_R[below] = depth
    if (depth_R < 0).any():
        around = turns.rollout_name(int(np.flatnonzero(depth_R < 0)[0]))
        raise UserError(f"{turns.where}: {around} is a fork of itself, by way of other forks")
    at_R = turns.numbers("parent_turn", method)[turns.first_R].astype(np.int64)
    outside_R = (parent_R >= 0) & ((at_R < 0) | (at_R >= turns.length_R[parent_R]))
    if outside_R.any():
        rollout = int(np.flatnonzero(outside_R)[0])
        raise UserError(
            f"{turns.where}: {turns.rollout_name(rollout)} forks from turn {at_R[rollout]} of a rollout that has "
            f"{turns.length_R[parent_R[rollout]]}"
        )
    return parent_R, at_R, depth_R
