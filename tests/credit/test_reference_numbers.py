"""Numbers read off public reference implementations; each test names its reference."""

from __future__ import annotations

import numpy as np
import pytest

from tests.credit.tables import numbers, side, table
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
    made = compute(AGENT, METHODS["gigpo"])
    np.testing.assert_allclose(numbers(made, "step_return"), [9.5, 10, 0, 0, 0, 10], atol=1e-12)
    assert numbers(made, "anchor_size").tolist() == [4, 1, 4, 4, 1, 4]


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


@pytest.mark.parametrize("name", ["gigpo", "hgpo", "step_grpo", "rebn", "proxmo"])
def test_verl_agent_invalid_penalty_stays_on_its_own_turn(name: str) -> None:
    turns = {**AGENT, "valid": [True, True, False, True, True, True]}
    plain = compute(turns, method(name))
    fined = compute(turns, method(name, shapers=["invalid_penalty"]))
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
    assert preset_params("verl", METHODS["gigpo"]) == {"singleton": "raw"}
    assert preset_params("trl", METHODS["gigpo"]) == {"eps": 1e-4}


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


def test_mt_grpos_code_for_two_turns() -> None:
    # Turn rewards 1, 0, 0: deviation .57735; outcomes 2, 1, 0: deviation 1. The first turn has both, the second one.
    turns = table({"g": [[1, 2], [0, 1], [0, 0]]})
    got = numbers(compute(turns, METHODS["mt_grpo"]))
    third = 1 / np.sqrt(3)
    np.testing.assert_allclose(got, [2 * third + 1, 1, -third, 0, -third - 1, -1], atol=1e-5)


def test_agile_rls_rule_for_turns_that_few_rollouts_reached() -> None:
    # At turn 1 only b and c have a turn before their last; at turn 2 c is alone. Outcomes 1, 0, 0.
    turns = table({"g": [[0, 1], [0, 1, 0], [0, 3, 5, 0]]})
    made = compute(turns, METHODS["mt_grpo"])
    half, outcome = 1 / np.sqrt(2), np.array([2, -1, -1]) / np.sqrt(3)
    want = [0, outcome[0], 0, -half, outcome[1], 0, half, 0, outcome[2]]
    np.testing.assert_allclose(numbers(made, "advantage_turn"), want, atol=1e-5)
    want = [outcome[0]] * 2 + [outcome[1] - half] * 2 + [outcome[1]] + [outcome[2] + half] * 2 + [outcome[2]] * 2
    np.testing.assert_allclose(numbers(made), want, atol=1e-5)


def test_mt_grpos_alpha_discounts_what_comes_later() -> None:
    turns = table({"g": [[1, 2], [0, 1], [0, 0]]})
    got = numbers(compute(turns, method("mt_grpo", alpha=0.5)))
    np.testing.assert_allclose(got[::2], [2 / np.sqrt(3) + 0.5, -1 / np.sqrt(3), -1 / np.sqrt(3) - 0.5], atol=1e-5)


def test_mt_grpo_on_progress_has_the_gains_and_then_the_return() -> None:
    turns = table({"g": [[0, 1], [0, 0]]}, progress_before=[0, 0.5, 0, 0], progress=[0.5, 1, 0, 0])
    for name in ("mt_grpo_progress", "mt_grpo_unbiased_progress"):
        assert numbers(compute(turns, METHODS[name]), "turn_reward").tolist() == [0.5, 1, 0, 0]
    assert numbers(compute(turns, METHODS["mt_grpo_unbiased_progress"])).tolist() == [1.5, 1, -1.5, -1]


@pytest.mark.parametrize("name", ["mt_grpo_progress", "mt_grpo_unbiased", "mt_grpo_unbiased_progress"])
def test_alpha_discounts_in_every_form_of_mt_grpo(name: str) -> None:
    turns = table({"g": [[0.25, 1], [0, 0]]}, progress_before=[0, 0.5, 0, 0], progress=[0.5, 1, 0, 0])
    made = compute(turns, method(name, alpha=0.5))
    added, summed = ("turn_reward", "step_return") if "unbiased" in name else ("advantage_turn", "advantage")
    one, two = numbers(made, added)[:2]
    assert numbers(made, summed)[:2] == pytest.approx([one + 0.5 * two, two])


