"""TurnRD and TurnRD+FiLM (HAS, section 3.3): a transformer over a rollout's turns that learns to predict its return.

    x_t = W h_t + p_t      h_t (D) the policy's hidden state at turn t, p_t a learned position
    z   = encoder(x)       bidirectional, pre-norm, padding masked; then, with FiLM, z <- gamma(goal) * z + beta(goal)
    w   = softmax over turns of a linear head, V_t a second linear head,  R^ = sum_t w_t V_t
    loss = (R^ - R)^2 + lambda_rank * hinge + lambda_value * (V_t - change of progress)^2
           - lambda_progress * sum_t p_t log w_t     (p: the absolute changes of progress, as shares)

Departures, each marked where it is made: the losses on progress are off unless asked for, since they read the
simulator; the goal's vector is scaled to unit variance before the projection to gamma and beta; minibatches, the
optimiser's weight decay (.01) and gradient clipping (1) are not in the paper.

Three options ask whether TurnRD reads the outcome off how a rollout ends instead of finding credit: an environment
that stops at success makes length and last turn reveal R to a bidirectional model. `causal`, `equal_length` and
`mask_last_turn` each close a door (docs/methods/learned-models.md).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import torch
from torch import nn
from torch.nn import functional

from turncredit.credit_models.replay import Rollouts
from turncredit.credit_models.settings import TurnRDSettings
from turncredit.errors import UserError

_HIDDEN = -1e9


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


class TurnRD(nn.Module):
    """Attention logits and values of turns. With the same random state, models with and without FiLM start equal."""

    def __init__(self, width: int, settings: TurnRDSettings):
        super().__init__()
        size = settings.hidden
        self.causal, self.max_turns = settings.causal, settings.max_turns
        self.project = nn.Linear(width, size)
        self.position = nn.Parameter(torch.randn(settings.max_turns, size) * 0.02)
        layer = nn.TransformerEncoderLayer(
            size, settings.heads, 4 * size, settings.dropout, activation="gelu", batch_first=True, norm_first=True
        )
        self.encoder = nn.TransformerEncoder(layer, settings.layers, nn.LayerNorm(size), enable_nested_tensor=False)
        self.attention = nn.Linear(size, 1)
        self.value = nn.Linear(size, 1)
        self.last_turn = nn.Parameter(torch.zeros(width)) if settings.mask_last_turn else None
        self.film = FiLM(width, size) if settings.film else None

    def forward(self, rollouts: Rollouts) -> tuple[torch.Tensor, torch.Tensor]:
        """Attention logits (B, T), very negative where there is no turn, and values V_t (B, T)."""
        hidden, present = rollouts.hidden, rollouts.present
        turns = hidden.shape[1]
        if turns > self.max_turns:
            raise UserError(f"a rollout has {turns} turns, but the credit model's max_turns is {self.max_turns}")
        if self.last_turn is not None:
            hidden = torch.where(rollouts.last[..., None], self.last_turn, hidden)
        x = self.project(hidden) + self.position[:turns]
        ahead = torch.ones(turns, turns, dtype=torch.bool, device=x.device).triu(1) if self.causal else None
        z = self.encoder(x, mask=ahead, src_key_padding_mask=~present)
        if self.film is not None:
            z = self.film(z, goals(rollouts))
        logits = self.attention(z)[..., 0].masked_fill(~present, _HIDDEN)
        return logits, self.value(z)[..., 0]


def goals(rollouts: Rollouts) -> torch.Tensor:
    """The goals' vectors. Raises UserError where the hiddens have none."""
    if rollouts.goal is None:
        raise UserError("a credit model with film needs the hiddens' column 'goal'; make the hiddens table again")
    return rollouts.goal


def predicted_return(logits_BT: torch.Tensor, value_BT: torch.Tensor) -> torch.Tensor:
    """R^ = sum_t w_t V_t with w the softmax of the logits (B)."""
    return (logits_BT.softmax(-1) * value_BT).sum(-1)


def prefix_returns(logits_BT: torch.Tensor, value_BT: torch.Tensor) -> torch.Tensor:
    """The prediction from every prefix (B, T): at t, the softmax is over turns 0..t only."""
    turns = logits_BT.shape[1]
    ahead = torch.ones(turns, turns, dtype=torch.bool, device=logits_BT.device).triu(1)
    weights_BTT = logits_BT[:, None].expand(-1, turns, -1).masked_fill(ahead, _HIDDEN).softmax(-1)
    return (weights_BTT @ value_BT[..., None])[..., 0]


