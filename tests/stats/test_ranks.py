from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import mannwhitneyu, spearmanr

from turncredit.data.turns import Turns
from turncredit.stats.rank_correlation import auc, mean_correlation, ranks, spearman, weighted_auc, within
from turncredit.views.pages.agreement import agreement
from turncredit.views.pages.data import Book, Credit, Truth
from turncredit.views.show import lines
from turncredit.views.show.read import RolloutCredit, RolloutTables

#: the two in the middle are equal but for rounding, as shares of continuations are
TRUTH = [0.0, 0.3 - 0.2, 0.2 - 0.1, 0.9]
CREDIT = [1.0, 2.0, 3.0, 4.0]


def test_correlation_in_each_cell_is_spearmans():
    rng = np.random.default_rng(0)
    cell = np.repeat(np.arange(5), [3, 4, 9, 12, 2])
    x, y = rng.integers(0, 4, (2, len(cell))).astype(float)
    found = within(x, y, cell, 5)
    for number in range(4):
        rho = spearmanr(x[cell == number], y[cell == number]).statistic
        assert found.rho_R[number] == pytest.approx(0 if np.isnan(rho) else rho)
    assert found.count_R.tolist() == [3, 4, 9, 12, 2]
    assert not found.scored_R[4]


def test_what_says_the_same_of_every_turn_orders_nothing_and_an_equal_truth_is_not_scored():
    cell = np.repeat([0, 1, 2], 4)
    truth = np.concatenate([[1.0, 2, 3, 4], [1.0, 2, 3, 4], [1.0, 1, 1, 1]])
    credit = np.concatenate([[4.0, 3, 2, 1], [0.0, 0, 0, 0], [1.0, 2, 3, 4]])
    found = within(credit, truth, cell, 3)
    assert found.rho_R == pytest.approx([-1, 0, 0])
    assert found.scored_R.tolist() == [True, True, False]
    assert found.varies_R.tolist() == [True, False, True]
    assert mean_correlation(found, np.zeros(3, dtype=np.int64), 1).value == pytest.approx(-0.5)


def test_a_table_a_page_and_the_terminal_rank_turns_alike_that_differ_by_rounding_alone():
    """.3 - .2 and .2 - .1 are the same advantage, and not the same number."""
    assert TRUTH[1] != TRUTH[2]
    wanted = spearmanr(CREDIT, np.round(TRUTH, 9)).statistic
    assert wanted < 1
    keys = {"group_id": ["g"] * 4, "rollout_id": ["r"] * 4, "turn": list(range(4)), "reward": [0.0, 0.0, 0.0, 1.0]}
    credit = Credit("m", np.array(CREDIT), {})
    truth = Truth(np.array(TRUTH), np.full(4, 0.01), {})
    book = Book(Turns(keys), {"m": credit}, truth, {}, {}, {}, {})
    assert within(np.array(CREDIT), np.array(TRUTH), np.zeros(4, dtype=np.int64), 1).rho_R == pytest.approx(wanted)
    assert agreement(book, "m", 0).rank == pytest.approx(wanted)
    branches = {turn: {"advantage_true": value} for turn, value in enumerate(TRUTH)}
    said, _ = lines._agreement(RolloutTables([RolloutCredit("m", dict(enumerate(CREDIT)), {}, 1.0)], [], branches))
    assert said.plain.endswith(f"m {wanted:+.2f}")


@pytest.mark.parametrize("other", [1.0, 1e-9, 1e13])
def test_ranks_do_not_depend_on_the_scale_of_another_cell(other):
    x = np.array([0.1, 0.3, 0.2, 0.3 - 0.2, 0.9 * other, other])
    found = ranks(x, np.array([0, 0, 0, 0, 1, 1]))
    assert found.tolist() == [0.5, 3, 2, 0.5, 0, 1]


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_a_cell_of_rounding_alone_is_constant_beside_cells_that_are_not(unit):
    x = unit * np.array([1e-17, -2e-17, 0.0, 0.5, 1.0, 0.0])
    assert ranks(x, np.array([0, 0, 0, 1, 1, 1])).tolist() == [1, 1, 1, 1, 2, 0]


def test_a_sign_that_is_rounding_alone_is_no_sign():
    keys = {"group_id": ["g"] * 3, "rollout_id": ["r"] * 3, "turn": [0, 1, 2], "reward": [0.0, 0.0, 1.0]}
    credit = Credit("m", np.array([1e-17, 1.0, 1.0]), {})
    truth = Truth(np.array([0.5, 1e-17, 0.5]), np.array([0.01, 0.0, 0.01]), {})
    found = agreement(Book(Turns(keys), {"m": credit}, truth, {}, {}, {}, {}), "m", 0)
    assert (found.right, found.clear) == (1, 2)


def test_the_auc_is_mann_and_whitneys_u_over_the_number_of_pairs():
    rng = np.random.default_rng(0)
    score, positive = rng.integers(0, 5, 40).astype(float), rng.random(40) < 0.4
    pairs = positive.sum() * (~positive).sum()
    assert auc(score, positive) == pytest.approx(mannwhitneyu(score[positive], score[~positive]).statistic / pairs)
    assert np.isnan(auc(score, np.ones(40, dtype=bool)))


def test_a_weight_in_the_auc_is_how_often_the_score_is_there():
    rng = np.random.default_rng(1)
    score, positive, weight = rng.integers(0, 5, 30).astype(float), rng.random(30) < 0.5, rng.integers(0, 4, (3, 30))
    for found, often in zip(weighted_auc(score, positive, weight.astype(float)), weight, strict=True):
        assert found == pytest.approx(auc(np.repeat(score, often), np.repeat(positive, often)))


@pytest.mark.parametrize(
    ("y", "rho", "p"), [([1, 2, 3, 4, 5, 6], 1.0, 2 / 720), ([6, 5, 4, 3, 2, 1], -1.0, 2 / 720), ([1] * 6, 0.0, 1.0)]
)
def test_spearmans_correlation_of_known_orders(y, rho, p):
    found = spearman(np.arange(6.0), np.array(y, dtype=float))
    assert (found[0], found[3]) == pytest.approx((rho, p), nan_ok=True)
    assert np.isnan(spearman(np.arange(4.0), np.arange(4.0))[1])


def test_spearmans_interval_is_bonett_and_wrights_and_up_to_seven_points_p_is_of_all_orders():
    # One pair of neighbours is swapped: rho = 1 - 6 x 2 / (7 x 48). As far from 0: no swap, one of six, and reversed.
    rho, low, high, p = spearman(np.arange(7.0), np.array([0.0, 1, 2, 3, 4, 6, 5]))
    assert rho == pytest.approx(1 - 12 / 336)
    half = 1.959964 * np.sqrt((1 + rho**2 / 2) / 4)
    assert (low, high) == pytest.approx((np.tanh(np.arctanh(rho) - half), np.tanh(np.arctanh(rho) + half)))
    assert p == pytest.approx(2 * 7 / 5040)


def test_a_permutation_p_of_random_orders_is_never_zero():
    # One order in 8! is as extreme on either side: 10,000 random ones need not have it.
    assert 0 < spearman(np.arange(8.0), np.arange(8.0))[3] < 0.001


def test_the_permutation_p_is_uniform_where_nothing_is_related():
    rng = np.random.default_rng(0)
    ps = [spearman(rng.normal(size=6), rng.normal(size=6))[3] for _ in range(300)]
    assert 0.01 < np.mean(np.array(ps) < 0.05) < 0.1