def test_the_unbiased_form_by_hand_counts_ended_rollouts_with_nothing() -> None:
    turns = table({"g": [[0, 1], [1], [0, 0, 0]], "alone": [[0, 1]]})
    got = numbers(compute(turns, METHODS["mt_grpo_unbiased"]))
    compared = [0.5, 1, 0.5, -1, -0.5, 0]
    assert got.tolist() == [*compared, 0, 0]
    assert numbers(compute(turns, method("mt_grpo_unbiased", singleton="raw"))).tolist() == [*compared, 1, 1]
    alone = table({"alone": [[0, 1]]}, progress_before=[0, 0.5], progress=[0.5, 1])
    raw = compute(alone, method("mt_grpo_unbiased_progress", singleton="raw"))
    assert numbers(raw).tolist() == [1.5, 1]


def test_gems_return_normalisation() -> None:
    turns = table({"g": [[0, 1]], "h": [[0]]})
    assert numbers(compute(turns, method("rebn", gamma=0.5)), "step_return").tolist() == [0.5, 1, 0]
    np.testing.assert_allclose(numbers(compute(turns, method("rebn", gamma=0.5))), [0, 1, -1], atol=1e-8)
    population = numbers(compute(turns, method("rebn", gamma=0.5, ddof=0)))
    np.testing.assert_allclose(population, np.array([0, 1, -1]) * np.sqrt(1.5), atol=1e-8)


def test_agent_credit_benchs_turn_loo() -> None:
    # At turn 1 the rollout that won in one turn no longer counts; at turn 2 one rollout is left and has its return.
    got = compute(AGENT, METHODS["turn_loo"])
    assert numbers(got).tolist() == [5, 10, -10, -10, 0, 5]
    assert numbers(got, "peers").tolist() == [2, 1, 2, 1, 0, 2]
    late = table({"g": [[0], [0, 0, 7]]})
    assert numbers(compute(late, METHODS["turn_loo"])).tolist() == [-7, 7, 7, 7]
    assert numbers(compute(late, method("turn_loo", singleton="zero"))).tolist() == [-7, 7, 0, 0]


def test_prime_rls_turn_credit_by_hand() -> None:
    # gamma .5: gains 0 .25 .5 over 1 1.5 1.75 give 13/84, 13/42, 2/7, mean .25; the levels are 1.75 and .25 less 1.
    turns = table({"g": [[0, 0, 1], [0, 0]]}, progress=[0.25, 0.5, 1, 0, 0.25])
    got = numbers(compute(turns, method("turn_credit", gamma=0.5)))
    np.testing.assert_allclose(got, [0.75 - 2 / 21, 0.75 + 5 / 84, 0.75 + 1 / 28, -0.75 - 1 / 24, -0.75 + 1 / 24])
    alone = table({"g": [[0, 1]]}, progress=[0.25, 0.75])  # a return of 1, and .5 of progress after the first turn
    for singleton, level in (("zero", 0), ("raw", 1.5)):
        assert numbers(compute(alone, method("turn_credit", singleton=singleton)), "level").tolist() == [level] * 2
    longer = {**turns, "response_ids": [[1], [1], [1], [1], [1, 2, 3]]}
    doubled = compute(turns, method("turn_credit", gamma=0.5, beta=2.0))
    level = numbers(doubled, "level")
    np.testing.assert_allclose(numbers(doubled) - level, 2 * (got - level))
    weighted = numbers(compute(longer, method("turn_credit", gamma=0.5)))
    np.testing.assert_allclose(weighted[3:], [-0.75 - 1 / 16, -0.75 + 1 / 48])


