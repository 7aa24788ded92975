"""Whether methods took the same optimiser steps, on counts made up for the purpose."""

from __future__ import annotations

from tests import tiny
from turncredit.analysis.equal_steps import RunUpdate, Spent, unequal

EXPERIMENT = tiny.experiment(
    methods=["flat_grpo", "gigpo", "rloo", "twice", "few"],
    define={
        "twice": {"base": "rloo", "update": {"epochs": 2}},
        "few": {"base": "rloo", "rollout": {"tasks": 2}},
    },
)
USUAL = Spent(4, 16, 300)


def spent(round=1, **by_method):
    return {RunUpdate(method, 0, round): found for method, found in by_method.items()}


def test_methods_that_took_the_same_steps_are_equal():
    assert unequal(EXPERIMENT, spent(flat_grpo=USUAL, gigpo=USUAL, rloo=USUAL)) == []


def test_a_method_that_took_fewer_steps_than_the_others_is_named():
    (line,) = unequal(EXPERIMENT, spent(round=3, flat_grpo=Spent(3, 9, 150), gigpo=USUAL, rloo=USUAL))
    assert line == "seed 0, round 3: flat_grpo took 3 optimiser steps, but gigpo 4 optimiser steps"


def test_in_round_one_the_shared_rollouts_give_the_same_sequences_and_tokens_too():
    other = Spent(4, 14, 270)
    (line,) = unequal(EXPERIMENT, spent(flat_grpo=other, gigpo=USUAL, rloo=USUAL))
    assert "flat_grpo took 4 optimiser steps on 14 sequences (270 tokens)" in line
    assert unequal(EXPERIMENT, spent(round=2, flat_grpo=other, gigpo=USUAL, rloo=USUAL)) == []


def test_seeds_and_rounds_are_compared_apart():
    first, second = spent(flat_grpo=USUAL), {RunUpdate("gigpo", 1, 1): Spent(5, 20, 400)}
    assert unequal(EXPERIMENT, {**first, **second}) == []


def test_a_method_whose_own_entry_asks_for_other_steps_is_compared_with_its_like_only():
    assert unequal(EXPERIMENT, spent(flat_grpo=USUAL, twice=Spent(8, 32, 600), few=Spent(2, 8, 150))) == []


def test_methods_with_different_agents_take_the_same_steps_and_share_no_rollouts_in_round_one():
    """A minibatch counts rollouts: a context that is rebuilt every turn is more sequences in a step, not more steps."""
    experiment = tiny.experiment(
        methods=["flat_grpo", "rebuilt"],
        agents={"short": {"name": "window"}},
        define={"rebuilt": {"base": "flat_grpo", "agent": "short"}},
    )
    assert unequal(experiment, spent(flat_grpo=USUAL, rebuilt=Spent(4, 90, 280))) == []
    assert unequal(experiment, spent(round=2, flat_grpo=USUAL, rebuilt=Spent(4, 90, 280))) == []
    assert len(unequal(experiment, spent(round=2, flat_grpo=USUAL, rebuilt=Spent(5, 90, 280)))) == 1


def test_with_dead_groups_skipped_the_steps_follow_the_policies_and_are_not_compared():
    experiment = tiny.experiment(methods=["flat_grpo", "gigpo"], update={"skip_dead_groups": True})
    assert unequal(experiment, spent(flat_grpo=USUAL, gigpo=Spent(3, 12, 200))) == []
