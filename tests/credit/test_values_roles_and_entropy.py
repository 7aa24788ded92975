"""Methods that read a critic, a judge's roles, or the policy's entropy."""

from __future__ import annotations

import numpy as np
import pytest

from tests.credit.tables import numbers, side, table
from turncredit.credit import METHODS, compute, resolve
from turncredit.errors import UserError

TWO = table({"g": [[0, 1], [0, 0, 0]]})
FLAT = numbers(compute(TWO, METHODS["flat_grpo"]))
VALUES = {"values": side(TWO, value=[0.5, 0.75, 0.5, 0.25, 0.0])}
NOTHING = {"values": side(TWO, value=[None] * 5)}


def method(name: str, **params: object):
    return resolve({"base": name, "params": params})


def z(x: np.ndarray) -> np.ndarray:
    return (x - x.mean()) / np.sqrt(x.var(ddof=1) + 1e-8)


def test_gae_by_hand() -> None:
    made = compute(TWO, method("ppo", gamma=0.5, lam=0.5, normaliser=None), VALUES)
    d = np.array([0.5 * 0.75 - 0.5, 1 - 0.75, 0.5 * 0.25 - 0.5, -0.25, 0.0])
    want = [d[0] + 0.25 * d[1], d[1], d[2] + 0.25 * (d[3] + 0.25 * d[4]), d[3] + 0.25 * d[4], d[4]]
    assert numbers(made) == pytest.approx(want)
    assert numbers(made, "value_target") == pytest.approx(np.add(want, [0.5, 0.75, 0.5, 0.25, 0]))


def test_with_lambda_one_gae_is_return_minus_value() -> None:
    made = compute(TWO, method("ppo", normaliser=None), VALUES)
    assert numbers(made) == pytest.approx([0.5, 0.25, -0.5, -0.25, 0])


def test_ppo_whitens_the_policys_advantage_and_not_the_critics_target() -> None:
    made = compute(TWO, METHODS["ppo"], VALUES)
    assert numbers(made) == pytest.approx(z(np.array([0.5, 0.25, -0.5, -0.25, 0])))
    assert numbers(made, "value_target") == pytest.approx([1, 1, 0, 0, 0])


def test_turn_value_scales_gae_to_unit_size_without_centring_it() -> None:
    raw = numbers(compute(TWO, method("ppo", lam=0.9, normaliser=None), VALUES))
    got = numbers(compute(TWO, METHODS["turn_value"], VALUES))
    assert got == pytest.approx(raw / np.sqrt(np.mean(raw**2)))
    assert np.sqrt(np.mean(got**2)) == pytest.approx(1)


@pytest.mark.parametrize("name", ["turn_value", "agentprm", "agentprm_td"])
def test_a_method_that_waits_for_its_model_is_flat_grpo_until_then(name: str) -> None:
    got = compute(TWO, method(name, normaliser=None), NOTHING)
    assert numbers(got).tobytes() == FLAT.tobytes()
    assert got["value"].null_count == 5


def test_agentprm_compares_q_with_that_of_all_turns_of_the_group_and_ignores_the_outcome() -> None:
    q = np.array([0.5, 0.75, 0.5, 0.25, 0.0])
    assert numbers(compute(TWO, METHODS["agentprm"], VALUES)) == pytest.approx((q - q.mean()) / (q.std(ddof=1) + 1e-6))
    lost = {**TWO, "reward": [0.0] * 5}
    np.testing.assert_array_equal(
        numbers(compute(lost, METHODS["agentprm"], VALUES)), numbers(compute(TWO, METHODS["agentprm"], VALUES))
    )


def test_agentprm_by_position_compares_turns_of_the_same_number() -> None:
    made = numbers(compute(TWO, method("agentprm", turn_norm="position"), VALUES))
    one = 0.25 / (np.sqrt(0.125) + 1e-6)  # .75 and .25 at position 1; equal at 0, alone at 2
    assert made == pytest.approx([0, one, 0, -one, 0])


#: Q_0 is .5 in one rollout and .3 in the other, .4 before them; R is 1 and 0.
STEPS = {"values": side(TWO, value=[0.5, 0.9, 0.3, 0.1, 0.7])}


def test_agentprm_td_adds_up_the_steps_of_q_and_ends_at_the_return() -> None:
    made = compute(TWO, method("agentprm_td", lam=0.5, normaliser=None), STEPS)
    d = [0.5 - 0.4, 1 - 0.5, 0.3 - 0.4, 0.1 - 0.3, 0 - 0.1]
    assert numbers(made, "step") == pytest.approx(d)
    want = [d[0] + 0.5 * d[1], d[1], d[2] + 0.5 * (d[3] + 0.5 * d[4]), d[3] + 0.5 * d[4], d[4]]
    assert numbers(made) == pytest.approx(want)


