"""VinePPO and `truth`: values from continuations, by hand and by enumeration."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.credit import synthetic
from tests.credit.tables import numbers, side, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.errors import UserError

RAW = resolve({"base": "vineppo", "params": {"normaliser": None}})


def continued(turns: dict, counts: list[int], sums: list[float], squares: list[float]) -> dict:
    return {"continuations": side(turns, continuations=counts, return_sum=sums, return_square_sum=squares)}


def test_a_small_table_by_hand():
    turns = table({"g": [[0, 0, 1], [0]]})
    got = compute(turns, RAW, continued(turns, [4, 4, 2, 4], [1.0, 2.0, 2.0, 1.0], [1.0, 2.0, 2.0, 1.0]))
    np.testing.assert_allclose(numbers(got, "value"), [0.25, 0.5, 1.0, 0.25])
    np.testing.assert_allclose(numbers(got), [0.25, 0.5, 0.0, -0.25])
    assert numbers(got, "continuations").tolist() == [4, 4, 2, 4]
    # The standard error of a mean: of 1, 0, 0, 0 the sample's deviation is .5.
    np.testing.assert_allclose(numbers(got, "value_se"), [0.25, np.sqrt(1 / 3) / 2, 0.0, 0.25])


def test_returns_that_are_equal_but_for_the_rounding_of_their_sums_have_the_error_0():
    turns = table({"g": [[0.1]]})
    returns, squares = sum([0.1] * 3), sum([0.1**2] * 3)
    assert squares - returns**2 / 3 < 0
    got = compute(turns, RAW, continued(turns, [3], [returns], [squares]))
    assert got["value_se"].to_pylist() == [0]


def test_one_continuation_has_no_standard_error():
    turns = table({"g": [[1]]})
    got = compute(turns, RAW, continued(turns, [1], [1.0], [1.0]))
    assert got["value_se"].to_pylist() == [None]
    assert numbers(got).tolist() == [0.0]


def test_a_state_without_a_continuation_is_one_clear_line():
    turns = table({"g": [[0, 1]]})
    with pytest.raises(UserError, match=r"no continuation from the state before group 'g', .* turn 1 \(1 states have"):
        compute(turns, RAW, continued(turns, [3, 0], [1.0, 0.0], [1.0, 0.0]))


@given(
    made=st.builds(
        synthetic.rows,
        groups=st.integers(1, 2),
        size=st.integers(1, 3),
        turns=st.integers(1, 6),
        seed=st.integers(0, 999),
    )
)
def test_a_rollouts_advantages_sum_to_its_return_minus_the_value_of_its_first_state(made):
    rows, tables = synthetic.tables(made)
    for method in (RAW, METHODS["truth"]):
        got = compute(rows, method, tables)
        for rollout in {row["rollout_id"] for row in made}:
            own = [place for place, row in enumerate(made) if row["rollout_id"] == rollout]
            first = next(place for place in own if made[place]["turn"] == 0)
            total = sum(made[place]["reward"] for place in own)
            assert numbers(got)[own].sum() == pytest.approx(total - numbers(got, "value")[first], abs=1e-9)


@pytest.mark.parametrize("count", [1, 3])
def test_the_expected_advantage_is_the_true_one_by_enumerating_all_continuations(count):
    """Two states: from each the policy wins at once with p, else it comes to the second, and from there loses."""
    p, q = 0.3, 0.6
    v_first, v_second = p + (1 - p) * q, q
    turns = table({"g": [[0, 1]]})  # it did not win at once, and won then
    expected = np.zeros(2)
    for first in product((0, 1), repeat=count):
        for second in product((0, 1), repeat=count):
            chance = np.prod([v_first if won else 1 - v_first for won in first])
            chance *= np.prod([v_second if won else 1 - v_second for won in second])
            sums = [float(sum(first)), float(sum(second))]
            expected += chance * numbers(compute(turns, RAW, continued(turns, [count, count], sums, sums)))
    np.testing.assert_allclose(expected, [v_second - v_first, 1 - v_second], atol=1e-12)


def test_truth_is_vineppo_with_more_continuations_and_without_whitening():
    assert (METHODS["truth"].continuations, METHODS["vineppo"].continuations) == (32, 9)
    assert METHODS["truth"].role == "reference"
    rows, tables = synthetic.tables(synthetic.rows(2, 3, 5, seed=1))
    np.testing.assert_array_equal(
        numbers(compute(rows, METHODS["truth"], tables)),
        numbers(compute(rows, METHODS["vineppo"], tables), "advantage_raw"),
    )
