"""AgentPRM of Choudhury (arXiv 2502.10325): Q(s, a), fitted to the mean discounted return of identical pairs.

    G_t    = r_t + gamma G_{t+1}
    y(s,a) = mean of G_t over all turns of the replay with this state and this action
    loss   = cross-entropy of Q(s_t, a_t) / scale with y / scale, over turns

The state is the goal with all observations and actions so far, as in the authors' code.

Departures: the paper's PRM is a language model of its own, trained whole; ours is a head on the frozen SFT policy's
states over the action. Its code takes an outcome of +-1 and discounts it by the turns since the start,
gamma^t; here G_t is the discounted return from turn t on, as in its formula. There each pair is one example, here each
turn is; there the newest policy's rollouts are learned from, here all rounds, older ones less.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from pydantic import Field

from turncredit.credit.models.turn_value import (
    TurnValue,
    TurnValueSettings,
    check_returns,
    cross_entropy,
    still_to_come,
    widen,
)
from turncredit.errors import UserError

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts


class AgentPRMSettings(TurnValueSettings):
    """The network and training of `turn_value`, read after the action. `gamma` is that of the paper's code."""

    hidden_position: Literal["observation", "action"] = "action"
    gamma: float = Field(0.95, ge=0, le=1)


class AgentPRM(TurnValue):
    """Q = scale * sigmoid of a network on the state after the action."""

    reads_pairs = True

    def before_training(self, network: Any, replay: Rollouts, settings: Any) -> Rollouts:
        """The replay with the mean of each turn's pair as its target. Raises UserError for returns below 0."""
        from dataclasses import replace

        target = mean_outcomes(replay, settings.gamma)
        check_returns(replay, "agentprm")
        widen(network, target)
        return replace(replay, target=target.float())

    def losses(self, network: Any, batch: Rollouts, settings: Any) -> dict[str, torch.Tensor]:
        """Binary cross-entropy of every turn's Q with its target (as shares of `scale`): the mean over an ensemble."""
        assert batch.target is not None
        return {"outcome": cross_entropy(network, batch, batch.target)}


def mean_outcomes(rollouts: Rollouts, gamma: float) -> torch.Tensor:
    """The mean of G_t, at least 0, over the turns with the same pair (R, T) float64, 0 where there is no turn.

    Raises UserError for rollouts without `pair`.
    """
    import torch

    if rollouts.pair is None:
        raise UserError("agentprm needs rollouts with `pair`; load them with pairs=True")
    present = rollouts.present
    outcome_N = still_to_come(rollouts.reward.double(), gamma)[present].numpy()
    _, which_N, count = np.unique(rollouts.pair[present].numpy(), return_inverse=True, return_counts=True)
    mean = np.bincount(which_N, weights=outcome_N) / count
    target = torch.zeros(present.shape, dtype=torch.float64)
    target[present] = torch.from_numpy(mean[which_N])
    return target


KIND = AgentPRM(AgentPRMSettings())