def test_g2pos_code() -> None:
    # What `core_g2po.py` at b8ffaf5 returned for these rows; one malformed response is fined .1.
    turns = {
        **table({"g": [[0, 10], [0, 0, 0], [10]]}, observation=["s0", "s1", "s0", "s0", "s2", "s1"]),
        "well_formed": [True, True, True, False, True, True],
    }
    params = {"weighting": "row", "singleton": "raw", "shapers": ["invalid_penalty"], "column": "well_formed"}
    both = compute(turns, method("g2po", **params))
    want = [3.8553340, 0.8333426, -1.3773317, -2.9975913, -1.1470959, 0.8333426]
    np.testing.assert_allclose(numbers(both), want, atol=2e-5)
    np.testing.assert_allclose(numbers(both, "value"), [3.0083333, 9.5, 3.0083333, 3.0083333, 0, 9.5], atol=1e-7)
    means = numbers(compute(turns, method("g2po", norm="mean", **params)))
    np.testing.assert_allclose(means, [16.125, 4.7694445, -6.8583333, -13.075, -5.7305556, 4.7694445], atol=1e-5)


def test_in_g2po_a_failure_leads_to_nothing_whatever_it_was_paid() -> None:
    turns = table({"g": [[0, 10], [0, 3]]}, observation=["s0", "s1", "s0", "s1"], success=[True, True, False, False])
    got = numbers(compute(turns, method("g2po", gamma=0.5)), "value_next")
    assert got.tolist() == [(5 + 1.5) / 2, 10, (5 + 1.5) / 2, 0]  # gamma R, one turn before the end


def test_gagpo_by_hand() -> None:
    # gamma .5: G is .5 1 | 0, so V(s0) = .25 and V(s1) = 1; the errors are .25, 0 and -.25, with a deviation of .25.
    turns = table({"g": [[0, 1], [0]]}, observation=["s0", "s1", "s0"])
    got = compute(turns, method("gagpo", gamma=0.5))
    assert numbers(got, "value").tolist() == [0.25, 1, 0.25]
    assert numbers(got, "td_error").tolist() == [0.25, 0, -0.25]
    np.testing.assert_allclose(numbers(got), [1, 0, -1], atol=1e-5)
    # A fine of .1 on the first turn: its G is .4 and V(s0) .2; it keeps the error of .2 after its fine.
    fined = compute({**turns, "valid": [False, True, True]}, method("gagpo", gamma=0.5, shapers=["invalid_penalty"]))
    np.testing.assert_allclose(numbers(fined, "value"), [0.2, 1, 0.2])
    np.testing.assert_allclose(numbers(fined, "td_error"), [0.2, 0, -0.2], atol=1e-12)


def test_graphgpos_recipe_by_hand() -> None:
    # s0 -> s1 -> won; s0 -> s2 -> s1, which is lost there. From s0 one turn leads to distance 1, the other to 2.
    turns = table({"g": [[0, 10], [0, 0]]}, observation=["s0", "s1", "s0", "s2"])
    turns["next_observation"], turns["success"] = ["s1", "", "s2", "s1"], [True, True, False, False]
    got = compute(turns, METHODS["graphgpo"])
    assert numbers(got, "graph_distance").tolist() == [1, 0, 2, 1]
    np.testing.assert_allclose(numbers(got, "graph_reward"), [1, 10, 0.1, 1])
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(numbers(got), [2 * half, half, -2 * half, -half], atol=1e-5)
    # Alone in its state a turn has nothing to be compared with, also where a rollout alone has its return.
    raw = compute(turns, method("graphgpo", singleton="raw"))
    np.testing.assert_allclose(numbers(raw, "advantage_graph"), [half, 0, -half, 0], atol=1e-5)
    # A failure's return is no success's, however large.
    paid = {**turns, "reward": [0, 10, 0, 12]}
    np.testing.assert_allclose(numbers(compute(paid, METHODS["graphgpo"]), "graph_reward"), [1, 10, 0.1, 1])
    # Lost where nobody has been: no way from s2, so its distance is one more than that of s0, the furthest that has.
    turns["next_observation"][3] = "s3"
    assert numbers(compute(turns, METHODS["graphgpo"]), "graph_distance").tolist() == [1, 0, 3, 3]


def test_agent_evolvers_adca_code() -> None:
    # What `_build_decouple` and `suffix_sum_on_steps` at a5a8db8 returned for these flags, outcomes 10, 0 and 10.
    turns = table({"g": [[0, 10], [0, 0, 0], [10]]})
    roles = side(turns, role=["decisive", None, "exploration", "regression", "no_progress", "N"])
    got = numbers(compute(turns, METHODS["adca_grpo"], {"labels": roles}))
    want = [0.9307137, 0.8189102, -1.4812956, -1.5930990, -1.5036563, 0.6176642]
    np.testing.assert_allclose(got, want, atol=1e-6)


