"""SCPO's matcher by hand, and what the shaper may and may not touch."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.credit.scpo_orders import measure
from tests.credit.tables import numbers, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.parts.monotonic_matcher import Case, match, next_table
from turncredit.credit.parts.visit_order import turn_lengths_N
from turncredit.data.turns import Turns

IDENTITY = np.eye(3)


def walk(score: list[list[float]], own: np.ndarray, order: list[int] | None = None, *, theta=0.6, repeat=False):
    """{failed turn: (credited place, similarity)} for one failed rollout."""
    M = np.array(score)
    count = M.shape[1]
    rank = np.empty(count, dtype=int)
    rank[order if order is not None else list(range(count))] = np.arange(count)
    rows, _, place, similarity = match([Case(np.arange(count), np.zeros(count, int), rank, own, M)], theta, repeat)
    return {int(r): (int(p), float(s)) for r, p, s in zip(rows, place, similarity, strict=True) if p >= 0}


def test_turns_that_follow_the_reference_are_credited_place_by_place() -> None:
    score = [[0.9, 0.1, 0.2], [0.0, 0.7, 0.1], [0.3, 0.2, 0.6]]
    assert walk(score, IDENTITY) == {0: (0, 0.9), 1: (1, 0.7), 2: (2, 0.6)}


def test_a_match_just_below_the_threshold_is_none() -> None:
    assert walk([[0.59]], np.eye(1)) == {}
    assert walk([[0.6]], np.eye(1)) == {0: (0, 0.6)}


def test_the_second_place_waits_until_the_first_was_matched() -> None:
    # Turn 0 looks like place 1, but the walk stands before place 0.
    score = [[0.0, 0.8, 0.0], [0.9, 0.0, 0.9]]
    assert walk(score, np.eye(2)) == {1: (0, 0.8), 2: (1, 0.9)}


def test_a_mismatch_falls_back_and_a_place_is_not_credited_again() -> None:
    # Places 0 1 2; turns match 0, nothing, 0, 1. The second match of place 0 moves j but not the frontier.
    score = [[0.9, 0.0, 0.8, 0.0], [0.0, 0.0, 0.0, 0.7], [0.0, 0.0, 0.0, 0.0]]
    assert walk(score, IDENTITY) == {0: (0, 0.9), 3: (1, 0.7)}


def test_without_monotonicity_a_place_is_credited_again() -> None:
    score = [[0.9, 0.0, 0.8, 0.0], [0.0, 0.0, 0.0, 0.7], [0.0, 0.0, 0.0, 0.0]]
    assert walk(score, IDENTITY, repeat=True) == {0: (0, 0.9), 2: (0, 0.8), 3: (1, 0.7)}


def test_the_walk_stops_when_the_reference_is_used_up() -> None:
    assert walk([[0.9, 0.95]], np.eye(1)) == {0: (0, 0.9)}
    assert walk([[0.9, 0.95]], np.eye(1), repeat=True) == {0: (0, 0.9), 1: (0, 0.95)}


def test_the_order_of_visits_decides_who_gets_the_place() -> None:
    score = [[0.7, 0.9], [0.0, 0.0]]
    assert walk(score, np.eye(2)) == {0: (0, 0.7)}
    assert walk(score, np.eye(2), order=[1, 0]) == {1: (0, 0.9)}


def test_next_is_the_failure_table_of_knuth_morris_and_pratt() -> None:
    # The table of the textbook, with -1 for no prefix; in the second word the last place falls back twice.
    for word, want in (("ababc", [-1, -1, 0, 1, -1]), ("aabaaa", [-1, 0, -1, 0, 1, 1])):
        letters = np.array(list(word))
        own = (letters[:, None] == letters[None, :]).astype(float)
        assert next_table(own, 0.6).tolist() == want


def test_falling_back_goes_to_the_longest_prefix_that_still_fits() -> None:
    # Reference a b a c, turns a b a b: at the second b the walk falls back from place 2 to place 0 and takes place 1.
    reference, turns = list("abac"), list("abab")
    own = np.array([[float(x == y) for y in reference] for x in reference])
    score = [[float(x == y) for y in turns] for x in reference]
    assert walk(score, own) == {0: (0, 1.0), 1: (1, 1.0), 2: (2, 1.0)}
    assert walk(score, own, repeat=True) == {0: (0, 1.0), 1: (1, 1.0), 2: (2, 1.0), 3: (1, 1.0)}


# One group: a0 wins in three turns, a1 fails after doing the first two, a2 wins in one. Texts are letters.
GROUP = table(
    {"a": [[0, 0, 10], [0, 0, 0, 0], [10]], "b": [[0, 0], [0, 0]]},
    action=["p", "q", "r", "p", "x", "q", "p", "r", "p", "q", "p", "q"],
    next_observation=["P", "Q", "R", "P", "Nothing happens.", "Q", "P", "R", "P", "Q", "P", "Q"],
    success=[True] * 3 + [False] * 4 + [True] + [False] * 4,
    observation=["s"] * 12,
)


def scpo(name: str = "scpo", **params: object):
    return resolve({"base": name, "params": {"order": "chronological", **params}})


def test_the_longest_success_is_the_reference_and_no_ops_are_left_out() -> None:
    made = compute(GROUP, scpo())
    # a1's turns: p matches place 0, x is a no-op, q matches place 1, the second p nothing new.
    assert numbers(made, "scpo_credit").tolist() == [0, 0, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0]
    assert numbers(made, "scpo_reference")[[3, 4, 5, 6]].tolist() == [0, -1, 1, -1]
    assert numbers(made, "scpo_order")[[3, 4, 5, 6]].tolist() == [0, -1, 1, 2]


def test_of_two_longest_successes_the_first_by_id_is_the_reference() -> None:
    made = table({"a": [[0, 1], [0, 1], [0, 0]]}, action=list("pqrspq"), next_observation=list("PQRSPQ"))
    assert numbers(compute(made, scpo("scpo_grpo")), "scpo_credit").tolist() == [0, 0, 0, 0, 1, 1]
    other = {**made, "rollout_id": ["z" if name == "a0" else name for name in made["rollout_id"]]}
    assert not numbers(compute(other, scpo("scpo_grpo")), "scpo_credit").any()


def test_the_shortest_success_may_be_the_reference() -> None:
    made = compute(GROUP, scpo(reference="shortest"))
    assert not numbers(made, "scpo_credit").any()  # a1 never does what a2 did


def test_credit_is_soft_above_the_base_and_scaled_by_alpha() -> None:
    turns = {**GROUP, "action": [*GROUP["action"][:3], "p more", *GROUP["action"][4:]]}
    made = compute(turns, scpo(alpha=2.0))
    # Words {p} and {p, more, P -> p}: lower-cased sets {p} and {p, more}, Jaccard 1/2: below theta.
    assert numbers(made, "scpo_credit")[3] == 0
    made = compute(turns, scpo(alpha=2.0, theta=0.5))
    assert numbers(made, "scpo_credit")[3] == pytest.approx((0.5 - 0.4) / 0.6)
    assert numbers(made, "step_bonus")[3] == pytest.approx(2 * (0.5 - 0.4) / 0.6)
    made = compute(turns, scpo(theta=0.5, soft_base=0.7))  # a match below the base is worth nothing, and no loss
    assert (numbers(made, "scpo_reference")[3], numbers(made, "scpo_credit")[3]) == (0, 0)


def test_invalid_turns_are_left_out_where_the_table_says_which_they_are() -> None:
    valid = [place != 3 for place in range(12)]
    made = compute({**GROUP, "valid": valid}, scpo())
    assert numbers(made, "scpo_credit").tolist() == [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0]


def test_the_episode_term_and_other_groups_and_successes_are_never_touched() -> None:
    plain, shaped = compute(GROUP, METHODS["gigpo"]), compute(GROUP, scpo())
    np.testing.assert_array_equal(numbers(plain, "advantage_rollout"), numbers(shaped, "advantage_rollout"))
    change = numbers(shaped, "step_return") - numbers(plain, "step_return")
    assert change[[0, 1, 2, 7, 8, 9, 10, 11]].tolist() == [0] * 8
    assert change[[3, 4, 5, 6]].tolist() == [0.5, 0, 0.5, 0]


def test_alpha_zero_is_gigpo_exactly() -> None:
    np.testing.assert_array_equal(numbers(compute(GROUP, scpo(alpha=0))), numbers(compute(GROUP, METHODS["gigpo"])))


def test_success_may_be_a_threshold_on_graded_rewards() -> None:
    turns = {**GROUP, "reward": [0, 0, 8, 0, 0, 0, 0, 9.5, 0, 0, 0, 0]}
    made = compute(turns, scpo(success_above=9))
    # Only a2 is a success now; a0 shares its turn r.
    assert numbers(made, "scpo_credit").tolist() == [0, 0, 1, *[0] * 9]


def test_the_balanced_order_interleaves_the_parts() -> None:
    lengths = {"prompt_ids": [[0] * n for n in [9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1, 1]], "response_ids": [[]] * 12}
    made = compute({**GROUP, **lengths, "context_reset": [True] * 12}, scpo(order="balanced", ranks=2))
    order = numbers(made, "scpo_order")
    assert sorted(order[[3, 5, 6]].tolist()) == [0, 1, 2]
    one = compute({**GROUP, **lengths}, scpo(order="balanced", ranks=1))
    assert numbers(one, "scpo_order")[[3, 5, 6]].tolist() == [0, 1, 2]


def test_longest_first_visits_by_length() -> None:
    lengths = {"prompt_ids": [[0] * n for n in [1, 1, 1, 1, 2, 3, 4, 1, 1, 1, 1, 1]], "response_ids": [[]] * 12}
    made = compute({**GROUP, **lengths, "context_reset": [True] * 12}, scpo(order="longest_first"))
    assert numbers(made, "scpo_order")[[3, 5, 6]].tolist() == [2, 1, 0]
    # The second p comes first and takes place 0; q then takes place 1; the first p finds it taken.
    assert numbers(made, "scpo_credit")[[3, 5, 6]].tolist() == [0, 1, 1]


def test_of_equally_long_turns_the_earlier_one_is_visited_first() -> None:
    lengths = {"prompt_ids": [[0]] * 12, "response_ids": [[]] * 12, "context_reset": [True] * 12}
    order = numbers(compute({**GROUP, **lengths}, scpo(order="longest_first")), "scpo_order")
    assert order[[3, 5, 6]].tolist() == [0, 1, 2]


def test_a_turns_length_is_all_that_has_entered_its_context_since_the_last_reset() -> None:
    tokens = {"prompt_ids": [[0] * 3, [0], [0] * 2, [0] * 4], "response_ids": [[0]] * 4}
    made = {**table({"g": [[0, 0, 1], [0]]}), **tokens}
    assert turn_lengths_N(Turns(made)).tolist() == [4, 6, 9, 5]
    # A rollout begins a context, whatever the column says.
    assert turn_lengths_N(Turns({**made, "context_reset": [False, False, True, False]})).tolist() == [4, 6, 3, 5]


def test_without_tokens_a_turn_is_as_long_as_its_action_and_what_it_answers() -> None:
    made = table({"g": [[1], [0, 0]]}, action=["go", "look", "é"], next_observation=["a hall", "", "a hall"])
    assert turn_lengths_N(Turns(made)).tolist() == [8, 4, 7]


def test_the_measurement_of_orders_counts_credited_turns_of_failed_rollouts_with_a_reference() -> None:
    # A success of three turns; a failure that repeats its first two, in the other order; a group without a success.
    said = {"a": "red apple", "b": "green pear", "c": "blue plum", "x": "grey stone"}
    letters = "abc" + "bax" + "xx"
    made = table(
        {"g": [[0, 0, 1], [0, 0, 0]], "h": [[0, 0]]},
        action=[said[letter] for letter in letters],
        next_observation=[f"{said[letter]} seen" for letter in letters],
        success=[True] * 3 + [False] * 5,
    )
    turns = Turns(made)
    found = measure(turns, "chronological", "lexical")
    # b does not match the first place; a does, and x nothing.
    assert found.credited_R.tolist() == [1]
    assert (found.visited_R.tolist(), found.turns_R.tolist()) == ([3], [3])
    np.testing.assert_allclose(found.credit_R, [1.0])
