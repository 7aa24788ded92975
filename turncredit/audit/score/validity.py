"""Is the expected gradient of a credit the policy gradient? Direction, size, noise, and where it goes wrong.

A group of K rollouts gives the gradient 1/K sum over rollouts and turns of A_t d log pi(a_t | s_t), with a logit for
each decision. Its expectation over groups is compared with the exact policy gradient. How a trainer averages over
tokens or clips is no part of this: it is the same for every method.

Where not all groups were enumerated, RLOO's gradient of the same groups, whose expectation is known to be the policy
gradient for K > 1, serves as a control variate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from turncredit.audit.score.blocks import Measured, measured
from turncredit.audit.score.groups import Groups

#: A gradient whose norm is smaller is zero: there is no direction to compare with.
ZERO = 1e-9
#: By how many times the noise of drawn groups a squared norm must exceed that noise. A zero gradient's does by chance
#: in at most two worlds of a thousand; where one does, the error of its cosine is about a third at most.
SHOWN = 9.0


class Decision(NamedTuple):
    """A decision that gets too much or too little: what is seen there, the action, and the error of its gradient at
    the best scale, as a share of the policy gradient's norm."""

    observation: str
    action: str
    error: float


@dataclass(frozen=True)
class Validity:
    """The expected gradient m of a credit against the policy gradient g, for groups of one size.

    cosine      of m and g
    scale       <m, g> / <g, g>: how many times as long a step it is
    bias        share of |m|^2 that is not in the direction of g (1 - cosine^2; 1 where the cosine is negative)
    rollouts    rollouts that a batch needs until the gradient's noise, all coordinates together, is as large as its
                part in the direction of g; infinite where that part is not positive
    paid, charged   the decisions whose gradient is furthest above and below g's
    enumerated  whether all groups were enumerated, so that the numbers are exact
    """

    cosine: Measured
    scale: Measured
    bias: Measured
    rollouts: float
    paid: Decision | None
    charged: Decision | None
    enumerated: bool


def gradients(groups: Groups, advantage_N: np.ndarray) -> np.ndarray:
    """Each group's gradient with respect to the logits of the decisions (G, D)."""
    process = groups.process
    decisions, states = len(process.state_D), len(process.v_S)
    decision_N = groups.decision_N
    by_decision = np.bincount(groups.group_N * decisions + decision_N, advantage_N, groups.count * decisions)
    state_N = process.state_D[decision_N]
    by_state = np.bincount(groups.group_N * states + state_N, advantage_N, groups.count * states)
    shared = by_state.reshape(groups.count, states)[:, process.state_D] * process.policy_D
    return (by_decision.reshape(groups.count, decisions) - shared) / groups.size


def validity(groups: Groups, advantage_N: np.ndarray) -> Validity:
    """The validity of a credit (N) for these groups. All NaN where the policy gradient is zero."""
    exact_D, g_GD = groups.process.gradient_D, gradients(groups, advantage_N)
    noise = float(groups.weight_G @ (g_GD**2).sum(1) - ((groups.weight_G @ g_GD) ** 2).sum())
    steady_GD = g_GD if groups.enumerated else _steadied(groups, g_GD)
    mean_D = groups.weight_G @ steady_GD
    if np.linalg.norm(exact_D) < ZERO:
        none = Measured(np.nan, np.nan)
        return Validity(none, none, none, np.nan, *_errors(groups, mean_D, np.nan), groups.enumerated)
    chance = 0.0 if groups.enumerated else float(steady_GD.var(0, ddof=1).sum()) / groups.count
    along = Along(exact_D, chance)
    cosine, scale, bias = (measured(groups, steady_GD, of) for of in (along.cosine, along.scale, along.bias))
    size = scale.value * float(np.linalg.norm(exact_D))
    rollouts = groups.size * noise / size**2 if size > ZERO else np.inf
    return Validity(cosine, scale, bias, rollouts, *_errors(groups, mean_D, scale.value), groups.enumerated)