def test_with_lambda_one_agentprm_td_is_the_return_less_what_was_expected_before_the_action() -> None:
    made = compute(TWO, method("agentprm_td", lam=1.0, normaliser=None), STEPS)
    assert numbers(made) == pytest.approx([1 - 0.4, 1 - 0.5, -0.4, -0.3, -0.1])


def test_with_lambda_zero_agentprm_td_is_the_step_alone() -> None:
    made = compute(TWO, method("agentprm_td", lam=0.0, normaliser=None), STEPS)
    np.testing.assert_array_equal(numbers(made), numbers(made, "step"))


def test_a_table_of_values_with_some_missing_is_damaged() -> None:
    values = {"values": side(TWO, value=[0.5, None, 0.5, 0.25, 0.0])}
    with pytest.raises(UserError, match="which has 1 null values"):
        compute(TWO, METHODS["turn_value"], values)


@pytest.mark.parametrize("name", ["ppo", "mgr", "has_turnrd", "has_turnrd_film"])
def test_methods_that_need_values_say_so_when_all_are_null(name: str) -> None:
    turns = {**TWO, "valid": [True] * 5, "action": ["a"] * 5}
    with pytest.raises(UserError, match=f"^{name} needs values, but every 'value' of the side table 'values' is null"):
        compute(turns, METHODS[name], NOTHING)


def test_value_baseline_adds_clipped_increments() -> None:
    made = compute(TWO, method("value_baseline", clip=0.2, normaliser=None), VALUES)
    increments = [0.2, 0.2, -0.2, -0.2, 0.0]  # .25, 1 - .75, -.25, -.25, 0 - 0
    assert numbers(made, "credit") == pytest.approx(increments)
    assert numbers(made) == pytest.approx(FLAT + 0.2 * np.array(increments))
    warming = compute(TWO, method("value_baseline", normaliser=None), NOTHING)
    np.testing.assert_array_equal(numbers(warming), FLAT)


@pytest.mark.parametrize("name", ["value_baseline", "turn_value"])
def test_a_turn_that_earns_what_was_expected_of_it_gets_no_credit(name: str) -> None:
    turns = table({"g": [[0.25, 0.5, 0.25], [0.25, 0.5, 0.25]]})
    values = {"values": side(turns, value=2 * [1.0, 0.75, 0.25])}  # what is still to come
    assert not numbers(compute(turns, method(name, normaliser=None), values)).any()


def test_triage_adds_the_credit_of_the_role_and_whitens() -> None:
    labels = {"labels": side(TWO, role=["decisive", "E", "no progress", "Regression", None])}
    made = compute(TWO, METHODS["triage"], labels)
    credit = np.array([1, 0.5, -0.1, -0.5, 0])
    assert numbers(made, "credit").tolist() == credit.tolist()
    assert numbers(made) == pytest.approx(z(FLAT + 0.2 * credit))


def test_triages_ablations_leave_one_role_out() -> None:
    labels = {"labels": side(TWO, role=["D", "E", "no-progress", "R", "R"])}
    for name, credit in (
        ("triage_no_regression", [1, 0.5, -0.1, 0, 0]),
        ("triage_no_exploration", [1, 0, -0.1, -0.5, -0.5]),
    ):
        assert numbers(compute(TWO, METHODS[name], labels), "credit").tolist() == credit


def test_an_unknown_role_is_told_with_the_nearest_one() -> None:
    with pytest.raises(UserError, match=r"unknown role 'decisiv'.*did you mean 'decisive'"):
        compute(TWO, METHODS["triage"], {"labels": side(TWO, role=["decisiv", "E", "N", "R", "R"])})


def test_the_scalar_comparator_adds_the_judges_score() -> None:
    labels = {"labels": side(TWO, score=[1, 0, None, 0.5, 0])}
    made = compute(TWO, method("triage_scalar", lam=0.4), labels)
    assert numbers(made) == pytest.approx(z(FLAT + 0.4 * np.array([1, 0, 0, 0.5, 0])))


@pytest.mark.parametrize(
    ("name", "column", "good"), [("triage", "role", "D"), ("triage_scalar", "score", 1), ("has_judge", "score", 1)]
)
def test_labels_that_are_all_missing_are_of_another_question(name: str, column: str, good: object) -> None:
    compute(TWO, METHODS[name], {"labels": side(TWO, **{column: [None, None, None, None, good]})})
    with pytest.raises(UserError, match=rf"{name} needs labels of `--ask \w+`, but every '{column}' is null"):
        compute(TWO, METHODS[name], {"labels": side(TWO, **{column: [None] * 5})})


