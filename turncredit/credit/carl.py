"""CARL: a tree of each task, values as plain means over children, credit only where a state has several."""

from __future__ import annotations

from collections import defaultdict

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.forks import parents
from turncredit.data.tables import TRAINED
from turncredit.data.turns import PARENT, Turns


def carl(turns: Turns) -> dict[str, np.ndarray]:
    """A(edge) = r + V(child) - V(parent), V(node) the plain mean of r + V(child) over its edges, V = 0 at the end.

    The turns are those of a tree for each group: rollouts from the task's start, which share their first state, and
    forks, whose first turn leaves a state of another rollout (`turncredit.data.turns.with_forks`). A node is a state,
    an edge a turn. Turns of states with a single edge are not `trained`: they are left out of the loss, and their
    advantage is 0. Nothing is standardised.

    Source: CARL (arXiv 2512.04949, version 3), in the form of a secondary transcription: the reward there is the
    outcome at the leaves, where this is V(child) - V(parent) with V(leaf) the outcome. Decided here: intermediate
    rewards belong to their edge; states that are equal by chance stay separate nodes, as do two edges with one action.

    Reads `parent_rollout_id` and `parent_turn`, "" and -1 in rollouts from the start. Raises UserError for a fork whose
    parent is not in its group, or that is its own ancestor.
    Returns `value` (V of the state before the turn), `edges` (of that state), `trained` (0 or 1), `advantage` (each N).
    """
    parent_R, at_R, depth_R = parents(turns, "carl")
    node_N = _nodes(turns, parent_R, at_R, depth_R)
    edges: dict[int, list[int]] = defaultdict(list)
    for row, node in enumerate(node_N.tolist()):
        edges[node].append(row)
    gain_N, value_N = np.zeros(turns.n), np.zeros(turns.n)  # of the edge; of the node that is named after a row
    first_of_groups = []
    for rollout in np.argsort(-depth_R, kind="stable").tolist():  # a fork before the states that it left
        first, last = int(turns.first_R[rollout]), int(turns.last_R[rollout])
        for row in range(last, first - 1, -1):
            gain_N[row] = turns.reward_N[row] + (value_N[row + 1] if row < last else 0.0)
            if row > first:
                value_N[row] = gain_N[edges[row]].mean()
        if node_N[first] == first:
            first_of_groups.append(first)
    for first in first_of_groups:
        value_N[first] = gain_N[edges[first]].mean()
    count_N = np.array([len(edges[node]) for node in node_N.tolist()])
    state_N = value_N[node_N]
    return {
        "value": state_N,
        "edges": count_N.astype(np.float64),
        TRAINED: (count_N > 1).astype(np.float64),
        "advantage": gain_N - state_N,
    }


def _nodes(turns: Turns, parent_R: np.ndarray, at_R: np.ndarray, depth_R: np.ndarray) -> np.ndarray:
    """The state before each turn (N), named after a row: equal for turns that leave the same state."""
    node_N = np.arange(turns.n)
    first_G: dict[int, int] = {}
    for rollout in np.argsort(depth_R, kind="stable").tolist():  # a parent before its forks
        first, parent = int(turns.first_R[rollout]), int(parent_R[rollout])
        if parent < 0:
            node_N[first] = first_G.setdefault(int(turns.group_R[rollout]), first)
        else:
            node_N[first] = node_N[turns.first_R[parent] + at_R[rollout]]
    return node_N


CARL = Part("carl", carl, "estimator", reads=tuple(PARENT), requires=("snapshot", "replay"), forks=16)

PARTS = (CARL,)
METHODS = (Method("carl", "in a tree of each task, a turn's gain over its siblings; other turns do not train", CARL),)
