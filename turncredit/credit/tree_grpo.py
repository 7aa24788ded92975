"""Tree-GRPO: each leaf's outcome against its task's and its tree's, on every turn of its path."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from turncredit.credit.parts.compose import Method, Part
from turncredit.credit.parts.conventions import Ddof, NonNegative, Norm, Singleton, standardise
from turncredit.credit.parts.forks import parents
from turncredit.data.turns import PARENT, Turns


def tree_grpo(
    turns: Turns,
    *,
    norm: Norm = "mean_std",
    ddof: Ddof = 1,
    eps: NonNegative = 1e-6,
    singleton: Singleton = "zero",
) -> dict[str, np.ndarray]:
    """A turn's advantage is the sum, over the leaves whose paths it is on, of the leaf's.

    leaf's = outcome relative to the task's leaves + outcome relative to the leaves of its tree

    A tree is a rollout from the task's start with all that forked from it; every rollout ends in a leaf. A leaf's path
    goes from the start to its end, and its outcome is the sum of the rewards on it.

    Source: Tree-GRPO (arXiv 2509.21240) and its code at 90b1709 (adv_estimator `tree`), where each leaf with its whole
    path is a sample, so that a turn which leaves share is in the samples of each. A leaf alone in its tree has its raw
    outcome there (`singleton="raw"`); here it has 0. Departure: nodes are expanded at random there; the forks here
    leave the states that CARL's forks leave.

    Reads `parent_rollout_id` and `parent_turn`, "" and -1 in rollouts from the start. Raises UserError as `carl`.
    Returns `outcome` (of the leaf that the turn's rollout ends in), `leaves` (whose paths the turn is on), `advantage`
    (each N).
    """
    parent_R, at_R, depth_R = parents(turns, "tree_grpo")
    outcome_R, tree_R = turns.return_R.copy(), np.arange(turns.rollouts)
    shared = {rollout: list(_shared(turns, parent_R, at_R, rollout)) for rollout in np.flatnonzero(depth_R).tolist()}
    for rollout, paths in shared.items():
        outcome_R[rollout] += sum(turns.reward_N[rows].sum() for _, rows in paths)
        tree_R[rollout] = paths[-1][0]
    leaf_R = np.zeros(turns.rollouts)
    for cell_R, cells in ((turns.group_R, turns.groups), (tree_R, turns.rollouts)):
        leaf_R += standardise(outcome_R, cell_R, cells, norm=norm, ddof=ddof, eps=eps, singleton=singleton)
    sum_N, leaves_N = leaf_R[turns.rollout_N], np.ones(turns.n)
    for rollout, paths in shared.items():
        for _, rows in paths:
            sum_N[rows] += leaf_R[rollout]
            leaves_N[rows] += 1
    return {"outcome": outcome_R[turns.rollout_N], "leaves": leaves_N, "advantage": sum_N}


def _shared(turns: Turns, parent_R: np.ndarray, at_R: np.ndarray, rollout: int) -> Iterator[tuple[int, slice]]:
    """The rollouts that a fork's path comes from, nearest first, each with its turns (rows) on that path."""
    while parent_R[rollout] >= 0:
        parent = int(parent_R[rollout])
        first = int(turns.first_R[parent])
        yield parent, slice(first, first + int(at_R[rollout]))
        rollout = parent


TREE_GRPO = Part("tree_grpo", tree_grpo, "estimator", reads=tuple(PARENT), requires=("snapshot", "replay"), forks=16)

PARTS = (TREE_GRPO,)
METHODS = (
    Method(
        "tree_grpo", "in a tree of each task, each leaf's outcome against its task's and its tree's leaves", TREE_GRPO
    ),
)
