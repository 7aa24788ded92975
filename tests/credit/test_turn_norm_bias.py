"""Where the policy decides when a rollout ends, normalising a credit by turn position hides what going on is worth.

The chain has two states. In the first the policy goes on with probability p or stops; going on leads to the second,
whose turn ends the rollout. The second turn earns a bonus just for being taken, and going on may cost something. All
groups of K rollouts are enumerated with their probabilities (by how many of them go on), so the expected gradients are
exact. Source of the observation: verl's issue 7244, on per-turn rewards that are normalised per turn index and then
summed over a rollout's later turns.

1. Without normalisation the expected gradient is the true one.
2. By position it is 0 where going on is free, and has the wrong sign where it costs less than it earns.
3. Over all turns of the group it has the right sign.
4. A turn's own credit alone, as in HAS's turn term, tells the first turn nothing of the second's bonus in either way.
5. MT-GRPO, which normalises turn rewards by position, does not see what going on costs; its unbiased form and TurnLOO,
   whose baselines are other rollouts alone, have the true expected gradient.
"""

from __future__ import annotations

from math import comb

import numpy as np
import pytest

from tests.credit.tables import numbers, table
from turncredit.credit import compute, resolve

BONUS = 1.0
CASES = [(size, p) for size in (2, 4, 8) for p in (0.2, 0.5, 0.8)]


def turn_advantages(goes_on: list[bool], cost: float, turn_norm: str) -> list[np.ndarray]:
    """The turn advantages of each rollout of one group."""
    credits = [[-cost, BONUS] if on else [0.0] for on in goes_on]
    progress = [credit for own in credits for credit in own]
    turns = table({"g": [[0.0] * len(own) for own in credits]})
    turns = {**turns, "progress_before": [0.0] * len(progress), "progress": progress}
    method = resolve({"base": "has_progressive", "params": {"alpha": 0.0, "turn_norm": turn_norm}})
    advantage_N = numbers(compute(turns, method))
    return np.split(advantage_N, np.cumsum([len(own) for own in credits])[:-1])


def expected_gradient(size: int, p: float, cost: float, turn_norm: str, *, own_credit_only: bool = False) -> float:
    """d/d logit(p) of the group's expected sum, as the estimator has it: exact, over all groups."""
    total = 0.0
    for count in range(size + 1):
        goes_on = [number < count for number in range(size)]
        probability = comb(size, count) * p**count * (1 - p) ** (size - count)
        for on, own in zip(goes_on, turn_advantages(goes_on, cost, turn_norm), strict=True):
            total += probability * (on - p) * (own[0] if own_credit_only else own.sum())
    return float(total)


@pytest.mark.parametrize(("size", "p"), CASES)
@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_without_normalisation_the_expected_gradient_is_the_true_one(size: int, p: float, cost: float) -> None:
    true = size * p * (1 - p) * (BONUS - cost)
    assert expected_gradient(size, p, cost, "none") == pytest.approx(true, abs=1e-12)


@pytest.mark.parametrize(("size", "p"), CASES)
def test_by_position_a_bonus_for_another_turn_is_invisible(size: int, p: float) -> None:
    assert expected_gradient(size, p, 0.0, "position") == 0.0


@pytest.mark.parametrize(("size", "p"), CASES)
def test_by_position_going_on_is_discouraged_though_it_earns_four_times_what_it_costs(size: int, p: float) -> None:
    assert expected_gradient(size, p, 0.25, "position") < -0.1


@pytest.mark.parametrize(("size", "p"), CASES)
@pytest.mark.parametrize("cost", [0.0, 0.25])
def test_over_all_turns_of_the_group_going_on_is_encouraged(size: int, p: float, cost: float) -> None:
    assert expected_gradient(size, p, cost, "group") > 0.05


@pytest.mark.parametrize(("size", "p"), CASES)
def test_its_own_credit_alone_tells_a_turn_nothing_of_what_it_leads_to(size: int, p: float) -> None:
    assert expected_gradient(size, p, 0.0, "none", own_credit_only=True) == 0.0
    assert expected_gradient(size, p, 0.0, "position", own_credit_only=True) == 0.0
    assert expected_gradient(size, p, 0.0, "group", own_credit_only=True) < 0


def gradient_on_rewards(name: str, size: int, p: float, cost: float) -> float:
    """As `expected_gradient`, of a method that sums up what follows: only the first turn's action is a choice."""
    total = 0.0
    for count in range(size + 1):
        goes_on = [number < count for number in range(size)]
        probability = comb(size, count) * p**count * (1 - p) ** (size - count)
        turns = table({"g": [[-cost, BONUS] if on else [0.0] for on in goes_on]})
        first = np.array(turns["turn"]) == 0
        made = numbers(compute(turns, resolve(name)))[first]
        total += probability * float(np.sum((np.array(goes_on) - p) * made))
    return total


@pytest.mark.parametrize(("size", "p"), CASES)
@pytest.mark.parametrize("cost", [0.0, 0.25, 3.0])
@pytest.mark.parametrize("name", ["mt_grpo_unbiased", "turn_loo"])
def test_with_the_other_rollouts_as_baselines_the_expected_gradient_is_the_true_one(
    name: str, size: int, p: float, cost: float
) -> None:
    true = size * p * (1 - p) * (BONUS - cost)
    assert gradient_on_rewards(name, size, p, cost) == pytest.approx(true, abs=1e-12)


@pytest.mark.parametrize(("size", "p"), CASES)
def test_mt_grpo_encourages_going_on_though_it_costs_three_times_what_it_earns(size: int, p: float) -> None:
    assert gradient_on_rewards("mt_grpo", size, p, 3.0) > 0.05
    assert gradient_on_rewards("mt_grpo", size, p, 3.0) == pytest.approx(gradient_on_rewards("mt_grpo", size, p, 0.0))
