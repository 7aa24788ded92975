"""TRIAGE's shared-backbone value baseline (appendix D): a linear head on discounted returns, and its EMA copy."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pydantic import Field

from turncredit.credit.models.protocol import ModelKind, ModelSettings

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts


class ValueHeadSettings(ModelSettings):
    """TRIAGE's linear value head (appendix D).

    Of the value head's numbers, TRIAGE's text as we have it keeps only the 10 steps of warm-up: gamma .99 is ours (the
    number is lost in our copy of the text), and so are the learning rate, the EMA's rate and the clip bound.

    Departures: the paper has a gamma of its own for Search-QA, ours is .99 everywhere. With `hidden_policy: sft` the
    backbone is frozen at the SFT policy, where the paper's is shared with the policy (`current` reads the one that
    played). The paper counts the warm-up in GRPO steps, which are rounds here; ours counts the head's own.
    """

    gamma: float = Field(0.99, ge=0, le=1)
    lr: float = Field(1e-3, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(16, ge=1, description="rollouts per optimiser step")
    ema: float = Field(0.05, gt=0, le=1, description="share of the way that the target copy moves at each step")
    warmup_steps: int = Field(10, ge=0, description="optimiser steps before the head is used")


class ValueHead(ModelKind):
    """A linear head on the frozen backbone; its moving average gives the values, once it has warmed up."""

    last_round_only = True

    def network(self, width: int, settings: ValueHeadSettings) -> Any:
        """`networks.ValueHead`."""
        from turncredit.credit.models import networks

        return networks.ValueHead(width)

    def ready(self, steps: int, settings: ValueHeadSettings) -> bool:
        """After the warm-up."""
        return steps >= settings.warmup_steps

    def after_step(self, network: Any, settings: ValueHeadSettings) -> None:
        """Let the copy follow the head."""
        network.follow(settings.ema)

    def losses(self, network: Any, batch: Rollouts, settings: ValueHeadSettings) -> dict[str, torch.Tensor]:
        """Mean squared error of the head against the discounted return from each turn on, over turns (eq. 11)."""
        value = network.head(batch.hidden)[..., 0]
        error = (value - returns_to_go(batch.reward, settings.gamma)).square()
        return {"value": error[batch.present].mean()}


def returns_to_go(reward_BT: torch.Tensor, gamma: float) -> torch.Tensor:
    """G_t = r_t + gamma G_{t+1} (B, T); rewards are 0 after a rollout's last turn."""
    out = reward_BT.clone()
    for turn in range(out.shape[1] - 2, -1, -1):
        out[:, turn] += gamma * out[:, turn + 1]
    return out


KIND = ValueHead(ValueHeadSettings())
