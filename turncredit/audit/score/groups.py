"""Groups of rollouts of a process: every possible group with its probability where they are few, else drawn ones.

They become an ordinary table of turns, with each column that a closed-form method may read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations_with_replacement
from math import comb, factorial

import numpy as np
import pyarrow as pa

from turncredit.audit.score.process import Process
from turncredit.data.seeding import generator
from turncredit.data.tables import MEASURES

#: All groups are enumerated where they have no more rollouts than this, counted over all groups.
MOST_ENUMERATED = 32_000
#: What the environment answers to a refused action, and at the end.
REFUSED, OVER = "Nothing happens.", "The task is over."
GOAL = "put the vase on the table in the hall"


@dataclass(frozen=True)
class Groups:
    """G groups of K rollouts, R in all with N turns, sorted by group, rollout and turn.

    size           K
    path_GK        which possible rollout of the process each one is
    weight_G       the groups' probabilities; equal where they were drawn. They add up to 1
    enumerated     whether these are all groups there are, so that means over them are exact
    """

    process: Process
    path_GK: np.ndarray
    weight_G: np.ndarray
    enumerated: bool

    @property
    def size(self) -> int:
        """Rollouts of a group."""
        return self.path_GK.shape[1]

    @property
    def count(self) -> int:
        """Number of groups."""
        return len(self.path_GK)

    @cached_property
    def length_R(self) -> np.ndarray:
        """Turns of each rollout."""
        return self.process.length_M[self.path_GK.ravel()]

    @cached_property
    def first_R(self) -> np.ndarray:
        """The row of each rollout's first turn."""
        return np.concatenate([[0], np.cumsum(self.length_R)[:-1]])

    @cached_property
    def rollout_N(self) -> np.ndarray:
        """The number of each turn's rollout."""
        return np.repeat(np.arange(len(self.length_R)), self.length_R)

    @cached_property
    def group_N(self) -> np.ndarray:
        """The number of each turn's group."""
        return self.rollout_N // self.size

    @cached_property
    def turn_N(self) -> np.ndarray:
        """The number of each turn in its rollout."""
        return np.arange(len(self.rollout_N)) - self.first_R[self.rollout_N]

    @cached_property
    def transition_N(self) -> np.ndarray:
        """The transition of each turn."""
        path_N = self.path_GK.ravel()[self.rollout_N]
        return self.process.transition_L[self.process.first_M[path_N] + self.turn_N]

    @property
    def decision_N(self) -> np.ndarray:
        """The decision of each turn."""
        return self.process.decision_X[self.transition_N]

    @property
    def truth_N(self) -> np.ndarray:
        """The true advantage of each turn."""
        return self.process.truth_D[self.decision_N]

    @cached_property
    def return_R(self) -> np.ndarray:
        """The return of each rollout."""
        return np.add.reduceat(self.process.reward_X[self.transition_N], self.first_R)

    @cached_property
    def rloo_N(self) -> np.ndarray:
        """RLOO's advantage of each turn: its expected gradient is the policy gradient, for groups of more than one."""
        return_GK = self.return_R.reshape(self.count, self.size)
        others_GK = (return_GK.sum(1, keepdims=True) - return_GK) / (self.size - 1)
        return (return_GK - others_GK).ravel()[self.rollout_N]

    def table(self) -> pa.Table:
        """The turns as a method is given them: no column tells the true advantage."""
        rows = pa.array(self.transition_N)
        success_R = np.logical_or.reduceat(self.process.success_X[self.transition_N], self.first_R)
        columns = {name: column.take(rows) for name, column in _columns(self.process).items()}
        return pa.table({**self._keys(), **columns, "success": success_R[self.rollout_N]})

    def _keys(self) -> dict[str, pa.Array]:
        groups = pa.array([f"g{group}" for group in range(self.count)])
        rollouts = pa.array([f"g{number // self.size}r{number % self.size}" for number in range(len(self.length_R))])
        return {
            "group_id": groups.take(pa.array(self.group_N)),
            "rollout_id": rollouts.take(pa.array(self.rollout_N)),
            "turn": pa.array(self.turn_N, pa.int32()),
        }

    def continuations(self, count: int, seed: int) -> pa.Table:
        """The side table `continuations`: sums over `count` returns drawn from each turn's state on."""
        rng = generator("score continuations", self.process.world.name, seed)
        state_N = self.process.state_D[self.decision_N]
        sum_N, square_N = np.zeros(len(state_N)), np.zeros(len(state_N))
        for state in np.unique(state_N).tolist():
            rows = np.flatnonzero(state_N == state)
            values, chances = self.process.returns(state)
            drawn = rng.multinomial(count, chances / chances.sum(), size=len(rows))
            sum_N[rows], square_N[rows] = drawn @ values, drawn @ values**2
        number = pa.repeat(pa.scalar(count, pa.int32()), len(state_N))
        return pa.table({**self._keys(), "continuations": number, "return_sum": sum_N, "return_square_sum": square_N})