def test_proxmo_by_hand() -> None:
    # Two texts that share one word of two: idf 1 and ln(3/2) + 1, so their likeness is 1 / (1 + 1.405465^2).
    turns = table({"g": [[1], [0]]}, observation=["A red mug!", "a Blue mug"])
    got = compute(turns, METHODS["proxmo"])
    like = 1 / (1 + (np.log(1.5) + 1) ** 2)
    own = 1 / (1 + np.exp((like - 1) / 0.1))
    np.testing.assert_allclose(numbers(got, "advantage_step"), [1 - own, own - 1])
    up, down = (1 + 0.1 * (1 / (1 + np.exp(sign * 0.5**4)) - 0.5) for sign in (-1, 1))
    np.testing.assert_allclose(numbers(got, "weight"), [up, down])
    np.testing.assert_allclose(numbers(got), [0.5 * up + 1 - own, -0.5 * down + own - 1])
    # With one word kept, the one that stands most often, the texts are the same.
    np.testing.assert_allclose(numbers(compute(turns, method("proxmo", max_words=1)), "advantage_step"), [0.5, -0.5])
    wordless = {**turns, "observation": ["1", "?"]}
    assert numbers(compute(wordless, METHODS["proxmo"]), "advantage_step").tolist() == [0, 0]


def test_proxmo_keeps_the_words_that_stand_most_often_counted_in_every_turn() -> None:
    # With one word kept, turns that have it are alike, and others are like every turn to the same degree.
    for texts, rewards, want in (
        (["mug mug mug cup", "cup pan"], [0, 1], [0, 0.5]),  # three times `mug`, in one text
        (["mug mug", "cup", "cup", "cup"], [0, 1, 2, 3], [-1.5, -1, 0, 1]),  # three turns with `cup`
        (["a zip bag", "bag", "zip"], [0, 1, 2], [-0.5, 0.5, 1]),  # `bag` and `zip` twice: the first by the alphabet
    ):
        turns = table({"g": [[reward] for reward in rewards]}, observation=texts, success=[True] * len(texts))
        got = compute(turns, method("proxmo", max_words=1, tau=0.01))
        np.testing.assert_allclose(numbers(got, "advantage_step"), want, atol=1e-12)


def test_proxmo_alone_in_its_group_has_no_rollout_term_or_its_return() -> None:
    turns = table({"g": [[1]]}, observation=["a mug"])
    for singleton, want in (("zero", 0), ("raw", 1)):  # the weight of a success where all succeed is 1
        assert numbers(compute(turns, method("proxmo", singleton=singleton)), "advantage_rollout").tolist() == [want]


def test_returns_from_a_state_that_are_equal_but_for_rounding_give_no_credit_in_gagpo() -> None:
    turns = table({"g": [[0.1, 0.2], [0.3, 0]]}, observation=["s0", "s1", "s0", "s2"])
    assert 0.1 + 0.2 != 0.3
    assert not numbers(compute(turns, method("gagpo", gamma=1.0, eps=0.0))).any()


def test_turn_ppos_setting_by_hand() -> None:
    # The errors are .99 * .5 - .5 and 1 - .5; the first turn's sum adds .99 * .9 of the second.
    turns = table({"g": [[0, 1], [0]]})
    got = compute(turns, METHODS["turn_ppo"], {"values": side(turns, value=[0.5, 0.5, 0.5])})
    np.testing.assert_allclose(numbers(got, "advantage_raw"), [0.4405, 0.5, -0.5])
    outer = compute(turns, METHODS["bi_level_gae"], {"values": side(turns, value=[0.5, 0.5, 0.5])})
    np.testing.assert_allclose(numbers(outer, "advantage_raw"), [0.45, 0.5, -0.5])


