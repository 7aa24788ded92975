"""Whether all methods took the same number of optimiser steps: otherwise more than their credit is compared.

Methods whose `rollout` and `update` sections ask for the same number of steps must have taken equally many in every
round of every seed, whatever else these sections say (16 rollouts in minibatches of 4 are 4 steps, as 8 in minibatches
of 2). In round 1, those that pass equally often over the same rollouts must have taken them on equally many sequences
and tokens. Tokens of methods that credit trees are not compared, since CARL leaves turns out. A method whose own entry
asks for another number (`define.<method>.update: {epochs: 2}`) is compared with those that ask for the same; the report
shows each method's steps, sequences and tokens beside its success.

Methods with different agents are compared as well: a minibatch counts rollouts, so a context that is rebuilt at every
turn means more sequences in a step, not more steps. They share no rollouts, not even in round 1.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping
from typing import NamedTuple

from turncredit.config import Experiment
from turncredit.config.layout import sampled_by
from turncredit.credit.parts.configured import forks_of
from turncredit.data.counts import number_of


class Spent(NamedTuple):
    """What the update of a round took: optimiser steps, and the sequences and tokens in their minibatches."""

    steps: int
    sequences: int
    tokens: int


class Asked(NamedTuple):
    """What a method's settings ask for in a round: optimiser steps, in `epochs` passes over rollouts with forks."""

    steps: int
    rollouts: int
    epochs: int


class RunUpdate(NamedTuple):
    """The update of a round of a run."""

    method: str
    seed: int
    round: int


def counted(checks: int, kinds: int, rounds: int) -> str:
    """The checks of results in words, the same in the report and in `turncredit check`. Equal steps are one of them."""
    return f"{checks} checks of {kinds} invariants in {number_of(rounds, 'round')} of all runs"


def unequal(experiment: Experiment, spent: Mapping[RunUpdate, Spent]) -> list[str]:
    """One line for each seed and round in which methods that should have taken the same steps did not.

    Methods with `skip_dead_groups` are left out: which groups are dead depends on what the policy has learned. So are
    runs of methods that the experiment has no more, whose settings are not known.
    """
    alike: dict[tuple[int, int, int], dict[str, Spent]] = defaultdict(dict)
    for (method, seed, round), cost in sorted(spent.items()):
        asked = planned(experiment, method) if method in experiment.methods else None
        if asked is not None:
            tokens = 0 if forks_of(experiment, method) else cost.tokens
            first = Spent(cost.steps, cost.sequences, tokens)
            alike[seed, round, asked.steps][method] = first if round == 1 else Spent(cost.steps, 0, 0)
    lines = []
    for (seed, round, _), by_method in alike.items():
        differ = [_differences(by_method, lambda cost: cost.steps)]
        if round == 1 and not any(differ):
            differ = [_differences(same, lambda cost: cost) for same in _on_the_same(experiment, by_method)]
        lines += [f"seed {seed}, round {round}: {line}" for line in differ if line]
    return lines


def planned(experiment: Experiment, method: str) -> Asked | None:
    """What the method's settings ask for in a round; None with `skip_dead_groups`."""
    update, rollout = experiment.section_for(method, "update"), experiment.section_for(method, "rollout")
    if update.skip_dead_groups:
        return None
    rollouts = rollout.tasks * (rollout.group_size + (forks_of(experiment, method) or 0))
    return Asked(update.epochs * math.ceil(rollouts / update.minibatch), rollouts, update.epochs)


def _on_the_same(experiment: Experiment, by_method: Mapping[str, Spent]) -> Iterable[dict[str, Spent]]:
    """The methods of round 1, those apart that do not make equally many passes over the same rollouts and forks."""
    groups: dict[tuple, dict[str, Spent]] = defaultdict(dict)
    for method, cost in by_method.items():
        groups[sampled_by(experiment, method, 1), planned(experiment, method)][method] = cost
    return groups.values()


def _differences(by_method: Mapping[str, Spent], of: Callable[[Spent], Hashable]) -> str:
    """The methods whose `of` their cost differs from the majority's, in words; empty where there are none."""
    usual = Counter(map(of, by_method.values())).most_common(1)[0][0]
    differ = [f"{method} took {_words(cost)}" for method, cost in by_method.items() if of(cost) != usual]
    if not differ:
        return ""
    same = next(method for method, cost in by_method.items() if of(cost) == usual)
    return f"{', '.join(differ[:3])}{' ...' if len(differ) > 3 else ''}, but {same} {_words(by_method[same])}"


def _words(spent: Spent) -> str:
    steps = number_of(spent.steps, "optimiser step")
    return f"{steps} on {spent.sequences} sequences ({spent.tokens} tokens)" if spent.sequences else steps
