"""Numbers read off public reference implementations; each test names its reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.credit.tables import numbers, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.credit.parts.visit_order import balanced_partition

# Six one-turn rollouts in three groups: what verl's estimators were run on.
VERL = table({"a": [[1], [0], [1]], "b": [[1], [0]], "c": [[5]]})

# One group with rollouts of two, three and one turns that end with 10, 0 and 10 (rows a a b b b c).
AGENT = table(
    {"g": [[0, 10], [0, 0, 0], [10]]},
    observation=["s0", "s1", "s0", "s0", "s2", "s0"],
)


def method(name: str, **params: object):
    return resolve({"base": name, "params": params})


def test_verl_grpo() -> None:
    got = numbers(compute(VERL, METHODS["flat_grpo"]))
    np.testing.assert_allclose(got, [0.577349, -1.154699, 0.577349, 0.707106, -0.707106, 0], atol=1e-6)


def test_verl_grpo_with_its_rule_for_a_group_of_one() -> None:
    got = numbers(compute(VERL, method("flat_grpo", singleton="raw")))
    assert got[-1] == pytest.approx(4.999995, abs=1e-6)
    np.testing.assert_array_equal(got[:-1], numbers(compute(VERL, METHODS["flat_grpo"]))[:-1])


def test_verl_rloo() -> None:
    np.testing.assert_allclose(numbers(compute(VERL, METHODS["rloo"])), [0.5, -1, 0.5, 1, -1, 0], atol=1e-12)


def test_verl_agents_rloo_counts_rows() -> None:
    assert numbers(compute(AGENT, method("rloo", weighting="row"))).tolist() == [6, 6, -6, -6, -6, 6]
    fined = {**AGENT, "valid": [False, *[True] * 5]}
    got = numbers(compute(fined, method("rloo", weighting="row", shapers=["invalid_penalty"], penalty=0.6)))
    # The mean of six scores falls by .1 and the fined one by .6; each is then 6/5 of its distance.
    assert got == pytest.approx([5.4, 6.12, -5.88, -5.88, -5.88, 6.12])


def test_verl_agents_reinforce_pp_counts_rows_in_the_groups_mean_too() -> None:
    turns = table({"g": [[1], [0, 0, 0]], "h": [[1], [0]]})
    made = compute(turns, method("reinforce_pp", weighting="row"))
    assert numbers(made, "centred").tolist() == [0.75, -0.25, -0.25, -0.25, 0.5, -0.5]
    assert numbers(made) == pytest.approx([1.5, -0.5, -0.5, -0.5, 1, -1], abs=1e-6)  # the variance is 1.25 / 5


def test_verl_agent_step_returns() -> None:
    got = numbers(compute(AGENT, METHODS["gigpo"]), "step_return")
    np.testing.assert_allclose(got, [9.5, 10, 0, 0, 0, 10], atol=1e-12)


def test_verl_agent_gigpo_mean() -> None:
    got = numbers(compute(AGENT, method("gigpo", norm="mean", weighting="row")))
    np.testing.assert_allclose(got, [9.625, 5, -9.875, -9.875, -5, 10.125], atol=1e-6)


def test_verl_agent_gigpo_mean_std() -> None:
    got = numbers(compute(AGENT, method("gigpo", norm="mean_std", weighting="row")))
    np.testing.assert_allclose(got, [1.733945, 0.912871, -1.778327, -1.778327, -0.912871, 1.82271], atol=1e-6)


def test_verl_agent_episode_part_weighted_by_rows_and_by_rollouts() -> None:
    by_row = numbers(compute(AGENT, method("gigpo", norm="mean", weighting="row")), "advantage_rollout")
    np.testing.assert_allclose(by_row, [5, 5, -5, -5, -5, 5], atol=1e-12)
    by_rollout = numbers(compute(AGENT, method("gigpo", norm="mean")), "advantage_rollout")
    np.testing.assert_allclose(by_rollout, [10 / 3] * 2 + [-20 / 3] * 3 + [10 / 3], atol=1e-4)


def test_verl_agent_invalid_penalty_stays_on_its_own_turn() -> None:
    turns = {**AGENT, "valid": [True, True, False, True, True, True]}
    plain = compute(turns, method("gigpo"))
    fined = compute(turns, method("gigpo", shapers=["invalid_penalty"]))
    change = numbers(fined, "step_return") - numbers(plain, "step_return")
    np.testing.assert_allclose(change, [0, 0, -0.1, 0, 0, 0], atol=1e-12)


def test_verl_agents_invalid_actions_are_malformed_responses() -> None:
    made = {**AGENT, "valid": [False, False, *[True] * 4], "well_formed": [False, *[True] * 5]}
    malformed = compute(made, method("gigpo", shapers=["invalid_penalty"], column="well_formed"))
    assert numbers(malformed, "score_bonus").tolist() == [-0.1, 0, 0, 0, 0, 0]
    refused_too = compute(made, method("gigpo", shapers=["invalid_penalty"]))
    assert numbers(refused_too, "score_bonus").tolist() == [-0.1, -0.1, 0, 0, 0, 0]


@pytest.mark.parametrize(("weighting", "deviations"), [("rollout", np.sqrt(159 * 7 / 8)), ("row", 159 / np.sqrt(160))])
def test_one_fined_turn_among_equal_returns_is_as_far_off_as_its_rarity_says(weighting: str, deviations: float) -> None:
    # 8 rollouts of 20 turns, each score weighs 1/160: mean -f/160, square (1/160)(159/160) f^2, times 8/7 or 160/159.
    turns = table({"g": [[0] * 20 for _ in range(8)]}, valid=[*[False], *[True] * 159])
    fined = numbers(compute(turns, method("flat_grpo", shapers=["invalid_penalty"], weighting=weighting)))
    assert fined[0] == pytest.approx(-deviations, rel=1e-3)
    np.testing.assert_allclose(fined[1:], deviations / 159, rtol=1e-3)


def test_verl_agent_preset_sets_its_conventions() -> None:
    from turncredit.credit.parts.lookup import preset_params

    assert preset_params("verl_agent", METHODS["gigpo"]) == {"weighting": "row", "singleton": "raw"}


def test_hgpo_recipe_by_hand() -> None:
    # One group; s0 is seen by four turns, (s0 s1) and (s0 s2) by one each, so only level 1 counts.
    # Population statistics of 9.5, 0, 0, 10: mean 4.875, deviation 4.878204; the weight 2 / (2 + 1e-6) is almost 1.
    got = numbers(compute(AGENT, METHODS["hgpo"]))
    deviation = np.std([9.5, 0, 0, 10])
    np.testing.assert_allclose(got, np.array([4.625, 0, -4.875, -4.875, 0, 5.125]) / deviation, atol=1e-5)


def test_hgpo_weighs_longer_histories_more() -> None:
    turns = table({"g": [[0, 1], [0, 0]]}, observation=["x", "y", "x", "y"])
    made = compute(turns, method("hgpo", gamma=1.0))
    # Level 1 and level 2 of the second turns are both +-1; weights 2/5 and 3/5 sum to 1 but for the epsilon.
    np.testing.assert_allclose(numbers(made), [1, 1, -1, -1], atol=1e-5)
    np.testing.assert_allclose(numbers(made, "advantage_2"), [0, 1, 0, -1], atol=1e-5)


def test_verl_balanced_partition_by_hand() -> None:
    # Sorted and dealt in twos: (1 2) (3 4) (5 8). The spreads are 1, 1, 3; 8|5 takes 4|3 crosswise, 11|9; then 2|1.
    parts = balanced_partition(np.array([5, 4, 3, 8, 2, 1]), 2)
    assert [part.tolist() for part in parts] == [[2, 3, 5], [0, 1, 4]]
    assert sorted(np.concatenate(parts).tolist()) == list(range(6))


def test_verl_whitening_has_its_epsilon_inside_the_root() -> None:
    turns = table({"a": [[1e-4], [0.0]]})
    got = numbers(compute(turns, METHODS["reinforce_pp"]))
    np.testing.assert_allclose(got, np.array([0.5e-4, -0.5e-4]) / np.sqrt(0.5e-8 + 1e-8), rtol=1e-9)
