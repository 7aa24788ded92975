"""A small decision process, and everything about it that is exact: values, the policy gradient, every rollout.

Suffixes beside the usual ones: `_S` states, `_D` decisions (a state and one of its actions), `_X` transitions (a
decision and one of its outcomes), `_M` possible rollouts, `_L` the transitions of all of them, one after another.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

#: What a state holds is the world's own business; its last item is the number of turns taken.
State = tuple[Any, ...]


class Outcome(NamedTuple):
    """What an action may lead to, and with which probability. `next` is None where the rollout ends."""

    probability: float
    next: State | None
    reward: float = 0.0
    success: bool = False


@dataclass(frozen=True)
class World:
    """A finite decision process and the policy that acts in it. A state says how many turns have passed.

    difficulty   what makes credit hard here, in a few words
    starts       first states with their probabilities; the rollouts of a group share one
    actions      the actions of a state
    step         the outcomes of an action
    observe      what the agent is shown of a state; states may look alike
    logit        the policy's preference: it is a softmax over a state's actions, with parameters of its own in each
                 state (an agent that knows its history distinguishes states that look alike)
    progress     the share of the goal that is reached in a state; None where the world does not measure it
    distance     the actions that are still needed, -1 where the goal is out of reach; None as for `progress`
    refuses      whether an action is refused: it only costs the turn
    goes_on      the action that goes on, and the one that ends the rollout, where the policy decides its length
    """

    name: str
    difficulty: str
    starts: Sequence[tuple[float, State]]
    actions: Callable[[State], Sequence[str]]
    step: Callable[[State, str], Sequence[Outcome]]
    observe: Callable[[State], str]
    logit: Callable[[State, str], float]
    progress: Callable[[State], float] | None = None
    distance: Callable[[State], int] | None = None
    refuses: Callable[[State, str], bool] | None = None
    goes_on: tuple[str, str] | None = None


#: A possible rollout: its probability and its transitions.
Path = tuple[float, tuple[int, ...]]
#: The only way to go on after the end.
END: list[Path] = [(1.0, ())]


class Process:
    """A world's states, decisions and transitions by number, with exact values. All of it follows from `world`.

    states, actions              by number; `actions[d]` is that of decision d
    state_D, policy_D            a decision's state, and its probability there
    v_S, q_D, truth_D            value, action value, and their difference: the true advantage A*
    decision_X, next_X           a transition's decision and next state (-1: the rollout ends)
    reward_X, success_X          what the transition pays, and whether it ends in success
    start_probability            of each of the world's starts
    start_M, probability_M       a possible rollout's start (by number), and its probability given that start
    transition_L, first_M, length_M   the transitions of all possible rollouts, and where each one's begin
    visits_S                     how often a rollout is in a state, on average
    gradient_D                   the derivative of the expected return with respect to each decision's logit
    """

    def __init__(self, world: World) -> None:
        self.world = world
        self.states: list[State] = []
        self.actions: list[str] = []
        self._number: dict[State, int] = {}
        self._paths: dict[State, list[Path]] = {}
        decisions: list[tuple[int, float]] = []
        transitions: list[tuple[int, Outcome]] = []
        by_start = [self._walk(state, decisions, transitions) for _, state in world.starts]
        self.state_D = np.array([state for state, _ in decisions])
        self.policy_D = np.array([probability for _, probability in decisions])
        self.decision_X = np.array([decision for decision, _ in transitions])
        self.reward_X = np.array([outcome.reward for _, outcome in transitions])
        self.success_X = np.array([outcome.success for _, outcome in transitions])
        self.next_X = np.array([-1 if one.next is None else self._number[one.next] for _, one in transitions])
        self.v_S, self.q_D = self._values(np.array([outcome.probability for _, outcome in transitions]))
        self.truth_D = np.round(self.q_D - self.v_S[self.state_D], 12)  # what is rounding is no advantage
        self.start_probability = np.array([probability for probability, _ in world.starts])
        self.start_M = np.repeat(np.arange(len(by_start)), [len(paths) for paths in by_start])
        paths = [path for of_start in by_start for path in of_start]
        self.probability_M = np.array([probability for probability, _ in paths])
        self.length_M = np.array([len(transitions) for _, transitions in paths])
        self.first_M = np.concatenate([[0], np.cumsum(self.length_M)[:-1]])
        self.transition_L = np.concatenate([np.array(transitions) for _, transitions in paths])

    @cached_property
    def visits_S(self) -> np.ndarray:
        """How often a rollout is in each state, on average."""
        weight_M = self.start_probability[self.start_M] * self.probability_M
        state_L = self.state_D[self.decision_X[self.transition_L]]
        return np.bincount(state_L, np.repeat(weight_M, self.length_M), len(self.states))

    @cached_property
    def gradient_D(self) -> np.ndarray:
        """The policy gradient theorem: visits(s) pi(a|s) A*(s, a) for a logit of its own for each s and a."""
        return self.visits_S[self.state_D] * self.policy_D * self.truth_D

    def returns(self, state: int) -> tuple[np.ndarray, np.ndarray]:
        """The distinct returns from a state on, and their probabilities."""
        paths = self._paths[self.states[state]]
        totals = np.round([self.reward_X[list(transitions)].sum() for _, transitions in paths], 9)
        values, code = np.unique(totals, return_inverse=True)
        return values, np.bincount(code, [probability for probability, _ in paths])

    def _walk(self, state: State, decisions: list, transitions: list) -> list[Path]:
        """Every way to go on from `state`; numbers the states, decisions and transitions that are met."""
        if state in self._paths:
            return self._paths[state]
        self._number[state] = len(self.states)
        self.states.append(state)
        actions = self.world.actions(state)
        weights = np.exp([self.world.logit(state, action) for action in actions])
        paths: list[Path] = []
        for action, share in zip(actions, weights / weights.sum(), strict=True):
            decision = len(decisions)
            decisions.append((self._number[state], float(share)))
            self.actions.append(action)
            for outcome in self.world.step(state, action):
                transition = len(transitions)
                transitions.append((decision, outcome))
                rest = END if outcome.next is None else self._walk(outcome.next, decisions, transitions)
                paths += [(share * outcome.probability * later, (transition, *steps)) for later, steps in rest]
        self._paths[state] = paths
        return paths

    def _values(self, probability_X: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """V (S) and Q (D) by backward induction. States are numbered as they are first met, so a state's number says
        nothing about its successors'; each value is computed when it is first asked for."""
        v_S, q_D = np.full(len(self.states), np.nan), np.zeros(len(self.state_D))

        def value(state: int) -> float:
            if np.isnan(v_S[state]):
                mine = np.flatnonzero(self.state_D == state)
                for decision in mine:
                    rows = np.flatnonzero(self.decision_X == decision)
                    after = np.array(
                        [value(int(following)) if following >= 0 else 0.0 for following in self.next_X[rows]]
                    )
                    q_D[decision] = probability_X[rows] @ (self.reward_X[rows] + after)
                v_S[state] = self.policy_D[mine] @ q_D[mine]
            return float(v_S[state])

        for state in range(len(self.states)):
            value(state)
        return v_S, q_D