def losses(model: TurnRD, batch: Rollouts, settings: TurnRDSettings) -> dict[str, torch.Tensor]:
    """The weighted parts of the loss of one minibatch; their sum is what is minimised.

    return    the squared error of the predicted return (causal: of every prefix's prediction, each rollout once)
    rank      the mean over pairs with R_i > R_j of max(0, margin - (R^_i - R^_j))
    value     the squared error of V_t against the turn's change of progress, over turns
    progress  the cross-entropy of the attention with the shares of absolute change, over rollouts with any change

    All are in HAS, section 3.3; what the last two aim at is ours, the paper does not write it down.
    """
    logits, value = model(batch)
    returns, present = batch.returns, batch.present
    predicted = predicted_return(logits, value)
    if settings.causal:
        error = (prefix_returns(logits, value) - returns[:, None]).square().masked_fill(~present, 0.0)
        parts = {"return": (error.sum(1) / batch.lengths).mean()}
    else:
        parts = {"return": functional.mse_loss(predicted, returns)}
    if settings.lambda_rank:
        higher = returns[:, None] > returns[None]
        gap = functional.relu(settings.rank_margin - (predicted[:, None] - predicted[None]))
        parts["rank"] = settings.lambda_rank * (gap * higher).sum() / higher.sum().clamp(min=1)
    if settings.lambda_value or settings.lambda_progress:
        if batch.gain is None:
            raise UserError("lambda_value and lambda_progress need turns with progress; these have none: set them to 0")
        if settings.lambda_value:
            error = (value - batch.gain).square().masked_fill(~present, 0.0)
            parts["value"] = settings.lambda_value * error.sum() / present.sum()
        if settings.lambda_progress:
            change = batch.gain.abs().masked_fill(~present, 0.0)
            total = change.sum(1, keepdim=True)
            share = change / total.clamp(min=1e-9)
            entropy = -(share * logits.log_softmax(-1)).sum(1)
            parts["progress"] = settings.lambda_progress * entropy.sum() / (total > 0).sum().clamp(min=1)
    return parts


def equal_length(batch: Rollouts, rng: np.random.Generator) -> Rollouts:
    """The minibatch cut to its first m turns, m drawn evenly from the turns of a rollout drawn from it.

    Rollouts shorter than m are left out, so all that the model sees have the same length, and whether one of them
    ends there or goes on can't be told. (Padding would not do: a filler that can be told from a turn, masked or not,
    marks where the rollout ended.)
    """
    length = int(batch.lengths[int(rng.integers(len(batch)))])
    return batch.cut(int(rng.integers(1, length + 1)))


@torch.no_grad()
def probes(model: TurnRD, rollouts: Rollouts, rng: np.random.Generator) -> dict[str, float]:
    """Whether the goal is used (HAS, figure 4), on rollouts that the model was not trained on.

    film_value_change   |V - V without FiLM| relative to |V|, both summed over turns
    film_shuffled_*     each rollout given another one's goal: the relative increase of the squared error of V against
                        the change of progress (`value`) and of R^ against R (`return`), and the share of rollouts
                        whose error of R^ grew (`worse`)
    film_gamma, film_beta   the mean norms of gamma - 1 and of beta
    """
    if model.film is None:
        return {}
    logits, value = model(rollouts)
    delta, beta = model.film.modulation(goals(rollouts))
    present = rollouts.present
    found = {"film_gamma": float(delta.norm(dim=-1).mean()), "film_beta": float(beta.norm(dim=-1).mean())}
    film, model.film = model.film, None
    try:
        _, bare = model(rollouts)
    finally:
        model.film = film
    found["film_value_change"] = float((value - bare).abs()[present].sum() / value.abs()[present].sum())
    other = torch.from_numpy(rng.permutation(len(rollouts))).to(present.device)
    moved_logits, moved = model(replace(rollouts, goal=goals(rollouts)[other]))
    right = (predicted_return(logits, value) - rollouts.returns).square()
    wrong = (predicted_return(moved_logits, moved) - rollouts.returns).square()
    found["film_shuffled_return"] = float(wrong.mean() / right.mean() - 1)
    found["film_shuffled_worse"] = float((wrong > right).float().mean())
    if rollouts.gain is not None:
        error, moved_error = ((x - rollouts.gain).square()[present].mean() for x in (value, moved))
        found["film_shuffled_value"] = float(moved_error / error - 1)
    return found
