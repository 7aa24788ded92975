"""HAS: the blend, its decomposers, and the value projection."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.credit.tables import numbers, side, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.parts.conventions import add, blend
from turncredit.credit.turnrd import v_projection
from turncredit.data.turns import Turns
from turncredit.errors import UserError

TWO = table(
    {"g": [[0, 1], [0, 0, 0]]},
    progress_before=[0, 0.5, 0, 0, 0.5],
    progress=[0.5, 1, 0, 0.5, 0],
)


def has(name: str = "has_progressive", **params: object):
    return resolve({"base": name, "params": params})


def test_progress_is_compared_with_that_of_the_rollouts_at_the_same_position() -> None:
    made = compute(TWO, has())
    assert numbers(made, "credit").tolist() == [0.5, 0.5, 0, 0.5, -0.5]
    one = 0.25 / (np.sqrt(0.125) + 1e-6)  # credits .5 and 0 at position 0
    assert numbers(made, "advantage_turn") == pytest.approx([one, 0, -one, 0, 0])  # equal at 1, alone at 2
    flat = numbers(compute(TWO, METHODS["flat_grpo"]))
    assert numbers(made) == pytest.approx(0.5 * flat + 0.5 * numbers(made, "advantage_turn"))


def test_group_normalisation_compares_with_all_turns_of_the_group() -> None:
    got = numbers(compute(TWO, has(turn_norm="group")), "advantage_turn")
    credit = np.array([0.5, 0.5, 0, 0.5, -0.5])
    assert got == pytest.approx((credit - credit.mean()) / (credit.std(ddof=1) + 1e-6))


def test_without_normalisation_the_credit_is_the_turn_advantage() -> None:
    assert numbers(compute(TWO, has(turn_norm="none", alpha=0))).tolist() == [0.5, 0.5, 0, 0.5, -0.5]


def test_a_turn_without_a_judges_score_gets_no_turn_advantage_and_spoils_no_statistics() -> None:
    labels = side(TWO, score=[1.0, 0.0, None, 1.0, 0.0])
    made = compute(TWO, has("has_judge", turn_norm="group", alpha=0), {"labels": labels})
    known = np.array([1.0, 0, 1, 0])
    z = (known - known.mean()) / (known.std(ddof=1) + 1e-6)
    assert numbers(made) == pytest.approx([z[0], z[1], 0, z[2], z[3]])
    assert made["credit"].to_pylist()[2] is None


def test_the_projection_by_hand() -> None:
    turns = Turns(TWO)
    got = v_projection(turns, np.array([3.0, 0.0, 1.0, 1.0, -5.0]), clip=2.0)
    # Clipped 2, 0 sum to 2 for a return of 1; clipped 1, 1, -2 already sum to 0.
    assert got.tolist() == [1.5, -0.5, 1, 1, -2]


@given(st.lists(st.lists(st.floats(-50, 50), min_size=1, max_size=60), min_size=1, max_size=5), st.floats(-10, 10))
def test_projected_credits_sum_to_the_return(values: list[list[float]], reward: float) -> None:
    made = table({"g": [[0.0] * (len(part) - 1) + [reward] for part in values]})
    turns = Turns(made)
    credit = v_projection(turns, np.concatenate([np.array(part) for part in values]), clip=2.0)
    assert np.abs(turns.sum_R(credit) - turns.return_R).max() < 1e-5


@pytest.mark.parametrize("decomposer", ["has_progressive", "has_judge", "has_turnrd", "random_credit"])
def test_alpha_one_is_flat_grpo_bit_for_bit_whatever_the_decomposer_says(decomposer: str) -> None:
    made = {"labels": side(TWO, score=[1, 0, None, 0.5, 0.7]), "values": side(TWO, value=[9, -9, 1, 2, 3])}
    got = numbers(compute(TWO, has(decomposer, alpha=1), made))
    assert got.tobytes() == numbers(compute(TWO, METHODS["flat_grpo"])).tobytes()


def test_at_alpha_one_and_weight_zero_not_even_a_broken_turn_signal_gets_through() -> None:
    base = np.array([0.0, -0.0, 1.5, -2.0])
    broken = np.array([np.nan, 1.0, np.inf, -np.inf])
    assert blend(base, broken, 1.0).tobytes() == base.tobytes()
    assert blend(broken, base, 0.0).tobytes() == base.tobytes()
    assert add(base, broken, 0.0).tobytes() == base.tobytes()


def test_oracle_progress_replaces_the_rollouts_advantage_and_knows_dead_ends() -> None:
    made = {**TWO, "distance_before": [2, 1, 2, 3, 2], "distance": [1, 0, 3, 2, -1]}
    got = compute(made, METHODS["oracle_progress"])
    credit = np.array([1.0, 1, -1, 1, -48])
    assert numbers(got, "credit").tolist() == credit.tolist()
    assert numbers(got) == pytest.approx((credit - credit.mean()) / (credit.std(ddof=1) + 1e-6))


def test_without_a_distance_for_lost_goals_a_turn_that_loses_one_is_like_a_turn_that_changes_nothing() -> None:
    made = {**TWO, "distance_before": [2, 1, 2, 3, -1], "distance": [1, 0, 2, -1, -1]}
    got = compute(made, resolve({"base": "oracle_progress", "params": {"unreachable": None}}))
    assert numbers(got, "credit").tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]
    made["distance"][4] = 3  # it is in reach again
    got = compute(made, resolve({"base": "oracle_progress", "params": {"unreachable": None}}))
    assert numbers(got, "credit").tolist() == [1.0, 1.0, 0.0, 0.0, 0.0]


def test_a_distance_below_minus_one_is_an_error() -> None:
    made = {**TWO, "distance_before": [2, 1, 2, 3, 2], "distance": [1, 0, -2, 2, -1]}
    with pytest.raises(UserError, match="column 'distance' is -2 at group 'g', rollout 'g1', turn 0"):
        compute(made, METHODS["oracle_progress"])


def test_random_credit_depends_on_seed_and_keys_only() -> None:
    one = compute(TWO, METHODS["random_credit"], seed=3)
    more = {name: [*values, *values] for name, values in TWO.items()}
    more["group_id"] = [*TWO["group_id"], *["z"] * 5]
    more["rollout_id"] = [*TWO["rollout_id"], *[f"z{name}" for name in TWO["rollout_id"]]]
    both = compute(more, METHODS["random_credit"], seed=3)
    np.testing.assert_array_equal(numbers(both, "credit")[:5], numbers(one, "credit"))
    assert (numbers(compute(TWO, METHODS["random_credit"], seed=4), "credit") != numbers(one, "credit")).all()
    set_to_three = compute(TWO, has("random_credit", seed=3), seed=4)
    np.testing.assert_array_equal(numbers(set_to_three, "credit"), numbers(one, "credit"))


def test_random_credit_is_standard_normal_without_memory() -> None:
    made = table({"g": [[0.0] * 5000, [0.0] * 5000]})
    noise = numbers(compute(made, METHODS["random_credit"]), "credit")
    assert abs(noise.mean()) < 0.03
    assert abs(noise.std() - 1) < 0.03
    assert abs(np.mean(np.abs(noise) < 1) - 0.6827) < 0.02
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.03
    assert abs(np.corrcoef(noise[:5000], noise[5000:])[0, 1]) < 0.05
