"""Which methods must have taken the same optimiser steps, and what is said where they did not."""

from __future__ import annotations

import pytest

from tests import tiny
from turncredit.audit.equal_steps import Asked, RunUpdate, Spent, planned, unequal
from turncredit.config import Experiment


def experiment(**sections: dict) -> Experiment:
    """`whole`, 16 rollouts in minibatches of 4, and `other`, the same with `sections` of its own: rollout, update."""
    define = {"whole": {"base": "flat_grpo"}, "other": {"base": "flat_grpo", **sections}}
    update = {"minibatch": 4, "epochs": 1, "skip_dead_groups": False}
    rollout = {"tasks": 4, "group_size": 4}
    return tiny.experiment(methods=["whole", "other"], define=define, update=update, rollout=rollout)


HALF = {"rollout": {"tasks": 2}, "update": {"minibatch": 2}}


def lines(made: Experiment, whole: Spent, other: Spent, round: int = 1) -> list[str]:
    """What is said of these two methods' updates."""
    return unequal(made, {RunUpdate("whole", 0, round): whole, RunUpdate("other", 0, round): other})


def test_methods_are_compared_by_the_number_of_steps_that_they_ask_for_whatever_their_rollouts_and_minibatches():
    made = experiment(**HALF)
    assert planned(made, "whole") == Asked(4, 16, 1)
    assert planned(made, "other") == Asked(4, 8, 1)
    for round in (1, 2):
        assert lines(made, Spent(4, 16, 200), Spent(4, 8, 100), round) == []
    assert lines(made, Spent(4, 16, 200), Spent(3, 8, 100), 2) == [
        "seed 0, round 2: whole took 4 optimiser steps, but other 3 optimiser steps"
    ]
    assert lines(made, Spent(4, 16, 200), Spent(3, 8, 100)) == [
        "seed 0, round 1: whole took 4 optimiser steps on 16 sequences (200 tokens), "
        "but other 3 optimiser steps on 8 sequences (100 tokens)"
    ]


def test_more_passes_over_the_same_rollouts_in_as_many_steps_are_more_sequences():
    made = experiment(update={"minibatch": 8, "epochs": 2})
    assert planned(made, "other") == Asked(4, 16, 2)
    assert lines(made, Spent(4, 16, 200), Spent(4, 32, 400)) == []


def test_a_minibatch_that_is_not_full_is_a_step():
    assert planned(experiment(update={"minibatch": 6, "epochs": 2}), "other") == Asked(6, 16, 2)


@pytest.mark.parametrize("update", [{"epochs": 2}, {"skip_dead_groups": True}])
def test_methods_that_ask_for_another_number_or_skip_dead_groups_are_not_compared(update):
    assert lines(experiment(update=update), Spent(4, 16, 200), Spent(3, 12, 150)) == []


def test_in_round_1_methods_with_the_same_settings_learn_from_the_same_sequences_and_later_each_from_its_own():
    made = experiment()
    costs = Spent(4, 16, 200), Spent(4, 15, 190)
    assert lines(made, *costs, 2) == []
    assert lines(made, *costs) == [
        "seed 0, round 1: whole took 4 optimiser steps on 16 sequences (200 tokens), "
        "but other 4 optimiser steps on 15 sequences (190 tokens)"
    ]


def test_runs_of_a_method_that_the_experiment_has_no_more_are_not_compared():
    """Their settings went with its definition; a report of the methods that are left must still be made."""
    spent = {RunUpdate(name, 0, 1): Spent(4, 16, 200) for name in ("whole", "other")}
    assert unequal(experiment(), {**spent, RunUpdate("gone", 0, 1): Spent(9, 9, 9)}) == []
