"""Networks over the hidden states of a rollout's turns.

`TurnRD` sees the whole rollout. The others read h_t alone (or, for the causal transformer, h_1..t), so that a value
cannot depend on later turns. The losses are in the file of each kind.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import nn
from torch.nn import functional

from turncredit.credit.models.replay import Rollouts
from turncredit.errors import UserError

#: the logit of a turn that attention must not see
MASKED = -1e9


class FiLM(nn.Module):
    """Feature-wise modulation by a goal's vector (Perez et al. 2018), zero-initialised: it starts as the identity.

    gamma = 1 + delta, so that with all parameters 0 the output equals the input exactly.
    """

    def __init__(self, goal: int, width: int):
        super().__init__()
        self.project = nn.Linear(goal, 2 * width)
        nn.init.zeros_(self.project.weight)
        nn.init.zeros_(self.project.bias)

    def modulation(self, goal_BD: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """gamma - 1 and beta (B, H). The goal's vector is normalised first: embeddings of models differ in scale."""
        delta, beta = self.project(functional.layer_norm(goal_BD, goal_BD.shape[-1:])).chunk(2, dim=-1)
        return delta, beta

    def forward(self, x_BTH: torch.Tensor, goal_BD: torch.Tensor) -> torch.Tensor:
        """gamma * x + beta, the same for all turns of a rollout."""
        delta, beta = self.modulation(goal_BD)
        return (1 + delta[:, None]) * x_BTH + beta[:, None]


def goals(rollouts: Rollouts) -> torch.Tensor:
    """The goals' vectors. Raises UserError where the hiddens have none."""
    if rollouts.goal is None:
        raise UserError(
            "a credit model with film needs the hiddens' column 'goal'; delete the hiddens table and run again"
        )
    return rollouts.goal


class TurnRD(nn.Module):
    """Attention logits and values of turns. With the same random state, models with and without FiLM start equal."""

    def __init__(
        self,
        width: int,
        *,
        hidden: int,
        layers: int,
        heads: int,
        dropout: float,
        max_turns: int,
        film: bool,
        causal: bool,
        mask_last_turn: bool,
    ):
        super().__init__()
        self.causal, self.max_turns = causal, max_turns
        self.project = nn.Linear(width, hidden)
        self.position = nn.Parameter(torch.randn(max_turns, hidden) * 0.02)
        layer = nn.TransformerEncoderLayer(
            hidden, heads, 4 * hidden, dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, layers, nn.LayerNorm(hidden), enable_nested_tensor=False)
        self.attention = nn.Linear(hidden, 1)
        self.value = nn.Linear(hidden, 1)
        self.last_turn = nn.Parameter(torch.zeros(width)) if mask_last_turn else None
        self.film = FiLM(width, hidden) if film else None

    def forward(self, rollouts: Rollouts) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention logits (B, T), very negative where there is no turn, and values V_t (B, T)."""
        hidden, present = rollouts.hidden, rollouts.present
        turns = hidden.shape[1]
        _check_turns(turns, self.max_turns)
        if self.last_turn is not None:
            hidden = torch.where(rollouts.last[..., None], self.last_turn, hidden)
        x = self.project(hidden) + self.position[:turns]
        ahead = _ahead(turns, x.device) if self.causal else None
        z = self.encoder(x, mask=ahead, src_key_padding_mask=~present)
        if self.film is not None:
            z = self.film(z, goals(rollouts))
        logits = self.attention(z)[..., 0].masked_fill(~present, MASKED)
        return logits, self.value(z)[..., 0]


def predicted_return(logits_BT: torch.Tensor, value_BT: torch.Tensor) -> torch.Tensor:
    """R^ = sum_t w_t V_t with w the softmax of the logits (B)."""
    return (logits_BT.softmax(-1) * value_BT).sum(-1)


def prefix_returns(logits_BT: torch.Tensor, value_BT: torch.Tensor) -> torch.Tensor:
    """The prediction from every prefix (B, T): at t, the softmax is over turns 0..t only."""
    turns = logits_BT.shape[1]
    ahead = _ahead(turns, logits_BT.device)
    weights_BTT = logits_BT[:, None].expand(-1, turns, -1).masked_fill(ahead, MASKED).softmax(-1)
    return (weights_BTT @ value_BT[..., None])[..., 0]


class ValueNet(nn.Module):
    """LayerNorm, an embedding of the turn's number (from zero), optional FiLM on the goal, and a head.

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
        """One number for each turn (B, T); values of padding are meaningless."""
        turns = rollouts.hidden.shape[1]
        _check_turns(turns, self.max_turns)
        x = self.norm(rollouts.hidden) + self.turn[:turns]
        if self.film is not None:
            x = self.film(x, goals(rollouts))
        if self.encoder is not None:
            x = self.encoder(self.project(x), mask=_ahead(turns, x.device))
        return self.head(x)[..., 0]


class TurnValue(nn.Module):
    """V = scale * the mean of the members' sigmoids. `scale`, the largest return seen or 1, makes returns shares."""

    def __init__(self, width: int, *, ensemble: int, **options: Any):
        super().__init__()
        self.members = nn.ModuleList(ValueNet(width, **options) for _ in range(ensemble))
        self.register_buffer("scale", torch.ones(()))

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """V (B, T)."""
        return self.scale * torch.stack([member(rollouts).sigmoid() for member in self.members]).mean(0)


class Critic(nn.Module):
    """A `ValueNet` whose last layer starts at zero: V = 0 before any training."""

    def __init__(self, width: int, *, head: str, hidden: int, max_turns: int):
        super().__init__()
        self.net = ValueNet(width, head=head, hidden=hidden, max_turns=max_turns)
        last = self.net.head if head == "linear" else self.net.head[-1]
        nn.init.zeros_(last.weight)
        nn.init.zeros_(last.bias)

    def forward(self, rollouts: Rollouts) -> torch.Tensor:
        """V (B, T)."""
        return self.net(rollouts)


class ValueHead(nn.Module):
    """A linear head, and its exponential moving average, which gives the values (TRIAGE, appendix D)."""

    def __init__(self, width: int):
        super().__init__()
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
        for moving, source in zip(self.copy.parameters(), self.head.parameters(), strict=True):
            moving.lerp_(source, share)


def _ahead(turns: int, device: torch.device) -> torch.Tensor:
    """The attention mask (T, T): true where a turn must not see another, which is a later one."""
    return torch.ones(turns, turns, dtype=torch.bool, device=device).triu(1)


def _check_turns(turns: int, max_turns: int) -> None:
    if turns > max_turns:
        raise UserError(f"a rollout has {turns} turns, but the credit model's max_turns is {max_turns}")
