"""Estimates from continuations, by simulation: no bias though their number adapts, errors that cover the truth."""

from __future__ import annotations

import numpy as np
import pytest

from turncredit.audit.estimates import (
    Continuation,
    _step_errors,
    estimate,
    mean_and_error,
    planned,
    return_variance,
    step_variance,
)

pytestmark = pytest.mark.slow


def coins(p_S: np.ndarray, rng: np.random.Generator, shared: float = 0.0):
    """A `draw` whose returns are 1 with probability p; a share of the copies has the same luck in all states."""
    luck = rng.random((2, 1000)), rng.random((2, 1000)) < shared

    def draw(first_S2, count_S2):
        for state, pair in enumerate(count_S2):
            for half, count in enumerate(pair):
                for copy in range(first_S2[state, half], count):
                    own = rng.random()
                    number = luck[0][half, copy] if luck[1][half, copy] else own
                    yield Continuation(state, half, copy, float(number < p_S[state]), 1)

    return draw


LADDER = np.array([0.02, 0.05, 0.1, 0.2, 0.35, 0.5, 0.7, 0.9, 0.97])
LIMITS = {"least": 8, "most": 64, "budget": 1e9}


@pytest.fixture(scope="module")
def simulated():
    """2,000 estimates of each rung of the ladder, each of a rollout of its own."""
    p_S = np.repeat(LADDER, 2000)
    alone_S = np.zeros(len(p_S), dtype=bool)
    found = estimate(coins(p_S, np.random.default_rng(0)), alone_S, target=0.07, **LIMITS)
    return p_S.reshape(-1, 2000), found


@pytest.fixture(scope="module")
def differences():
    """2,000 rollouts of four turns, whose states share their luck in half of the copies: (true, found, error)."""
    p_T = np.array([0.3, 0.3, 0.55, 0.05])
    follows_T = np.array([True, True, True, False])
    rng, rows = np.random.default_rng(5), []
    for _ in range(2000):
        found = estimate(coins(p_T, rng, shared=0.5), follows_T, target=0.1, **LIMITS)
        rows.append((np.append(found.value_S[1:], 0.0) - found.value_S, found.step_error_S))
    found, error = (np.array(part) for part in zip(*rows, strict=True))
    return np.append(p_T[1:], 0.0) - p_T, found, error


def test_adapting_the_number_of_continuations_does_not_bias_values_or_differences(simulated, differences):
    p, found = simulated
    value_S = found.value_S.reshape(p.shape)
    error = value_S.std(axis=1) / np.sqrt(p.shape[1])
    assert found.count_S.reshape(p.shape).std(axis=1).min() > 1, "the numbers do adapt"
    assert (np.abs(value_S.mean(axis=1) - LADDER) < 4 * error).all()
    true, steps, _ = differences
    assert (np.abs(steps.mean(axis=0) - true) < 4 * steps.std(axis=0) / np.sqrt(len(steps))).all()


def test_stopping_where_the_first_returns_agree_would_bias_it():
    """Why the halves decide for each other: at p = 0.1 the plain rule is off by a quarter."""
    rng = np.random.default_rng(1)
    pilot = rng.random((20_000, 8)) < 0.1
    more = rng.random((20_000, 56)) < 0.1
    plain = np.where(pilot.any(axis=1), (pilot.sum(axis=1) + more.sum(axis=1)) / 64, 0.0)
    assert plain.mean() < 0.075


def test_the_standard_error_covers_the_truth_and_is_not_wasteful(simulated):
    p, found = simulated
    z = np.abs(found.value_S - p.ravel()) / found.error_S
    covered = (z < 1.96).reshape(p.shape).mean(axis=1)
    assert covered.min() > 0.85, "worst where all returns may agree and the truth is 0.1 away"
    assert covered.mean() > 0.93
    claimed = np.sqrt((found.error_S**2).reshape(p.shape).mean(axis=1))
    actual = found.value_S.reshape(p.shape).std(axis=1)
    assert (claimed > 0.93 * actual).all()
    assert (claimed[3:8] < 1.15 * actual[3:8]).all()


