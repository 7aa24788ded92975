"""Whether all methods took the same number of optimiser steps: otherwise more than their credit is compared.

Methods whose `rollout` and `update` sections ask for the same number of steps must have taken exactly that many in
every round of every seed, and in round 1, whose rollouts they share, on equally many sequences and tokens. A method
whose own entry asks for another number (`define.<method>.update: {epochs: 2}`) is compared with those that ask for the
same; the report shows each method's steps, sequences and tokens beside its success.

Methods with different agents are compared as well: a minibatch counts rollouts, so a context that is rebuilt at every
turn means more sequences in a step, not more steps. They share no rollouts, not even in round 1.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from turncredit.config import Experiment
from turncredit.credit.configured import forks_of
from turncredit.layout import sampled_by


class Spent(NamedTuple):
    """What the update of a round took: optimiser steps, and the sequences and tokens in their minibatches."""

    steps: int
    sequences: int
    tokens: int


class RunUpdate(NamedTuple):
    """The update of a round of a run."""

    method: str
    seed: int
    round: int


def counted(checks: int, kinds: int, rounds: int) -> str:
    """The checks of results in words, the same in the report and in `turncredit check`. Equal steps are one of them."""
    return f"{checks} checks of {kinds} invariants in {rounds} round{'s' * (rounds != 1)} of all runs"


def unequal(experiment: Experiment, spent: Mapping[RunUpdate, Spent]) -> list[str]:
    """One line for each seed and round in which methods that should have taken the same steps did not.

    Methods with `skip_dead_groups` are left out: which groups are dead depends on what the policy has learned.
    """
    alike: dict[tuple, dict[str, Spent]] = defaultdict(dict)
    for (method, seed, round), cost in sorted(spent.items()):
        asked = planned(experiment, method)
        if asked is None:
            continue
        turns = sampled_by(experiment, method, round) if round == 1 else ""
        alike[seed, round, *asked, turns][method] = cost if round == 1 else Spent(cost.steps, 0, 0)
    lines = []
    for (seed, round, *_), by_method in alike.items():
        if len(set(by_method.values())) > 1:
            lines.append(f"seed {seed}, round {round}: {_differences(by_method)}")
    return lines


def planned(experiment: Experiment, method: str) -> tuple[int, int, int] | None:
    """Rollouts with their forks, minibatch and epochs of a round, which decide the number of steps.

    None with `skip_dead_groups`.
    """
    update, rollout = experiment.section_for(method, "update"), experiment.section_for(method, "rollout")
    if update.skip_dead_groups:
        return None
    per_task = rollout.group_size + (forks_of(experiment, method) or 0)
    return rollout.tasks * per_task, update.minibatch, update.epochs


def _differences(by_method: Mapping[str, Spent]) -> str:
    """The methods that differ from the majority, in words."""
    usual = Counter(by_method.values()).most_common(1)[0][0]
    differ = [f"{method} took {_words(cost)}" for method, cost in by_method.items() if cost != usual]
    same = next(method for method, cost in by_method.items() if cost == usual)
    return f"{', '.join(differ[:3])}{' ...' if len(differ) > 3 else ''}, but {same} {_words(usual)}"


def _words(spent: Spent) -> str:
    steps = f"{spent.steps} optimiser step{'s' * (spent.steps != 1)}"
    return f"{steps} on {spent.sequences} sequences ({spent.tokens} tokens)" if spent.sequences else steps