@pytest.mark.parametrize(
    ("params", "low", "high"),
    [
        (
            {},
            [-0.468755, -0.736615, 2.477703, 0.334825, 0.066965, -0.468755, -0.736615, -0.468755],
            [1.055733, 0, 1.323034, 0, -0.395641, -1.069292, -0.913834, 0],
        ),
        (
            {"gamma": 0.9, "lam": 0.8, "lam_seg": 0.7},
            [-0.51585, -0.854381, 2.458932, 0.250898, 0.219319, -0.475428, -0.671221, -0.412269],
            [0.370801, 0, 1.726669, 0, -0.177335, -1.015804, -0.904331, 0],
        ),
    ],
)
def test_hipers_code(params: dict, low: list[float], high: list[float]) -> None:
    # What `compute_hae_advantage` at 9d3c118 returned for these rows, with one value for both levels.
    turns = table({"g": [[0, 0, 0.5, 0, 1], [0, 0, 0]]}, subgoal_index=[0, 0, 1, 1, 2, 0, 1, 1])
    values = {"values": side(turns, value=[0.5, 0.6, 0.4, 0.7, 0.9, 0.3, 0.2, 0.1])}
    got = compute(turns, method("hiper", **params), values)
    np.testing.assert_allclose(numbers(got, "advantage_low"), low, atol=2e-6)
    np.testing.assert_allclose(numbers(got, "advantage_high"), high, atol=2e-6)
    np.testing.assert_allclose(numbers(got), np.array(low) + high, atol=4e-6)


def test_hipers_critic_learns_the_rest_of_the_segment_and_the_value_of_the_next_one() -> None:
    # With gamma and lambda 1, and not made relative: .4 follows the first segment, .5 + .9 and .9 the second.
    turns = table({"g": [[0, 0, 0.5, 0, 1], [0, 0, 0]]}, subgoal_index=[0, 0, 1, 1, 2, 0, 1, 1])
    values = {"values": side(turns, value=[0.5, 0.6, 0.4, 0.7, 0.9, 0.3, 0.2, 0.1])}
    got = numbers(compute(turns, METHODS["hiper"], values), "value_target")
    np.testing.assert_allclose(got, [0.4, 0.4, 1.4, 0.9, 1, 0.2, 0, 0], atol=1e-12)


def test_tree_grpos_code_by_hand() -> None:
    # Leaves a and its fork have 1 and 0, b, alone in its tree, 1. In the task (1, -2, 1) / sqrt(3), in a's tree
    # (1, -1) / sqrt(2). The first turn of a is on two paths.
    turns = table({"g": [[0, 1], [1], [0]]}, parent_rollout_id=["", "", "", "g0"], parent_turn=[-1, -1, -1, 1])
    got = compute(turns, METHODS["tree_grpo"])
    third, half = 1 / np.sqrt(3), 1 / np.sqrt(2)
    want = [-third, third + half, third, -2 * third - half]
    np.testing.assert_allclose(numbers(got), want, atol=1e-5)
    assert numbers(got, "leaves").tolist() == [2, 1, 1, 1]
    raw = numbers(compute(turns, method("tree_grpo", singleton="raw")))
    np.testing.assert_allclose(raw, np.add(want, [0, 0, 1, 0]), atol=1e-5)


def test_a_leafs_outcome_counts_from_the_start_through_every_fork() -> None:
    # The fork of a leaves its third state, after 2 + 3; the fork of that fork its second state, after 2 + 3 + 5.
    turns = table(
        {"g": [[2, 3, 0], [5, 0], [7]]},
        parent_rollout_id=["", "", "", "g0", "g0", "g1"],
        parent_turn=[-1, -1, -1, 2, 2, 1],
    )
    got = compute(turns, METHODS["tree_grpo"])
    assert numbers(got, "outcome").tolist() == [5, 5, 5, 10, 10, 17]
    assert numbers(got, "leaves").tolist() == [3, 3, 1, 2, 1, 1]


