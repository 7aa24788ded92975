"""TurnRD (HAS, section 3.3): a transformer over a rollout's turns that learns to predict its return.

    x_t = W h_t + p_t      h_t (D) the policy's hidden state at turn t, p_t a learned position
    z   = encoder(x)       bidirectional, pre-norm, padding masked; then, with FiLM, z <- gamma(goal) * z + beta(goal)
    w   = softmax over turns of a linear head, V_t a second linear head,  R^ = sum_t w_t V_t
    loss = (R^ - R)^2 + lambda_rank * hinge + lambda_value * (V_t - change of progress)^2
           - lambda_progress * sum_t p_t log w_t     (p: the absolute changes of progress, as shares)

The defaults are the paper's ALFWorld run (its table 6): both losses on progress, and the hidden states of the policy
that played the turn, read over its action. The losses on progress read the simulator; without them, on
the frozen SFT policy's states, it is our ablation `has_turnrd_outcome_only`.

Departures, each marked where it is made: what the losses on progress aim at, and the token at which the policy is read,
are not in the paper; the goal's vector is scaled to unit variance before the projection to gamma and beta; minibatches,
the optimiser's weight decay (.01) and gradient clipping (1) are not in the paper.

Three options test whether TurnRD infers the outcome from how a rollout ends instead of finding credit: an environment
that stops at success makes length and last turn reveal R to a bidirectional model. `causal`, `equal_length` and
`mask_last_turn` each remove one shortcut (docs/methods/learned-models.md).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field, model_validator

from turncredit.credit.models.protocol import ModelKind, ModelSettings
from turncredit.errors import UserError

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts
    from turncredit.data.turns import Turns

#: Returns that differ by less, as a share of the rewards added up, are the same: float32 sums of rewards.
ROUNDING = 1e-5


class TurnRDSettings(ModelSettings):
    """TurnRD (HAS, section 3.3, tables 4 and 6). `batch` and `hidden_position` are ours.

    hidden_policy, hidden_position
                    the policy that played the turn, over its action (HAS: "the policy's per-turn last-hidden states")
    film            condition on the goal
    causal          a turn attends to the past only, and the return is predicted from every prefix
    equal_length    each minibatch is cut to its first m turns (m drawn), rollouts shorter than m left out
    mask_last_turn  the last turn's hidden state is replaced by a learned vector
    lambda_value    weight of the loss of V against the turn's change of progress (the paper: 1 ALFWorld, .5 WebShop)
    lambda_progress weight of the prior of the attention on turns where progress changes (the paper: .01)
    """

    hidden_policy: Literal["sft", "current"] = "current"
    hidden_position: Literal["observation", "action"] = "action"
    hidden: int = Field(128, ge=4)
    layers: int = Field(2, ge=1)
    heads: int = Field(4, ge=1)
    dropout: float = Field(0.1, ge=0, lt=1)
    max_turns: int = Field(50, ge=1)
    film: bool = False
    causal: bool = False
    equal_length: bool = False
    mask_last_turn: bool = False
    lambda_rank: float = Field(0.1, ge=0)
    rank_margin: float = Field(0.1, ge=0)
    lambda_value: float = Field(1.0, ge=0)
    lambda_progress: float = Field(0.01, ge=0)
    lr: float = Field(5e-4, gt=0)
    epochs: int = Field(5, ge=1)
    batch: int = Field(32, ge=1, description="rollouts per optimiser step")
    half_life: float = Field(4.0, gt=0, description="rounds after which a rollout counts half")

    @model_validator(mode="after")
    def _heads_divide(self) -> TurnRDSettings:
        if self.hidden % self.heads:
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of heads ({self.heads})")
        return self


class TurnRD(ModelKind):
    """TurnRD. It is used in round 1 with untrained weights (HAS, algorithm 1), so it is always ready."""

    def network(self, width: int, settings: TurnRDSettings) -> Any:
        """`networks.TurnRD`."""
        from turncredit.credit.models import networks

        names = {"hidden", "layers", "heads", "dropout", "max_turns", "film", "causal", "mask_last_turn"}
        return networks.TurnRD(width, **settings.model_dump(include=names))

    def ready(self, steps: int, settings: TurnRDSettings) -> bool:
        """Also before its first training."""
        return True

    def requires(self, settings: TurnRDSettings) -> tuple[str, ...]:
        """Progress, for the losses on it."""
        return ("progress",) if settings.lambda_value or settings.lambda_progress else ()

    def minibatches(
        self,
        sizes: Sequence[int],
        settings: TurnRDSettings,
        steps: int,
        rng: np.random.Generator,
    ) -> Iterator[np.ndarray]:
        """Passes in which a rollout is visited with its recency as probability."""
        from turncredit.credit.models import replay

        return replay.epochs(replay.recency(sizes, settings.half_life), settings.epochs, settings.batch, rng)

    def transform(self, batch: Rollouts, settings: TurnRDSettings, rng: np.random.Generator) -> Rollouts:
        """With `equal_length`, the minibatch cut to its first m turns."""
        return equal_length(batch, rng) if settings.equal_length else batch

    def losses(self, network: Any, batch: Rollouts, settings: TurnRDSettings) -> dict[str, torch.Tensor]:
        """The weighted parts of the loss of one minibatch.

        return    the squared error of the predicted return (causal: of every prefix's prediction, each rollout once)
        rank      the mean over pairs with R_i > R_j of max(0, margin - (R^_i - R^_j))
        value     the squared error of V_t against the turn's change of progress, over turns
        progress  the cross-entropy of the attention with the shares of absolute change, over rollouts with any change

        All are in HAS, section 3.3; the targets of the last two are ours, since the paper does not give them.
        """
        import torch
        from torch.nn import functional

        from turncredit.credit.models.networks import predicted_return, prefix_returns

        logits, value = network(batch)
        returns, present = batch.returns, batch.present
        predicted = predicted_return(logits, value)
        if settings.causal:
            error = (prefix_returns(logits, value) - returns[:, None]).square().masked_fill(~present, 0.0)
            parts = {"return": (error.sum(1) / batch.lengths).mean()}
        else:
            parts = {"return": functional.mse_loss(predicted, returns)}
        if settings.lambda_rank:
            added = batch.reward.abs().sum(1)
            rounding = ROUNDING * torch.maximum(added[:, None], added[None])
            higher = returns[:, None] - returns[None] > rounding
            gap = functional.relu(settings.rank_margin - (predicted[:, None] - predicted[None]))
            parts["rank"] = settings.lambda_rank * (gap * higher).sum() / higher.sum().clamp(min=1)
        if settings.lambda_value or settings.lambda_progress:
            if batch.gain is None:
                raise UserError(
                    "lambda_value and lambda_progress need turns with progress; these have none: set them to 0"
                )
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

    def outputs(self, network: Any, batch: Rollouts) -> tuple[torch.Tensor, torch.Tensor]:
        """V_t, and the attention's weights w_t."""
        logits, value_BT = network(batch)
        return value_BT, logits.softmax(-1)

    def measures(
        self,
        network: Any,
        view: Turns,
        rollouts: Rollouts,
        value_N: np.ndarray,
        weight_N: np.ndarray,
        rng: np.random.Generator,
    ) -> dict[str, float]:
        """The measures of TurnRD alone.

        return_mse   squared error of R^ against R, over rollouts
        film_*       with FiLM: `probes`
        """
        predicted_R = view.sum_R(value_N * weight_N)
        return {
            "return_mse": float(np.mean((predicted_R - view.return_R) ** 2)),
            **probes(network, rollouts, rng),
        }


def equal_length(batch: Rollouts, rng: np.random.Generator) -> Rollouts:
    """The minibatch cut to its first m turns, m drawn evenly from the turns of a rollout drawn from it.

    Rollouts shorter than m are left out, so all that the model sees have the same length, and the model cannot
    know whether one of them ends there. (Padding would not do: a filler that differs from a turn, masked or not, marks
    where the rollout ended.)
    """
    length = int(batch.lengths[int(rng.integers(len(batch)))])
    return batch.cut(int(rng.integers(1, length + 1)))


def probes(network: Any, rollouts: Rollouts, rng: np.random.Generator) -> dict[str, float]:
    """Whether the goal is used (HAS, figure 4), on rollouts that the model was not trained on; {} without FiLM.

    film_value_change   |V - V without FiLM| relative to |V|, both summed over turns
    film_shuffled_*     each rollout given another goal, that of a rollout drawn among those with another one: the
                        relative increase of the squared error of V against the change of progress (`value`) and of R^
                        against R (`return`), and the share of rollouts whose error of R^ grew (`worse`); only where
                        there are two goals
    film_gamma, film_beta   the mean norms of gamma - 1 and of beta
    """
    import torch

    from turncredit.credit.models.networks import goals, predicted_return

    if network.film is None:
        return {}
    rollouts = rollouts.take(np.arange(len(rollouts)), network.position.device)
    goal = goals(rollouts)
    with torch.no_grad():
        logits, value = network(rollouts)
        delta, beta = network.film.modulation(goal)
        film, network.film = network.film, None
        try:
            _, bare = network(rollouts)
        finally:
            network.film = film
    present = rollouts.present
    metrics = {
        "film_gamma": float(delta.norm(dim=-1).mean()),
        "film_beta": float(beta.norm(dim=-1).mean()),
        "film_value_change": float((value - bare).abs()[present].sum() / value.abs()[present].sum()),
    }
    other_R = other_goal_R(goal.cpu().numpy(), rng)
    if other_R is None:
        return metrics
    with torch.no_grad():
        other = torch.from_numpy(other_R).to(present.device)
        moved_logits, moved = network(replace(rollouts, goal=goal[other]))
    right = (predicted_return(logits, value) - rollouts.returns).square()
    wrong = (predicted_return(moved_logits, moved) - rollouts.returns).square()
    metrics["film_shuffled_return"] = float(wrong.mean() / right.mean() - 1)
    metrics["film_shuffled_worse"] = float((wrong > right).float().mean())
    if rollouts.gain is not None:
        error, moved_error = ((x - rollouts.gain).square()[present].mean() for x in (value, moved))
        metrics["film_shuffled_value"] = float(moved_error / error - 1)
    return metrics


def other_goal_R(goals_RH: np.ndarray, rng: np.random.Generator) -> np.ndarray | None:
    """For each of R rollouts one that has another goal (equal rows are one goal); None where all have the same."""
    _, goal_R, count_G = np.unique(goals_RH, axis=0, return_inverse=True, return_counts=True)
    if len(count_G) == 1:
        return None
    goal_R = goal_R.reshape(-1)
    size_R = count_G[goal_R]
    place_R = rng.integers(0, len(goal_R) - size_R)  # among the others, in the order of goals, without this one's
    first_R = (np.cumsum(count_G) - count_G)[goal_R]
    return np.argsort(goal_R, kind="stable")[np.where(place_R >= first_R, place_R + size_R, place_R)]


KIND = TurnRD(TurnRDSettings())
