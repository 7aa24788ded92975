"""An example of a method that declares what it reads: a judge's score, log-probabilities, and a model of its own.

In a configuration:  define: {judged_value: {credit: "examples/judged_value.py:METHOD", model: {epochs: 8}}}
"""

from __future__ import annotations

from typing import Any

import numpy as np

from turncredit.credit import Method, Part
from turncredit.credit.flat_grpo import flat_grpo
from turncredit.credit.models.protocol import ModelKind, ModelSettings
from turncredit.data.turns import Turns


def judged_value(turns: Turns, *, floor: float = 0.1) -> dict[str, np.ndarray]:
    """A = A_grpo w / mean_R(w) + V_{t+1} - V_t, with w = (floor + score) * surprise; V = R after the last turn."""
    score_N = turns.side_table("labels").numbers("score", nulls=True)
    score_N = np.nan_to_num(score_N, nan=0.5)  # null: the judge failed
    surprise_N = np.array([-np.mean(tokens) if len(tokens) else 0.0 for tokens in turns.column("response_logprobs")])
    weight_N = (floor + score_N) * surprise_N + 1e-6
    grpo_N = flat_grpo(turns)["advantage"] * weight_N / turns.mean_R(weight_N)[turns.rollout_N]
    value_N = turns.side_table("values").numbers("value", nulls=True)
    step_N = turns.next_N(value_N, turns.return_R) - value_N
    step_N = np.nan_to_num(step_N)  # null: the model of round 1 has not been trained
    return {"score": score_N, "surprise": surprise_N, "value": value_N, "advantage": grpo_N + step_N}


class Settings(ModelSettings):
    """`define.<method>.model`; the training reads `lr`, and by default `epochs` and `batch` (rollouts a step)."""

    lr: float = 1e-2
    epochs: int = 4
    batch: int = 16


class Outcome(ModelKind):
    """V: the rollout's return, by linear regression on the policy's hidden state. Torch is imported in functions."""

    def network(self, width: int, settings: Settings) -> Any:
        """From hidden states of `width` numbers."""
        from torch import nn

        return nn.Linear(width, 1)

    def outputs(self, network: Any, batch: Any) -> Any:
        """V (rollouts, turns), and no attention."""
        return network(batch.hidden)[..., 0], None

    def losses(self, network: Any, batch: Any, settings: Settings) -> Any:
        """The squared error of every turn that there is."""
        error = self.outputs(network, batch)[0] - batch.returns[:, None]
        return {"outcome": error[batch.present].square().mean()}


KIND = Outcome(Settings())
PART = Part(
    "judged_value", judged_value, "estimator", reads=("response_logprobs",), asks="score", model=__file__
)  # fmt: skip
METHOD = Method("judged_value", "a judge's score, surprise, and steps of a value", PART)