@pytest.mark.parametrize(("name", "off", "scale"), [("triage_scalar", -1.5, "-1 to 1"), ("has_judge", -0.5, "0 to 1")])
def test_a_score_off_the_scale_of_its_question_is_refused(name: str, off: float, scale: str) -> None:
    labels = {"labels": side(TWO, score=[0.0, off, 7.0, None, 1.0])}
    with pytest.raises(UserError, match=rf"the score is {off} at group 'g', .* \(2 such turns\); .* from {scale}"):
        compute(TWO, METHODS[name], labels)


def test_empg_scales_by_certainty_and_looks_one_turn_ahead() -> None:
    turns = {**TWO, "entropy": [1.0, 3.0, 2.0, 1.0, 3.0]}
    sure = np.exp(-np.array([0, 1, 0.5, 0, 1]))
    ahead = np.array([sure[1], 0, sure[3], sure[4], 0])
    want = FLAT * sure / sure.mean() + 0.1 * ahead  # zeta as in its authors' code
    assert numbers(compute(turns, METHODS["empg"])) == pytest.approx(want - want.mean(), abs=1e-6)


def test_empgs_two_temperatures_are_of_the_scale_and_of_the_bonus() -> None:
    turns = {**TWO, "entropy": [1.0, 3.0, 2.0, 1.0, 3.0]}
    got = compute(turns, method("empg", k=2.0, k_future=0.5))
    sure = np.exp([0, -2, -1, 0, -2])
    assert numbers(got, "scale") == pytest.approx(sure / sure.mean(), abs=1e-6)
    assert numbers(got, "clarity") == pytest.approx([np.exp(-0.5), 0, 1, np.exp(-0.5), 0], abs=1e-6)


def test_a_response_without_tokens_is_no_sure_one_for_empg() -> None:
    turns = {**TWO, "response_logprobs": [[-1.0], [-3.0, -3.0], [-2.0], [], [-3.0]]}
    got = compute(turns, METHODS["empg"])
    assert got["entropy"].to_pylist() == [1, 3, 2, None, 3]
    sure = np.exp(-np.array([0, 1, 0.5, 1]))
    g = np.insert(sure / sure.mean(), 3, 1.0)
    want = FLAT * g + 0.1 * np.array([np.exp(-1), 0, 0, np.exp(-1), 0])
    assert numbers(got) == pytest.approx(want - want.mean(), abs=1e-6)
    with pytest.raises(UserError, match="no response has a token"):
        compute({**TWO, "response_logprobs": [[]] * 5}, METHODS["empg"])


def test_empg_estimates_entropy_from_the_sampled_tokens() -> None:
    turns = {**TWO, "response_logprobs": [[-1.0], [-2.0, -4.0], [-2.0], [-0.5, -1.5], [-3.0]]}
    assert numbers(compute(turns, METHODS["empg"]), "entropy").tolist() == [1, 3, 2, 1, 3]
    same = {**TWO, "entropy": [1.0, 3.0, 2.0, 1.0, 3.0]}
    np.testing.assert_array_equal(numbers(compute(turns, METHODS["empg"])), numbers(compute(same, METHODS["empg"])))


def test_the_invalid_penalty_stays_on_its_own_turn_in_ppo_as_in_verl_agents_rows() -> None:
    turns = {**TWO, "valid": [True, False, True, True, True]}
    plain = compute(turns, method("ppo", normaliser=None), VALUES)
    fined = compute(turns, method("ppo", normaliser=None, shapers=["invalid_penalty"]), VALUES)
    for column in ("advantage", "value_target"):
        np.testing.assert_allclose(numbers(fined, column) - numbers(plain, column), [0, -0.1, 0, 0, 0], atol=1e-12)


def test_a_rollout_alone_in_its_group_has_nothing_in_rloo_or_each_turns_own_score() -> None:
    turns = table({"g": [[0, 1]], "h": [[1]]}, valid=[True, False, False])
    for weighting, zero, raw in (
        ("rollout", [0, 0, 0], [1, 0.9, 0.9]),
        ("row", [0.1, -0.1, 0], [0.1, -0.1, 0.9]),  # rows of one rollout are compared with each other
    ):
        for singleton, want in (("zero", zero), ("raw", raw)):
            chosen = method("rloo", shapers=["invalid_penalty"], weighting=weighting, singleton=singleton)
            assert numbers(compute(turns, chosen)) == pytest.approx(want)


def test_rloos_bonus_shifts_its_own_turn_against_the_other_rollouts() -> None:
    turns = {**TWO, "valid": [True, False, True, True, True]}
    got = numbers(compute(turns, method("rloo", shapers=["invalid_penalty"])))
    # Rollout 0 scores 1 and .9 against 0; rollout 1 scores 0 against the mean .95.
    assert got == pytest.approx([1, 0.9, -0.95, -0.95, -0.95])
