"""MGR: every branch of its fusion by hand."""

from __future__ import annotations

import numpy as np
import pytest

from tests.credit.tables import numbers, side, table
from turncredit.credit import compute, resolve
from turncredit.credit.mgr import retain_probability


def mgr(name: str = "mgr_no_critic", **params: object):
    return resolve({"base": name, "params": params})


# Two rollouts that win and two that fail: R_global is 4/3 (1 - 1/2) = 2/3 and -2/3.
FOUR = table(
    {"g": [[0, 0, 1], [0, 0, 1], [0, 0, 0], [0, 0, 0]]},
    valid=[True, False, True, True, True, True, True, False, True, False, False, True],
    action=["a", "b", "c", "a", "b", "c", "a", "b", "c", "a", "b", "c"],
)
LOCAL = [1, -1.1, 1.1, 1, 1, 1, 1, -1.1, 1.1, -1, -1, 1.1]


def test_local_reward_rises_on_recovery_and_falls_on_a_slip() -> None:
    assert numbers(compute(FOUR, mgr()), "local") == pytest.approx(LOCAL)


def test_with_the_gate_open_validity_alone_gives_the_sign() -> None:
    got = numbers(compute(FOUR, mgr(gate="keep")))
    assert got == pytest.approx(np.array(LOCAL) * 2 / 3)


def test_a_closed_gate_turns_valid_turns_of_failed_rollouts_negative() -> None:
    made = compute(FOUR, mgr(decay=2.0))  # completion 1/2: the gate stays open with probability 0
    assert set(numbers(made, "gate")[6:]) == {-1.0}
    want = [*LOCAL[:6], *(-abs(value) for value in LOCAL[6:])]
    assert numbers(made) == pytest.approx(np.array(want) * 2 / 3)


def test_sign_conflicts_are_damped_and_agreements_are_not() -> None:
    got = numbers(compute(FOUR, mgr(gate="keep", damping=0.5)))
    conflict = [False, True, False, False, False, False, True, False, True, False, False, True]
    want = [value * (0.5 if it else 1.0) for value, it in zip(LOCAL, conflict, strict=True)]
    assert got == pytest.approx(np.array(want) * 2 / 3)


def test_the_gates_validity_is_that_of_the_batchs_turns() -> None:
    # Two of twelve turns are valid, though in two of three rollouts all are: too few for any gate to close.
    made = table({"g": [[0] * 10, [0], [1]]}, valid=[False] * 10 + [True, True], action=["a"] * 12)
    assert numbers(compute(made, mgr(decay=3.0)), "gate").tolist() == [1] * 11 + [0]


def test_there_is_one_gate_for_each_failed_rollout() -> None:
    made = table(
        {f"g{k}": [[0, 0, 1], [0, 0, 0], [0, 0, 0]] for k in range(40)}, valid=[True] * 360, action=["a"] * 360
    )
    gate = numbers(compute(made, mgr()), "gate").reshape(40, 3, 3)
    assert (gate[:, 0] == 0).all()
    assert (gate[:, 1:] == gate[:, 1:, :1]).all()
    assert {-1.0, 1.0} == set(gate[:, 1:, 0].ravel())  # completion 1/3: half of them stay open
    again = numbers(compute(made, mgr(), seed=1), "gate").reshape(40, 3, 3)
    assert (again != gate).any()


def test_repeating_an_action_costs_more_each_time_past_the_free_ones() -> None:
    made = table({"g": [[0] * 6, [0, 1]]}, valid=[True] * 8, action=["a", "a", "b", "a", "a", "a", "x", "y"])
    got = numbers(compute(made, mgr()), "local")
    assert got[:6].tolist() == [1, 1, 1, 0.5, 0, -0.5]
    assert numbers(compute(made, mgr(repetition=0)), "local")[:6].tolist() == [1] * 6


def test_invalid_repeats_are_neither_counted_nor_fined_again() -> None:
    made = table({"g": [[0] * 5, [1]]}, valid=[True, False, False, True, True, True], action=["a"] * 5 + ["x"])
    assert numbers(compute(made, mgr()), "local")[:5].tolist() == pytest.approx([1, -1.1, -1, 1.1, 0.5])


