"""Rollout-level estimators against numbers read off verl 0.9.1 (see docs/methods)."""

from __future__ import annotations

import numpy as np
import pytest

from turncredit.credit import METHODS, compute, resolve


def one_turn_table(groups: list[list[float]]) -> dict[str, list]:
    table: dict[str, list] = {"group_id": [], "rollout_id": [], "turn": [], "reward": []}
    for g, rewards in enumerate(groups):
        for i, reward in enumerate(rewards):
            for name, value in zip(table, (g, f"{g}-{i}", 0, reward), strict=True):
                table[name].append(value)
    return table


VERL = one_turn_table([[1.0, 0.0, 1.0], [1.0, 0.0], [5.0]])


def test_verl_grpo_numbers_with_a_group_of_one_at_zero() -> None:
    got = compute(VERL, METHODS["flat_grpo"])["advantage"].to_numpy()
    np.testing.assert_allclose(got, [0.577349, -1.154699, 0.577349, 0.707106, -0.707106, 0.0], atol=1e-6)


def test_verl_grpo_numbers_with_verls_rule_for_a_group_of_one() -> None:
    got = compute(VERL, resolve({"base": "flat_grpo", "params": {"singleton": "raw"}}))["advantage"].to_numpy()
    assert got[-1] == pytest.approx(4.999995, abs=1e-6)


def test_verl_rloo_numbers() -> None:
    got = compute(VERL, METHODS["rloo"])["advantage"].to_numpy()
    np.testing.assert_allclose(got, [0.5, -1.0, 0.5, 1.0, -1.0, 0.0], atol=1e-12)