def test_the_standard_error_of_a_difference_counts_the_luck_that_both_states_share(differences):
    true, found, error = differences
    claimed, actual = np.sqrt((error**2).mean(axis=0)), found.std(axis=0)
    np.testing.assert_allclose(claimed[:3], actual[:3], rtol=0.12)
    covered = (np.abs(found - true) < 1.96 * error).mean(axis=0)
    assert (covered[:3] > 0.92).all()
    assert covered[3] > 0.8
    assert (error.mean(axis=0) < 0.11).all()


def test_the_two_halves_errors_are_hardly_correlated(simulated):
    p, found = simulated
    off = found.half_S2 - p.ravel()[:, None]
    for rung in off.reshape(*p.shape, 2):
        assert abs(np.corrcoef(rung.T)[0, 1]) < 0.15


def test_agreement_of_a_few_continuations_is_not_certainty():
    same = np.zeros(8)
    assert return_variance(same, 0.0, 1.0) == pytest.approx((0.5 / 9) * (8.5 / 9))
    assert return_variance(np.append(same + 10, np.nan), 0.0, 10.0) == pytest.approx(100 * (0.5 / 9) * (8.5 / 9))
    assert step_variance(same, 0.0, 1.0) == pytest.approx(0.5 / 9)
    assert mean_and_error(same, 0.0, 1.0) == pytest.approx((0, np.sqrt((0.5 / 9) * (8.5 / 9) / 8)))
    mixed = np.random.default_rng(0).normal(size=(2, 4000))
    np.testing.assert_allclose(return_variance(mixed, -3.0, 3.0), mixed.var(axis=1), rtol=0.01)


def test_the_error_of_a_difference_has_the_copies_that_only_one_state_has_on_their_own():
    """Halves of 4 and 2, and of 4 and 8 copies: as many as both have are paired, the rest is of one state alone."""
    variances_S, step_S = np.array([0.04, 0.25]), np.array([0.1, 0.0])
    found = _step_errors(variances_S, step_S, np.array([[4, 4], [2, 8]]), np.array([True, False]))
    first = 0.1 / 4 + 0.25 * (1 / 2 - 1 / 4) + 0.1 / 8 + 0.04 * (1 / 4 - 1 / 8)
    np.testing.assert_allclose(found, np.sqrt([first, 0.25 / 2 + 0.25 / 8]) / 2)


def test_a_budget_raises_the_target_and_the_first_continuations_are_played_in_any_case():
    rule = {"target": 0.05, "least": 4, "most": 100}
    variance_S2, alone_S, cost_S = np.array([[0.25, 0.25], [0.1, 0.1]]), np.zeros(2, dtype=bool), np.array([5.0, 10.0])
    free = planned(variance_S2, alone_S, cost_S, budget=1e9, **rule)
    assert free.tolist() == [[50, 50], [20, 20]]
    tight = planned(variance_S2, alone_S, cost_S, budget=200, **rule)
    assert ((tight - 4).sum(axis=1) @ cost_S) <= 200
    assert tight[0, 0] / tight[1, 0] == pytest.approx(2.5, rel=0.15)
    assert planned(variance_S2, alone_S, cost_S, budget=0, **rule).tolist() == [[4, 4], [4, 4]]
    coin = coins(np.array([0.5]), np.random.default_rng(0))
    found = estimate(coin, np.array([False]), target=0.01, least=6, most=50, budget=20)
    assert 18 <= found.turns_S[0] <= 20  # all that the budget allows
    assert found.wanted == 50
    assert estimate(coin, np.array([False]), target=0.01, least=5, most=50, budget=0).count_S.tolist() == [6]


def test_a_half_is_planned_by_what_the_other_half_has_seen_and_a_state_by_the_needier_of_its_turns():
    rule = {"target": 0.05, "least": 2, "most": 100, "budget": 1e9}
    one = planned(np.array([[0.25, 0.05]]), np.array([False]), np.ones(1), **rule)
    assert one.tolist() == [[10, 50]]
    variance_S2 = np.array([[0.25, 0.25], [0.05, 0.05], [0.1, 0.1]])
    chain = planned(variance_S2, np.array([True, False, False]), np.ones(3), **rule)
    assert chain[:, 0].tolist() == [50, 50, 20]
