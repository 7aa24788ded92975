"""The invalid-action penalty, as a step-reward shaper."""

from __future__ import annotations

from typing import Literal

import numpy as np

from turncredit.credit.parts.compose import Part
from turncredit.credit.parts.conventions import NonNegative
from turncredit.data.turns import Turns


def invalid_penalty(
    turns: Turns, *, penalty: NonNegative = 0.1, column: Literal["valid", "well_formed"] = "valid"
) -> dict[str, np.ndarray]:
    """-penalty on a turn with an invalid action: on its own score and its own step return, not on other turns'.

    An action is invalid if `column` is false: `valid`, the response is malformed or the environment refused the action;
    `well_formed`, the response is malformed, which is all that verl-agent asks (`is_action_valid` comes from its
    projection of the text, before the environment has seen the action).

    Source: verl-agent, which subtracts 0.1 from the row's reward and from its step return after discounting, with
    rewards of 10 and 0. The penalty is in the reward's units: 0.01 is the same on rewards of 1 and 0. Departure: the
    default also fines refused actions.

    Reads `column`. Returns `score_bonus` and `step_bonus` (each N).
    """
    bonus_N = np.where(turns.truths(column, "invalid_penalty"), 0.0, -penalty)
    return {"score_bonus": bonus_N, "step_bonus": bonus_N.copy()}


INVALID_PENALTY = Part(
    "invalid_penalty",
    invalid_penalty,
    "shaper",
    reads=lambda params: (params["column"],),
    adds=("score_bonus", "step_bonus"),
)

PARTS = (INVALID_PENALTY,)
