"""The critic of PPO and MGR: V on the policy's hidden state.

Departure from verl: there the critic is a language model of its own, trained whole, with a value for each token.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from turncredit.credit.models.protocol import ModelKind, ModelSettings
from turncredit.errors import UserError

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts


class CriticSettings(ModelSettings):
    """The critic of PPO and MGR: a value head trained on the last round only. `value_clip` is verl's cliprange."""

    head: Literal["linear", "mlp"] = "mlp"
    hidden: int = Field(64, ge=4)
    max_turns: int = Field(50, ge=1)
    lr: float = Field(2e-3, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(16, ge=1, description="rollouts per optimiser step")
    value_clip: float = Field(0.5, gt=0)


class Critic(ModelKind):
    """A value head on the targets that the method's credits give. It starts at V = 0, so it is always ready."""

    last_round_only = True
    learns_from_credits = True

    def network(self, width: int, settings: CriticSettings) -> Any:
        """`networks.Critic`."""
        from turncredit.credit.models import networks

        return networks.Critic(width, head=settings.head, hidden=settings.hidden, max_turns=settings.max_turns)

    def ready(self, steps: int, settings: CriticSettings) -> bool:
        """Also before its first training."""
        return True

    def losses(self, network: Any, batch: Rollouts, settings: CriticSettings) -> dict[str, torch.Tensor]:
        """1/2 max((V - G)^2, (clip(V, V_old +- value_clip) - G)^2), over turns.

        As in PPO and verl 0.9.1's `compute_value_loss`. G are the credits' `value_target`, advantage + value before
        any whitening: the policy is given whitened advantages, the critic returns as they are.
        """
        import torch

        if batch.old is None or batch.target is None:
            raise UserError(
                "a critic needs the credits' columns value and value_target, which these rounds lack; delete their "
                "credits and run again"
            )
        value = network(batch)
        near = batch.old + (value - batch.old).clamp(-settings.value_clip, settings.value_clip)
        error = torch.maximum((value - batch.target).square(), (near - batch.target).square())
        return {"value": 0.5 * error[batch.present].mean()}


KIND = Critic(CriticSettings())
