"""Values that are calibrated to a task by the other rollouts of its group."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.credit import METHODS, compute, resolve
from turncredit.errors import UserError

METHOD = METHODS["turn_value_calibrated"]


def table(outcomes: list[list[float]], turns: int = 3) -> pa.Table:
    """Groups of rollouts of `turns` turns with these returns, paid on the last turn."""
    rows = [
        {"group_id": f"g{g}", "rollout_id": f"g{g}-{i}", "turn": t, "reward": won * (t == turns - 1)}
        for g, group in enumerate(outcomes)
        for i, won in enumerate(group)
        for t in range(turns)
    ]
    return pa.Table.from_pylist(rows)


def values(turns: pa.Table, value: list[float]) -> dict[str, pa.Table]:
    keys = turns.select(["group_id", "rollout_id", "turn"])
    return {"values": keys.append_column("value", pa.array(np.resize(value, turns.num_rows)))}


def calibrated(outcomes: list[list[float]], value: list[float], **params: float) -> np.ndarray:
    """V' by group, rollout and turn."""
    turns = table(outcomes)
    method = resolve({"base": "turn_value_calibrated", "params": params})
    got = compute(turns, method, values(turns, value))["value_calibrated"].to_numpy()
    return got.reshape(len(outcomes), -1, 3)


def test_a_task_that_the_others_solved_is_easier_and_one_that_they_failed_is_harder() -> None:
    easy, hard = calibrated([[1.0, 1.0, 1.0, 0.0], [0.0, 0.0, 0.0, 0.0]], [0.3, 0.5, 0.7])
    before = np.array([0.3, 0.5, 0.7])
    assert (easy > before).all()
    assert (hard < before).all()
    assert (easy[3] > easy[0]).all()  # the failure is compared with three successes, a success with two


@given(st.lists(st.sampled_from([0.0, 1.0]), min_size=2, max_size=6), st.integers(0, 5))
def test_a_rollouts_own_outcome_has_no_part_in_its_values(outcomes: list[float], own: int) -> None:
    own %= len(outcomes)
    other = [1 - won if place == own else won for place, won in enumerate(outcomes)]
    one, two = (calibrated([returns], [0.4, 0.6, 0.2])[0, own] for returns in (outcomes, other))
    np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("outcomes", [[[0.0, 0.0]], [[0.5, 0.0]]])
def test_a_batch_without_a_success_has_the_values_of_one_with_it(outcomes: list[list[float]]) -> None:
    with_a_success = calibrated([*outcomes, [1.0, 0.0]], [0.3, 0.4, 0.2])
    np.testing.assert_array_equal(calibrated(outcomes, [0.3, 0.4, 0.2])[0], with_a_success[0])


def test_a_group_of_one_keeps_its_values_and_so_does_everyone_without_a_spread() -> None:
    np.testing.assert_allclose(calibrated([[1.0]], [0.4, 0.6, 0.2])[0, 0], [0.4, 0.6, 0.2], atol=1e-12)
    small = calibrated([[1.0, 1.0, 0.0]], [0.4, 0.6, 0.2], spread=1e-4)
    np.testing.assert_allclose(small[0], [[0.4, 0.6, 0.2]] * 3, atol=1e-7)


def test_the_best_return_is_at_least_the_largest_value() -> None:
    """A group of one keeps its values, but for the margin of .01 below the best: 3."""
    np.testing.assert_allclose(calibrated([[1.0]], [3.0, 1.5, 0.6])[0, 0], [2.97, 1.5, 0.6], atol=1e-12)


def test_with_a_wide_spread_the_first_value_is_the_mean_return_of_the_others() -> None:
    got = calibrated([[1.0, 1.0, 0.0, 0.0, 1.0]], [0.2, 0.6, 0.2], spread=1e3)[0, :, 0]
    np.testing.assert_allclose(got, [0.5, 0.5, 0.75, 0.75, 0.5], atol=1e-4)


def test_before_any_value_is_known_it_is_flat_grpo() -> None:
    turns = table([[1.0, 0.0, 0.0]])
    unknown = {
        "values": turns.select(["group_id", "rollout_id", "turn"]).append_column("value", pa.nulls(9, pa.float64()))
    }
    got, flat = compute(turns, METHOD, unknown), compute(turns, METHODS["flat_grpo"])
    ratio = got["advantage"].to_numpy() / flat["advantage"].to_numpy()
    np.testing.assert_allclose(ratio, ratio[0])
    assert np.isnan(got["value_calibrated"].to_numpy()).all()


@pytest.mark.parametrize(("outcome", "says"), [(-1.0, "a return of -1"), (2.0, "from 0 to `best` \\(1\\)")])
def test_a_return_that_is_no_share_of_the_best_is_refused(outcome: float, says: str) -> None:
    with pytest.raises(UserError, match=says):
        calibrated([[outcome, 1.0]], [0.5], best=1.0)


def test_a_return_that_is_above_the_best_by_rounding_alone_is_the_best() -> None:
    above = calibrated([[1.0 + 2.0**-52, 1.0, 0.0]], [0.5], best=1.0)
    np.testing.assert_allclose(above, calibrated([[1.0, 1.0, 0.0]], [0.5], best=1.0), atol=1e-12)
