"""Our own causal value of a turn, trained on the outcome alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from turncredit.credit.models.protocol import ModelKind, ModelSettings
from turncredit.credit.models.value_head import returns_to_go
from turncredit.errors import UserError

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts


#: Returns this far below 0, in units of the largest reward, are 0: float32 sums of rewards that are taken back.
ROUNDING = 1e-6


class TurnValueSettings(ModelSettings):
    """The causal value of a turn. `first_steps` is for the first training, which starts from nothing."""

    head: Literal["linear", "mlp", "causal_transformer"] = "mlp"
    hidden: int = Field(64, ge=4)
    layers: int = Field(1, ge=1, description="of the causal transformer")
    heads: int = Field(4, ge=1, description="of the causal transformer")
    dropout: float = Field(0.1, ge=0, lt=1)
    max_turns: int = Field(50, ge=1)
    film: bool = False
    ensemble: int = Field(1, ge=1, description="networks whose predictions are averaged")
    lr: float = Field(2e-3, gt=0)
    steps: int = Field(60, ge=1)
    first_steps: int = Field(120, ge=1)
    batch: int = Field(64, ge=1, description="rollouts per optimiser step")
    half_life: float = Field(4.0, gt=0, description="rounds after which a rollout counts half")

    @model_validator(mode="after")
    def _heads_divide(self) -> TurnValueSettings:
        if self.head == "causal_transformer" and self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class TurnValue(ModelKind):
    """V = scale * sigmoid of a network on h_t, or the mean of an ensemble of them."""

    def network(self, width: int, settings: TurnValueSettings) -> Any:
        """`networks.TurnValue`."""
        from turncredit.credit.models import networks

        names = {"head", "hidden", "max_turns", "dropout", "film", "layers", "heads", "ensemble"}
        return networks.TurnValue(width, **settings.model_dump(include=names))

    def before_training(self, network: Any, replay: Rollouts, settings: TurnValueSettings) -> Rollouts:
        """Widen the range of V to the largest return in the replay. Raises UserError for returns below 0."""
        check_returns(replay, "turn_value")
        widen(network, still_to_come(replay.reward, 1.0))
        return replay

    def minibatches(
        self, sizes: Sequence[int], settings: TurnValueSettings, steps: int, rng: np.random.Generator
    ) -> Iterator[np.ndarray]:
        """A fixed number of minibatches, drawn with replacement in proportion to recency."""
        from turncredit.credit.models import replay

        count = settings.first_steps if steps == 0 else settings.steps
        return replay.draws(replay.recency(sizes, settings.half_life), count, settings.batch, rng)

    def losses(self, network: Any, batch: Rollouts, settings: TurnValueSettings) -> dict[str, torch.Tensor]:
        """Binary cross-entropy of every turn's value with the return from it on (shares of `scale`), over all turns.

        With a reward at the end only that is the rollout's outcome; a negative one counts as 0 (`still_to_come`). The
        mean over an ensemble's members; each turn counts once, so long rollouts count more.
        """
        return {"outcome": cross_entropy(network, batch, still_to_come(batch.reward, 1.0))}


def cross_entropy(network: Any, batch: Rollouts, target_BT: torch.Tensor) -> torch.Tensor:
    """Binary cross-entropy of all turns' values with their targets, as shares of `scale`: an ensemble's mean."""
    import torch
    from torch.nn import functional

    share_M = (target_BT / network.scale)[batch.present]
    parts = [
        functional.binary_cross_entropy_with_logits(member(batch)[batch.present], share_M) for member in network.members
    ]
    return torch.stack(parts).mean()


def still_to_come(reward_BT: torch.Tensor, gamma: float) -> torch.Tensor:
    """The return from each turn on (B, T), 0 where it is below: a mistake may take back what was earned before it."""
    return returns_to_go(reward_BT, gamma).clamp(min=0)


def check_returns(replay: Rollouts, name: str) -> None:
    """Raise UserError for a rollout whose return is below 0 by more than rounding."""
    lowest = float(replay.returns.min())
    if lowest < -ROUNDING * max(1.0, float(replay.reward.abs().max())):
        raise UserError(
            f"{name} predicts returns from 0 up, but a rollout's return is {lowest:g}; "
            "use a method with a critic (ppo) for rewards that can be negative"
        )


def widen(network: Any, targets: torch.Tensor) -> None:
    """Extend the range of a `networks.TurnValue` to the largest of its targets."""
    network.scale.fill_(max(float(network.scale), float(targets.max())))


KIND = TurnValue(TurnValueSettings())