def test_delta_beliefs_code_by_hand() -> None:
    # Rewards 1 + .1 * 2, 1, 1 and 0, 0: a loss of belief costs nothing, and the ended rollout counts with 0.
    turns = table({"g": [[0, 0, 1], [0, 0]]})
    logprobs = {"logprobs": side(turns, logprob=[-3, -1, -1, -3, -4], tokens=[2] * 5, sampled=[0.0] * 5)}
    got = compute(turns, METHODS["delta_belief"], logprobs)
    np.testing.assert_allclose(numbers(got, "step_reward"), [1.2, 1, 1, 0, 0])
    half = 1 / np.sqrt(2)
    np.testing.assert_allclose(numbers(got), [half, half, half, -half, -half], atol=1e-5)
    alone = table({"g": [[0, 1]]})
    logprobs = {"logprobs": side(alone, logprob=[-3, -1], tokens=[2] * 2, sampled=[0.0] * 2)}
    raw = compute(alone, method("delta_belief", singleton="raw"), logprobs)
    np.testing.assert_allclose(numbers(raw), [1.2, 1], atol=1e-5)
    assert not numbers(compute(alone, METHODS["delta_belief"], logprobs)).any()


def test_igpos_last_turn_has_the_whole_return_and_the_others_what_the_answer_gained() -> None:
    turns = table({"g": [[0.5, 1], [0, 0]]})
    logprobs = {"logprobs": side(turns, logprob=np.log([0.2, 0.6, 0.5, 0.4]), tokens=[1] * 4, sampled=[0.0] * 4)}
    np.testing.assert_allclose(numbers(compute(turns, METHODS["igpo"], logprobs), "step_reward"), [0.4, 1.5, -0.1, 0])


def test_the_authors_codes_istar_has_no_turn_term_in_a_group_of_one() -> None:
    turns = table({"g": [[0, 0, 1]]})
    logprobs = {"logprobs": side(turns, logprob=[-1.0, -3, -2], tokens=[1] * 3, sampled=[-2.0] * 3)}
    assert not numbers(compute(turns, METHODS["istar_code"], logprobs), "advantage_turn").any()


def test_lotapos_formula_by_hand() -> None:
    # Two rollouts whose answers have -1 at the end; without a turn -1.2 and -.9, and -1.4. The median size is .2.
    turns = table({"g": [[0, 0, 1], [0, 0]]})
    logprobs = {"logprobs": side(turns, logprob=[-2.4, -1.8, -2, -2.8, -2], tokens=[2] * 5, sampled=[0.0] * 5)}
    got = compute(turns, METHODS["lotapo"], logprobs)
    np.testing.assert_allclose(numbers(got, "gain"), [0.2, -0.1, np.nan, 0.4, np.nan])
    relative = [0.540338, -1.401991, 0, 0.861653, 0]
    np.testing.assert_allclose(numbers(got, "gain_relative"), relative, atol=1e-6)
    np.testing.assert_allclose(numbers(got), np.add(relative, [1, 1, 1, -1, -1]), atol=1e-5)


def test_lotapos_scale_is_the_median_of_the_gains_that_there_are() -> None:
    turns = table({"g": [[0, 0, 0, 1]]})
    logprobs = {"logprobs": side(turns, logprob=[-1.2, -1, -1.4, -1], tokens=[1] * 4, sampled=[0.0] * 4)}
    got = numbers(compute(turns, METHODS["lotapo"], logprobs), "gain_relative")
    bounded = np.tanh(np.array([0.2, 0, 0.4]) / 0.3)  # without the 0 in the middle, the median of .2 and .4
    np.testing.assert_allclose(got, [*(bounded - bounded.mean()) / bounded.std(), 0], atol=1e-5)


def test_lotapos_gate_drops_a_gain_that_is_merely_smaller_than_the_others() -> None:
    turns = table({"g": [[0, 1], [0, 1]]})
    logprobs = {"logprobs": side(turns, logprob=[-1.2, -1, -1.4, -1], tokens=[1] * 4, sampled=[0.0] * 4)}
    got = compute(turns, METHODS["lotapo"], logprobs)
    np.testing.assert_allclose(numbers(got, "gain_relative"), [-1, 0, 1, 0], atol=1e-4)
    np.testing.assert_allclose(numbers(got), [0, 0, 1, 0], atol=1e-4)
    nothing = {"logprobs": side(turns, logprob=[-1.0] * 4, tokens=[1] * 4, sampled=[0.0] * 4)}
    assert not numbers(compute(turns, METHODS["lotapo"], nothing)).any()
