"""Identification and validity where the answer is known: A*, its negative, RLOO, flat GRPO's closed form, noise."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turncredit.audit.score import card
from turncredit.audit.score.blocks import BLOCKS, Measured, measured
from turncredit.audit.score.groups import draw, enumerate_groups
from turncredit.audit.score.identification import furthest, identification
from turncredit.audit.score.running import advantages
from turncredit.audit.score.validity import Along, going_on, gradients, validity
from turncredit.audit.score.worlds import WORLDS, process
from turncredit.credit import METHODS, resolve
from turncredit.data.turns import Turns, cell_stats
from turncredit.views.score import words

DECISIVE = [name for name in WORLDS if process(name).gradient_D.any()]


def flat_scale(size: int, chance: float) -> float:
    """How many times the policy gradient flat GRPO's expected gradient is, for one task and returns of 0 and 1.

    Given its return, a rollout's score function has the mean grad p / p after a success and -grad p / (1 - p) after a
    failure; the number of successes in a group is binomial, and decides the credit of both (deviation with ddof 1).
    """
    total = 0.0
    for won in range(1, size):
        share = won / size
        deviation = np.sqrt(size / (size - 1) * share * (1 - share)) + 1e-6
        credit = share * (1 - share) / deviation * (1 / chance + 1 / (1 - chance))
        total += comb(size, won) * chance**won * (1 - chance) ** (size - won) * credit
    return total


@pytest.mark.parametrize("name", DECISIVE)
def test_the_true_advantage_has_cosine_one_and_its_negative_minus_one(name):
    groups = draw(process(name), 8, 2000, 0)
    true, negated = (validity(groups, sign * groups.truth_N) for sign in (1, -1))
    assert true.cosine.value == pytest.approx(1, abs=0.01)
    assert true.scale.value == pytest.approx(1, abs=4 * true.scale.error + 1e-9)
    assert true.bias.value == pytest.approx(0, abs=0.02)
    assert negated.cosine.value == pytest.approx(-1, abs=0.01)
    assert negated.bias.value == 1
    assert negated.rollouts == np.inf


@pytest.mark.parametrize("name", DECISIVE)
def test_the_true_advantage_ranks_turns_perfectly_and_a_constant_not_at_all(name):
    groups = draw(process(name), 8, 2000, 0)
    true, negated = (identification(groups, sign * groups.truth_N) for sign in (1, -1))
    flat = identification(groups, groups.rloo_N)
    assert (true.rank.value, true.sign.value, true.top.value) == pytest.approx((1, 1, 1))
    assert (negated.rank.value, negated.sign.value, negated.top.value) == pytest.approx((-1, 0, 1))
    assert flat.rank.value == 0
    assert 0 < true.chance.value < 1
    assert flat.top.value == pytest.approx(flat.chance.value)
    zero = identification(groups, np.zeros(len(groups.truth_N)))
    assert (zero.rank.value, zero.sign.value) == (0, 0.5)


@pytest.mark.parametrize("name", ["stop_helps", "tasks"])
def test_rloo_is_unbiased_exactly_over_all_groups_of_four(name):
    groups = enumerate_groups(process(name), 4)
    mean_D = groups.weight_G @ gradients(groups, advantages(METHODS["rloo"], groups))
    assert mean_D == pytest.approx(groups.process.gradient_D, abs=1e-12)


def test_flat_grpo_is_the_policy_gradient_times_the_closed_form_over_all_groups_of_four():
    exact = process("stop_helps")
    groups = enumerate_groups(exact, 4)
    mean_D = groups.weight_G @ gradients(groups, advantages(METHODS["flat_grpo"], groups))
    assert mean_D == pytest.approx(flat_scale(4, exact.v_S[0]) * exact.gradient_D, abs=1e-9)


@pytest.mark.parametrize("size", [4, 8, 16])
@pytest.mark.parametrize("name", ["early", "repair", "refused"])
def test_flat_grpo_depends_on_the_group_size_as_the_closed_form_says_in_drawn_groups(name, size):
    exact = process(name)
    groups = draw(exact, size, 8000, 0)
    found = validity(groups, advantages(METHODS["flat_grpo"], groups))
    assert found.scale.value == pytest.approx(flat_scale(size, exact.v_S[0]), abs=4 * found.scale.error)
    assert found.cosine.value > 0.998


def test_division_by_the_deviation_biases_flat_grpo_between_tasks_and_rloo_not():
    groups = draw(process("tasks"), 16, 16_000, 0)
    flat, rloo = (validity(groups, advantages(METHODS[name], groups)) for name in ("flat_grpo", "rloo"))
    assert flat.cosine.value < 0.995 < rloo.cosine.value
    assert "hard" in flat.paid.observation


@pytest.mark.parametrize("method", ["gigpo", "hgpo", "step_grpo"])
def test_drawn_groups_agree_with_all_groups_within_their_errors(method):
    exact = process("stop_helps")
    every, drawn = enumerate_groups(exact, 4), draw(exact, 4, 8000, 3)
    for of in (lambda found: found.cosine, lambda found: found.scale):
        whole, part = (of(validity(groups, advantages(METHODS[method], groups))) for groups in (every, drawn))
        assert whole.error == 0 < part.error
        assert part.value == pytest.approx(whole.value, abs=4 * part.error + 1e-3)


def test_going_on_agrees_between_drawn_and_all_groups():
    every, drawn = enumerate_groups(process("stop"), 4), draw(process("stop"), 4, 8000, 3)
    for method in ("flat_grpo", "gigpo", "step_grpo"):
        whole, part = (going_on(groups, advantages(METHODS[method], groups)) for groups in (every, drawn))
        assert part.value == pytest.approx(whole.value, abs=4 * part.error + 1e-6)


def test_a_cosine_is_free_of_what_the_noise_of_drawn_groups_adds_to_the_length():
    mean_D, exact_D = np.array([3.0, 4.0]), np.array([1.0, 0.0])
    assert Along(exact_D, 0.0).cosine(mean_D) == pytest.approx(3 / 5)
    assert Along(exact_D, 1.0).cosine(mean_D) == pytest.approx(3 / np.sqrt(24))
    assert np.isnan(Along(exact_D, 3.0).cosine(mean_D))  # 22 is not nine times as much as 3


def test_the_decisions_that_get_too_much_and_too_little_are_named():
    groups = enumerate_groups(process("stop_helps"), 2)
    first_N = groups.decision_N == 0
    for sign in (1, -1):
        found = validity(groups, groups.truth_N + sign * 0.2 * first_N)
        named = found.paid if sign > 0 else found.charged
        assert (named.observation, named.action) == ("Draft 0 is ready.", "on")
        assert found.charged.error < 0 < found.paid.error


def test_the_error_of_a_mean_over_drawn_groups_is_that_of_independent_groups():
    groups = draw(process("stop"), 4, 4 * BLOCKS, 0)
    x_GK = np.random.default_rng(0).normal(size=(BLOCKS, 1))
    found = measured(groups, x_GK, lambda mean_K: float(mean_K[0]))
    assert found == pytest.approx((x_GK.mean(), x_GK.std(ddof=1) / np.sqrt(BLOCKS)))


def test_a_credit_that_compares_no_rollouts_needs_as_many_of_them_in_groups_of_any_size():
    needed = [
        validity(groups, groups.truth_N).rollouts
        for groups in (enumerate_groups(process("stop_helps"), size) for size in (2, 4))
    ]
    assert needed[0] == pytest.approx(needed[1])


def test_the_credit_of_decisions_is_without_what_a_state_adds_to_all_of_its_actions():
    groups = enumerate_groups(process("stop_helps"), 2)
    exact = groups.process
    baseline_S = np.random.default_rng(0).normal(size=len(exact.v_S))
    credit_N = 3 * (groups.truth_N + baseline_S[exact.state_D[groups.decision_N]])
    found = card._decisions(groups, credit_N, 3.0)
    assert [one.credit for one in found] == pytest.approx(exact.truth_D.tolist())
    assert [one.truth for one in found] == exact.truth_D.tolist()
    assert [one.visits for one in found] == pytest.approx(exact.visits_S[exact.state_D] * exact.policy_D)


def test_noise_alone_has_no_direction_and_asks_for_many_rollouts():
    groups = draw(process("repeat"), 8, 4000, 0)
    noise_N = np.random.default_rng(0).normal(size=len(groups.truth_N))
    found, flat = validity(groups, noise_N), validity(groups, groups.rloo_N)
    assert abs(found.scale.value) < 4 * found.scale.error
    assert found.rollouts > 20 * flat.rollouts
    assert abs(identification(groups, noise_N).rank.value) < 0.05


@settings(max_examples=10, deadline=None)
@given(st.integers(0, 2**32), st.floats(0.01, 100))
def test_a_baseline_of_the_state_changes_no_expected_gradient_and_a_factor_only_its_scale(seed, factor):
    groups = enumerate_groups(process("stop_helps"), 4)
    baseline_S = np.random.default_rng(seed).normal(size=len(groups.process.v_S))
    credit_N = groups.rloo_N + baseline_S[groups.process.state_D[groups.decision_N]]
    found = validity(groups, factor * credit_N)
    assert found.cosine.value == pytest.approx(1)
    assert found.scale.value == pytest.approx(factor)


def test_the_furthest_turn_is_one_unless_others_are_as_far():
    x_N, rollout_N = np.array([0, 1, -0.95, 2, 0, 1, 1]), np.array([0, 0, 0, 1, 1, 2, 2])
    assert furthest(x_N, rollout_N, 3).tolist() == [False, True, False, True, True, True, True]


def test_differences_that_an_eps_makes_are_no_order_of_turns():
    groups = draw(process("early"), 8, 400, 0)
    credit_N = groups.rloo_N * (1 + 1e-6 * groups.turn_N)
    assert identification(groups, credit_N).rank.value == 0


def centred_by_turn(turns: Turns, *, sign: float = 1.0) -> np.ndarray:
    """MT-GRPO's normalisation as it is naturally ported to rollouts of any length, which verl issue 7244 warns of:
    rewards less the mean of their turn number, added up over the rollout's own turns."""
    reward_N = sign * turns.reward_N
    width = int(turns.length_R.max())
    cell_N = turns.group_N * width + turns.turn_N
    mean_C = cell_stats(reward_N, cell_N, turns.groups * width).mean_C
    return turns.sum_R(reward_N - mean_C[cell_N])[turns.rollout_N]