def _columns(process: Process) -> Mapping[str, pa.Array]:
    """The columns of a turn that follow from its transition (X each)."""
    world = process.world
    before = [process.states[process.state_D[decision]] for decision in process.decision_X]
    after = [process.states[number] if number >= 0 else None for number in process.next_X]
    action = [process.actions[decision] for decision in process.decision_X]
    refuses = world.refuses or (lambda state, action: False)  # noqa: ARG005
    refused = [refuses(state, name) for state, name in zip(before, action, strict=True)]
    shown = [OVER if state is None else world.observe(state) for state in after]
    columns = {
        "reward": process.reward_X,
        "goal": [GOAL] * len(before),
        "observation": [world.observe(state) for state in before],
        "action": action,
        "next_observation": [REFUSED if no else text for no, text in zip(refused, shown, strict=True)],
        "response_logprobs": [[float(np.log(share))] for share in process.policy_D[process.decision_X]],
        "valid": [not no for no in refused],
        "well_formed": [True] * len(before),
        "failed": refused,
        "error_reply": refused,
        "done": process.next_X < 0,
        "subgoal": ["find the vase"] * len(before),
        "subgoal_index": [0] * len(before),
    }
    for name, measure, end in (("progress", world.progress, 1.0), ("distance", world.distance, 0)):
        if measure is not None:
            reached = [
                end if success else measure(state if following is None else following)
                for state, following, success in zip(before, after, process.success_X, strict=True)
            ]
            columns |= dict(zip(MEASURES[name], ([measure(state) for state in before], reached), strict=True))
    return {name: pa.array(values) for name, values in columns.items()}


def draw(process: Process, size: int, rollouts: int, seed: int) -> Groups:
    """About `rollouts` rollouts in groups of `size`, drawn; each group has one start."""
    rng = generator("score rollouts", process.world.name, size, seed)
    count = max(rollouts // size, 1)
    start_G = rng.choice(len(process.start_probability), size=count, p=process.start_probability)
    path_GK = np.zeros((count, size), dtype=np.int64)
    for start in range(len(process.start_probability)):
        paths, rows = np.flatnonzero(process.start_M == start), np.flatnonzero(start_G == start)
        chances = process.probability_M[paths]
        path_GK[rows] = rng.choice(paths, size=(len(rows), size), p=chances / chances.sum())
    return Groups(process, path_GK, np.full(count, 1 / count), enumerated=False)


def enumerate_groups(process: Process, size: int) -> Groups | None:
    """Every possible group of `size` rollouts with its probability; None where there are too many."""
    paths_of = [np.flatnonzero(process.start_M == start) for start in range(len(process.start_probability))]
    if size * sum(comb(len(paths) + size - 1, size) for paths in paths_of) > MOST_ENUMERATED:
        return None
    groups, weights = [], []
    for paths, chance in zip(paths_of, process.start_probability, strict=True):
        for group, weight in _multisets(paths, process.probability_M, size):
            groups.append(group)
            weights.append(chance * weight)
    return Groups(process, np.array(groups), np.array(weights), enumerated=True)


def _multisets(paths: np.ndarray, probability_M: np.ndarray, size: int) -> Iterator[tuple[tuple[int, ...], float]]:
    """The groups of `size` of these rollouts in any order, and how likely each is."""
    for group in combinations_with_replacement(paths.tolist(), size):
        orders = factorial(size)
        for count in np.unique(group, return_counts=True)[1]:
            orders //= factorial(int(count))
        yield group, float(orders * np.prod(probability_M[list(group)]))
