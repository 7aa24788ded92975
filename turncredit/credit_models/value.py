"""Values of a turn from the policy's hidden state: the causal `turn_value`, a critic, TRIAGE's linear head.

All read h_t alone (or, for the causal transformer, h_1..t), so a value never knows how its rollout goes on.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

from turncredit.credit_models.replay import Rollouts
from turncredit.credit_models.settings import CriticSettings, TurnValueSettings, ValueHeadSettings
from turncredit.credit_models.turnrd import FiLM, goals
from turncredit.errors import UserError


class ValueNet(nn.Module):
    """LayerNorm, an embedding of the turn's number (from zero), FiLM on the goal if asked for, and a head.

    head   `linear`; `mlp` (one hidden layer of GELUs); `causal_transformer` (turns attend to the past)
    """

    def __init__(
        self,
        width: int,
        *,
        head: str,
        hidden: int,
        max_turns: int,
        dropout: float = 0.0,
        film: bool = False,
        layers: int = 1,
        heads: int = 1,
    ):
        super().__init__()
        self.max_turns = max_turns
        self.norm = nn.LayerNorm(width)
        self.turn = nn.Parameter(torch.zeros(max_turns, width))
        self.encoder = None
        if head == "linear":
            self.head = nn.Linear(width, 1)
        elif head == "mlp":
            self.head = nn.Sequential(nn.Linear(width, hidden), nn.GELU(), nn.Dropout(dropout), nn.Linear(hidden, 1))
        else:
            self.project = nn.Linear(width, hidden)
            layer = nn.TransformerEncoderLayer(
                hidden, heads, 2 * hidden, dropout, activation="gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(hidden), enable_nested_tensor=False)
            self.head = nn.Linear(hidden, 1)
        self.film = FiLM(width, width) if film else None

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """One number for each turn (B, T); what stands where there is no turn means nothing."""
        turns = rollouts.hidden.shape[1]
        if turns > self.max_turns:
            raise UserError(f"a rollout has {turns} turns, but the credit model's max_turns is {self.max_turns}")
        x = self.norm(rollouts.hidden) + self.turn[:turns]
        if self.film is not None:
            x = self.film(x, goals(rollouts))
        if self.encoder is not None:
            ahead = torch.ones(turns, turns, dtype=torch.bool, device=x.device).triu(1)
            x = self.encoder(self.project(x), mask=ahead)
        return self.head(x)[..., 0]


class TurnValue(nn.Module):
    """V = scale * the mean of the members' sigmoids. `scale`, the largest return seen or 1, makes returns shares."""

    def __init__(self, width: int, settings: TurnValueSettings):
        super().__init__()
        chosen = settings.model_dump(include={"head", "hidden", "max_turns", "dropout", "film", "layers", "heads"})
        self.members = nn.ModuleList(ValueNet(width, **chosen) for _ in range(settings.ensemble))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """V (B, T)."""
        return self.scale * torch.stack([member(rollouts).sigmoid() for member in self.members]).mean(0)


def observe_scale(model: TurnValue, replay: Rollouts) -> None:
    """Widen the range of V to the largest return in the replay. Raises UserError for returns below 0."""
    returns = replay.returns
    if float(returns.min()) < 0:
        raise UserError(
            f"turn_value predicts returns from 0 up, but a rollout's return is {float(returns.min())}; "
            "use a method with a critic (ppo) for rewards that can be negative"
        )
    model.scale.fill_(max(float(model.scale), float(returns.max())))


def turn_value_losses(model: TurnValue, batch: Rollouts, settings: TurnValueSettings) -> dict[str, torch.Tensor]:
    """Binary cross-entropy of every turn's value with the rollout's return (as a share of `scale`), over all turns.

    The mean over an ensemble's members; each turn counts once, so long rollouts count more.
    """
    del settings
    share_BT = (batch.returns / model.scale)[:, None].expand(batch.present.shape)[batch.present]
    parts = [
        functional.binary_cross_entropy_with_logits(member(batch)[batch.present], share_BT) for member in model.members
    ]
    return {"outcome": torch.stack(parts).mean()}


class Critic(nn.Module):
    """V of PPO and MGR on the policy's hidden state. The last layer starts at zero: V = 0 before any training.

    Departure from verl: there the critic is a language model of its own, trained whole, with a value for each token.
    """

    def __init__(self, width: int, settings: CriticSettings):
        super().__init__()
        self.net = ValueNet(width, head=settings.head, hidden=settings.hidden, max_turns=settings.max_turns)
        last = self.net.head if settings.head == "linear" else self.net.head[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """V (B, T)."""
        return self.net(rollouts)


def critic_losses(model: Critic, batch: Rollouts, settings: CriticSettings) -> dict[str, torch.Tensor]:
    """1/2 max((V - G)^2, (clip(V, V_old +- value_clip) - G)^2), over turns (PPO; verl 0.9.1's `compute_value_loss`).

    G are the credits' `value_target`, advantage + value before any whitening: the policy is given whitened
    advantages, the critic returns as they are.
    """
    if batch.old is None or batch.target is None:
        raise UserError(
            "a critic is trained on the credits' columns value and value_target, and these rounds lack them"
        )
    value = model(batch)
    near = batch.old + (value - batch.old).clamp(-settings.value_clip, settings.value_clip)
    error = torch.maximum((value - batch.target).square(), (near - batch.target).square())
    return {"value": 0.5 * error[batch.present].mean()}


class ValueHead(nn.Module):
    """A linear head on the frozen backbone, and the slowly moving copy of it that is used (TRIAGE, appendix D)."""

    def __init__(self, width: int, settings: ValueHeadSettings):
        super().__init__()
        del settings
        self.head = nn.Linear(width, 1)
        nn.init.zeros_(self.head.weight)
        nn.init.zeros_(self.head.bias)
        self.copy = nn.Linear(width, 1).requires_grad_(False)
        self.copy.load_state_dict(self.head.state_dict())

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """V of the copy (B, T)."""
        return self.copy(rollouts.hidden)[..., 0]

    @torch.no_grad()
    def follow(self, share: float) -> None:
        """Move the copy by `share` of its distance to the head."""
        for moving, wanted in zip(self.copy.parameters(), self.head.parameters(), strict=True):
            moving.lerp_(wanted, share)


def value_head_losses(model: ValueHead, batch: Rollouts, settings: ValueHeadSettings) -> dict[str, torch.Tensor]:
    """Mean squared error of the head against the discounted return from each turn on, over turns (eq. 11)."""
    value = model.head(batch.hidden)[..., 0]
    error = (value - returns_to_go(batch.reward, settings.gamma)).square()
    return {"value": error[batch.present].mean()}


def returns_to_go(reward_BT: torch.Tensor, gamma: float) -> torch.Tensor:
    """G_t = r_t + gamma G_{t+1} (B, T); rewards are 0 after a rollout's last turn."""
    out = reward_BT.clone()
    for turn in range(out.shape[1] - 2, -1, -1):
        out[:, turn] += gamma * out[:, turn + 1]
    return out
