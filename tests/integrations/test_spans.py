"""Turns as runs of a mask."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from turncredit.bridges.spans import method_of, spans
from turncredit.errors import UserError

MASKS = hnp.arrays(bool, st.tuples(st.integers(1, 5), st.integers(1, 12)))


def test_a_turn_is_a_run_of_sampled_tokens() -> None:
    own = spans(np.array([[0, 1, 1, 0, 1], [0, 0, 0, 0, 0], [1, 1, 1, 1, 1]]))
    assert list(zip(own.row_N, own.number_N, own.start_N, own.end_N, strict=True)) == [
        (0, 0, 1, 3),
        (0, 1, 4, 5),
        (2, 0, 0, 5),
    ]
    assert own.turns_B.tolist() == [2, 0, 1]
    assert own.spread(np.array([1.0, 2.0, 3.0])).tolist() == [[0, 1, 1, 0, 2], [0] * 5, [3] * 5]


@given(MASKS, st.integers(0, 2**32 - 1))
def test_sums_and_numbers_spread_lose_nothing(mask_BL: np.ndarray, seed: int) -> None:
    own = spans(mask_BL)
    x_BL = np.random.default_rng(seed).normal(size=mask_BL.shape)
    per_sequence = np.bincount(own.row_N, own.sums(x_BL), len(mask_BL))
    assert per_sequence == pytest.approx(np.where(mask_BL.any(axis=1), x_BL.sum(axis=1), 0.0))
    assert own.turns_B.sum() == len(own.row_N)
    number_N = np.arange(1.0, len(own.row_N) + 1)
    assert ((own.spread(number_N) > 0) == mask_BL).all()


@pytest.mark.parametrize(
    ("name", "columns", "message"),
    [
        ("triage", None, "here: triage needs labels, which a trainer does not have"),
        ("gigpo", [], "here: gigpo reads 'observation', which these turns do not have"),
        ("gigp", None, r"unknown method 'gigp' \(did you mean 'gigpo'\?\)"),
    ],
)
def test_a_method_that_a_trainer_cannot_run_is_refused(name: str, columns: list[str] | None, message: str) -> None:
    with pytest.raises(UserError, match=message):
        method_of(name, {}, "trl", "here", columns)


def test_the_columns_that_a_method_reads_follow_its_parameters() -> None:
    params = {"shapers": ["invalid_penalty"], "column": "well_formed"}
    assert method_of("flat_grpo", params, None, "here", ["well_formed"]).reads == ("well_formed",)
    with pytest.raises(UserError, match="here: flat_grpo reads 'well_formed', which these turns do not have"):
        method_of("flat_grpo", params, None, "here", ["valid"])


def test_parameters_go_before_the_presets_conventions() -> None:
    assert method_of("flat_grpo", {}, "trl", "here").params()["eps"] == 1e-4
    assert method_of("flat_grpo", {"eps": 0.5}, "trl", "here").params()["eps"] == 0.5


def test_a_presets_conventions_are_those_of_the_composed_parts() -> None:
    composed = method_of("step_grpo", {"estimator": "gigpo", "singleton": "zero"}, "verl_agent", "here")
    assert dict(composed.estimator.params) == {"weighting": "row", "singleton": "zero"}
    assert dict(method_of("flat_grpo", {"estimator": "hgpo"}, "verl_agent", "here").estimator.params) == {}
