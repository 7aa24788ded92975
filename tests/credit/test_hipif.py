"""HIPIF's penalties, one at a time."""

from __future__ import annotations

import numpy as np
import pytest

from tests.credit.tables import numbers, table
from turncredit.credit import METHODS, compute, resolve

# One rollout that wins and one that fails, six turns each, two subgoals each.
PLAIN = table(
    {"g": [[0, 0, 0, 0, 0, 10], [0] * 6]},
    subgoal=["find the mug", "find the mug", "find the mug", "heat the mug", "heat the mug", "heat the mug"] * 2,
    subgoal_index=[0, 0, 0, 1, 1, 1] * 2,
    well_formed=[True] * 12,
    observation=["a mug is on the shelf"] * 12,
    action=[f"a{k}" for k in range(12)],
    next_observation=[f"o{k}" for k in range(12)],
    success=[True] * 6 + [False] * 6,
)


def changed(column: str, **places: object) -> dict[str, list]:
    values = list(PLAIN[column])
    for place, value in places.items():
        values[int(place.removeprefix("at"))] = value
    return {**PLAIN, column: values}


def hit(made: dict[str, list], column: str) -> list[int]:
    result = numbers(compute(made, METHODS["hipif"]), column)
    assert set(result.tolist()) <= {0.0, -0.1}
    return np.flatnonzero(result).tolist()


def test_good_rollouts_are_not_fined() -> None:
    made = compute(PLAIN, METHODS["hipif"])
    assert not numbers(made, "score_bonus").any()
    np.testing.assert_allclose(
        numbers(made), [5 / (10 * np.sqrt(3 / 11) + 1e-6)] * 6 + [-5 / (10 * np.sqrt(3 / 11) + 1e-6)] * 6
    )


def test_a_subgoal_that_names_nothing_seen_is_fined_where_it_starts() -> None:
    assert hit(changed("subgoal", at3="slay the dragon", at4="slay the dragon"), "r_grounding") == [3]


def test_an_object_of_two_letters_grounds_a_subgoal_once_it_has_been_seen() -> None:
    made = changed("subgoal", at0="find a cd", at3="put the cd in the safe")
    made["observation"] = ["a mug on a desk 1"] * 2 + ["on the desk 1, you see a cd 3 and a mug 1"] * 10
    assert hit(made, "r_grounding") == [0]


def test_what_the_task_names_grounds_a_subgoal_before_it_is_seen() -> None:
    made = changed("subgoal", at0="find a spoon", at6="find a spoon")
    assert hit(made, "r_grounding") == [0, 6]
    goals = ["put a spoon in the drawer"] * 6 + ["put a fork in the drawer"] * 6
    assert hit({**made, "goal": goals}, "r_grounding") == [6]


@pytest.mark.parametrize(
    "words", ["go to it", "be at it", "do so, if we are up", "is it on or off", "an as by he me my us"]
)
def test_function_words_of_two_letters_ground_nothing(words: str) -> None:
    made = changed("subgoal", at0=words)
    made["observation"] = [f"{words} a mug"] * 12
    assert hit(made, "r_grounding") == [0]


def test_function_words_and_verbs_ground_nothing() -> None:
    made = changed("subgoal", at0="look for it")
    made["observation"] = ["look, it is the mug"] * 12
    assert hit(made, "r_grounding") == [0]


def test_an_empty_subgoal_is_none_and_what_comes_into_sight_later_counts_later_only() -> None:
    assert hit(changed("subgoal", at0=""), "r_grounding") == []
    made = changed("subgoal", at0="find a spoon", at3="find a spoon")
    for seen_at in (1, 2, 3):
        made["observation"] = ["a spoon" if turn == seen_at else "a mug" for turn in range(12)]
        assert hit(made, "r_grounding") == [0]


def test_a_subgoal_that_ended_in_a_failure_is_fined_in_successes_only() -> None:
    assert hit(changed("next_observation", at2="Nothing happens."), "r_termination") == [2]
    assert hit(changed("next_observation", at8="Nothing happens."), "r_termination") == []
    assert hit(changed("next_observation", at1="Nothing happens."), "r_termination") == []
    assert hit(changed("next_observation", at5="Nothing happens."), "r_termination") == []


def test_turns_before_the_first_subgoal_end_no_subgoal() -> None:
    """The agent's turns have no subgoal until a response names one."""
    failed = {**PLAIN, **changed("next_observation", at2="Nothing happens.")}
    assert hit(failed, "r_termination") == [2]
    assert hit({**failed, "subgoal": ["", "", "", *PLAIN["subgoal"][3:]]}, "r_termination") == []


def test_the_third_equal_step_within_a_subgoal_is_fined() -> None:
    same = {"action": ["x"] * 12, "next_observation": ["y"] * 12}
    assert hit({**PLAIN, **same}, "r_execution") == [2, 5, 8, 11]
    one_span = {**same, "subgoal_index": [0] * 12, "subgoal": ["find the mug"] * 12}
    assert hit({**PLAIN, **one_span}, "r_execution") == [2, 3, 4, 5, 8, 9, 10, 11]
    assert hit({**PLAIN, "action": ["x"] * 12}, "r_execution") == []


def test_malformed_output_is_fined() -> None:
    assert hit(changed("well_formed", at4=False), "r_format") == [4]


def test_penalties_add_up_and_enter_both_terms_of_gigpo() -> None:
    made = changed("well_formed", at2=False)
    made["next_observation"] = changed("next_observation", at2="Nothing happens.")["next_observation"]
    assert numbers(compute(made, METHODS["hipif"]), "score_bonus")[2] == pytest.approx(-0.2)
    both = compute(made, METHODS["hipif_gigpo"])
    plain = compute(made, METHODS["gigpo"])
    assert (numbers(both, "step_return") - numbers(plain, "step_return"))[2] == pytest.approx(-0.2)
    assert numbers(both, "advantage_rollout")[2] < numbers(both, "advantage_rollout")[1]


def test_the_penalties_of_two_shapers_add_up() -> None:
    made = {**changed("well_formed", at4=False), "valid": [place not in (4, 7) for place in range(12)]}
    both = compute(made, resolve({"base": "flat_grpo", "params": {"shapers": ["hipif", "invalid_penalty"]}}))
    for column in ("score_bonus", "step_bonus"):
        np.testing.assert_allclose(numbers(both, column), [0, 0, 0, 0, -0.2, 0, 0, -0.1, 0, 0, 0, 0])


def test_scores_are_normalised_over_all_decision_steps_of_the_group() -> None:
    made = {**changed("well_formed", at4=False)}
    score = np.array([10, 10, 10, 10, 9.9, 10, *[0] * 6])
    want = (score - score.mean()) / (score.std(ddof=1) + 1e-6)
    np.testing.assert_allclose(numbers(compute(made, METHODS["hipif"])), want)
    assert resolve("hipif").params()["weighting"] == "row"