@dataclass(frozen=True)
class Along:
    """Functions of an expected gradient m (D): its direction and size relative to `exact_D`.

    `chance` is what |m|^2 has by the noise of the groups that were drawn, and is taken off.
    """

    exact_D: np.ndarray
    chance: float

    def cosine(self, mean_D: np.ndarray) -> float:
        """The cosine; NaN where m is not distinguishable from zero."""
        energy = float(mean_D @ mean_D) - self.chance
        if energy <= max(ZERO**2, SHOWN * self.chance):
            return np.nan
        return float(np.clip(mean_D @ self.exact_D / np.sqrt(energy * (self.exact_D @ self.exact_D)), -1, 1))

    def scale(self, mean_D: np.ndarray) -> float:
        """<m, g> / <g, g>."""
        return float(mean_D @ self.exact_D / (self.exact_D @ self.exact_D))

    def bias(self, mean_D: np.ndarray) -> float:
        """The share of |m|^2 that is not along g."""
        cosine = self.cosine(mean_D)
        return 1.0 if cosine < 0 else 1 - cosine**2


def _steadied(groups: Groups, g_GD: np.ndarray) -> np.ndarray:
    """The groups' gradients less b times the error of RLOO's, b chosen so that least variance is left."""
    rloo_GD = gradients(groups, groups.rloo_N)
    off_GD, spread_GD = g_GD - g_GD.mean(0), rloo_GD - rloo_GD.mean(0)
    energy = float((spread_GD**2).sum())
    slope = float((off_GD * spread_GD).sum()) / energy if energy > 0 else 0.0
    return g_GD - slope * (rloo_GD - groups.process.gradient_D)


def _errors(groups: Groups, mean_D: np.ndarray, scale: float) -> tuple[Decision | None, Decision | None]:
    """The decisions with the largest gradient above and below the exact one, at the best scale."""
    process = groups.process
    best = scale if scale > 0 else 0.0
    error_D = mean_D - best * process.gradient_D
    unit = best * np.linalg.norm(process.gradient_D) or np.linalg.norm(mean_D)
    if unit < ZERO:
        return None, None

    def decision(number: int) -> Decision:
        seen = process.world.observe(process.states[process.state_D[number]])
        return Decision(seen, process.actions[number], float(error_D[number] / unit))

    return decision(int(error_D.argmax())), decision(int(error_D.argmin()))


def going_on(groups: Groups, advantage_N: np.ndarray) -> Measured:
    """What a method pays for going on in a world where that changes nothing, in deviations of its credit.

    The mean credit of going on less that of ending, in the same state, mean over states by how often they are visited.
    Right is 0; so is RLOO's, which serves as a control variate where groups were drawn. A method that pays for going on
    teaches longer rollouts, one that charges for it shorter ones (verl issue 7244). NaN in a world where the policy
    does not decide, or where it matters.
    """
    process = groups.process
    if process.world.goes_on is None:
        return Measured(np.nan, np.nan)
    spread = _spread(groups, advantage_N)
    if spread == 0:
        return Measured(0.0, 0.0)
    if not groups.enumerated:
        off_N = groups.rloo_N - groups.rloo_N.mean()
        advantage_N = advantage_N - (advantage_N @ off_N) / max(off_N @ off_N, ZERO) * groups.rloo_N
    state_N, action_N = process.state_D[groups.decision_N], np.array(process.actions)[groups.decision_N]
    cell_N, cells = groups.group_N * len(process.v_S) + state_N, groups.count * len(process.v_S)
    sums = [
        np.bincount(cell_N, column_N * (action_N == action), cells).reshape(groups.count, -1)
        for action in process.world.goes_on
        for column_N in (advantage_N, np.ones(len(advantage_N)))
    ]

    def gap(mean_K: np.ndarray) -> float:
        on_S, on_count_S, end_S, end_count_S = mean_K.reshape(4, -1)
        both_S = (on_count_S > 0) & (end_count_S > 0)
        gap_S = on_S[both_S] / on_count_S[both_S] - end_S[both_S] / end_count_S[both_S]
        return float(np.average(gap_S, weights=(on_count_S + end_count_S)[both_S]) / spread)

    return measured(groups, np.hstack(sums), gap)


def _spread(groups: Groups, x_N: np.ndarray) -> float:
    """The standard deviation of a column over turns, each with its group's weight; 0 where it is rounding alone."""
    weight_N = groups.weight_G[groups.group_N]
    mean = np.average(x_N, weights=weight_N)
    spread = float(np.sqrt(np.average((x_N - mean) ** 2, weights=weight_N)))
    return spread if spread > ZERO * np.abs(x_N).max() else 0.0