def test_a_repeat_that_has_turned_negative_is_punished_in_successes_and_failures_alike() -> None:
    rewards = [[0, 0, 0, 0, 1], [0, 0, 0, 0, 0]]
    made = table({"g": rewards}, valid=[True] * 10, action=["a"] * 10)
    got = numbers(compute(made, mgr(gate="keep", repetition=1.0)))
    assert got.tolist() == [1, 1, 0, -1, -2, 1, 1, 0, -1, -2]


def test_a_group_without_contrast_or_of_one_gives_nothing() -> None:
    made = table({"g": [[0, 0], [0]], "h": [[1]]}, valid=[True, False, True, False], action=["a"] * 4)
    assert numbers(compute(made, mgr())).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("completion", "validity", "chance"),
    [(0.5, 0.3, 1), (0.05, 0.9, 1), (0.1, 0.4, 0.85), (0.5, 0.9, 0.25), (0.6, 0.9, 0.1), (1, 1, 0.1)],
)
def test_the_gates_schedule(completion: float, validity: float, chance: float) -> None:
    assert retain_probability(completion, validity, decay=1.5, floor=0.1) == pytest.approx(chance)


def test_validity_is_read_from_the_observation_where_the_table_has_no_valid_column() -> None:
    answers = {
        "You open the drawer 1.": 1,
        "Nothing happens.": -1,
        " NOTHING HAPPENS ": -1,
        "In it, nothing happens to be here.": 1,
        " ": -1,
        "Execution failed. Traceback: x": -1,
        "You see nothing.": 1,
    }
    made = table({"g": [[0] * 7]}, action=["a"] * 7, next_observation=list(answers))
    assert numbers(compute(made, mgr()), "validity").tolist() == list(answers.values())


# A critic's values of the turns of FOUR; and a critic that has not learned anything yet.
VALUES = [0.5, 0.2, 0.1] * 4
UNTRAINED = [0.0] * 12


def with_critic(name: str, values: list[float], **params: object):
    return compute(FOUR, mgr(name, gate="keep", normaliser=None, **params), {"values": side(FOUR, value=values)})


def test_with_a_critic_each_turn_is_a_sample_of_its_own() -> None:
    made = with_critic("mgr", VALUES)
    reward = np.array(LOCAL) * 2 / 3
    assert numbers(made) == pytest.approx(reward - np.array(VALUES))
    assert numbers(made, "value_target") == pytest.approx(reward)


def test_good_turns_of_a_success_do_not_make_up_for_the_invalid_turn_before_them() -> None:
    """The slip at turn 1 of the first rollout is followed by a recovery and by success."""
    within, across = (numbers(with_critic(name, UNTRAINED)) for name in ("mgr", "mgr_across_turns"))
    assert within[1] == pytest.approx(-1.1 * 2 / 3)
    assert across[1] == pytest.approx((-1.1 + 0.95 * 1.1) * 2 / 3)
    twice = table({"g": [[0, 0, 0, 1], [0]]}, valid=[False, True, True, True, True], action=list("abcde"))
    values = {"values": side(twice, value=[0.0] * 5)}
    within, across = (
        numbers(compute(twice, mgr(name, normaliser=None), values))[0] for name in ("mgr", "mgr_across_turns")
    )
    assert within < 0 < across


def test_across_turns_gae_crosses_them() -> None:
    made = with_critic("mgr_across_turns", VALUES, lam=1.0)
    values = np.array(VALUES).reshape(4, 3)
    reward = np.array(LOCAL).reshape(4, 3) * 2 / 3
    want = np.cumsum(reward[:, ::-1], axis=1)[:, ::-1] - values
    assert numbers(made) == pytest.approx(want.ravel())
    assert numbers(made, "value_target") == pytest.approx((want + values).ravel())


def test_with_gamma_and_lambda_zero_across_turns_is_within_them() -> None:
    one, two = with_critic("mgr", VALUES), with_critic("mgr_across_turns", VALUES, gamma=0.0, lam=0.0)
    for column in ("advantage", "value_target"):
        assert numbers(one, column) == pytest.approx(numbers(two, column))


def test_with_a_critic_that_knows_nothing_the_advantage_is_the_reward() -> None:
    without = numbers(compute(FOUR, mgr(gate="keep")))
    assert numbers(with_critic("mgr", UNTRAINED)).tobytes() == without.tobytes()