def to_go_less_the_groups_mean(turns: Turns) -> np.ndarray:
    """A baseline that does not depend on when the rollout ends."""
    return turns.step_return_N(1.0) - turns.stats_G(turns.return_R).mean_C[turns.group_N]


def test_means_by_turn_number_charge_going_on_for_rewards_and_pay_it_for_penalties_as_verl_7244_says():
    groups = enumerate_groups(process("stop_paid"), 4)
    charged = going_on(groups, advantages(resolve(centred_by_turn), groups))
    paid = going_on(groups, advantages(resolve({"credit": centred_by_turn, "params": {"sign": -1.0}}), groups))
    fair = going_on(groups, advantages(resolve(to_go_less_the_groups_mean), groups))
    assert charged.value < -0.5
    assert paid.value == pytest.approx(-charged.value)
    assert fair.value == pytest.approx(0, abs=1e-9)


def test_discounted_step_returns_charge_going_on_and_the_rollouts_return_does_not():
    groups = enumerate_groups(process("stop"), 4)
    paid = {
        name: going_on(groups, advantages(METHODS[name], groups)).value
        for name in ("flat_grpo", "rloo", "gigpo", "hgpo", "step_grpo")
    }
    assert paid["flat_grpo"] == pytest.approx(0, abs=1e-9)
    assert paid["rloo"] == pytest.approx(0, abs=1e-9)
    assert max(paid["gigpo"], paid["hgpo"], paid["step_grpo"]) < -0.05
    undiscounted = resolve({"base": "gigpo", "params": {"gamma": 1.0}})
    assert going_on(groups, advantages(undiscounted, groups)).value == pytest.approx(0, abs=1e-9)


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (0.04, 0.001, "hardly paid or charged"),
        (0.2, 0.15, "not shown to be paid or charged"),
        (0.2, 0.01, "rewarded by itself"),
        (-0.2, 0.0, "punished by itself"),
    ],
)
def test_the_card_says_that_going_on_is_paid_only_if_it_is_clear(value: float, error: float, says: str) -> None:
    assert words._pays(Measured(value, error)) == says
