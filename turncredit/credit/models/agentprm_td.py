"""AgentPRM of Xi et al. (arXiv 2511.08325): Q(s, a), fitted to its own TD(lambda) targets and their steps.

    Q^_T = R,  Q^_t = (1 - lam) Q_t + lam Q^_{t+1}          promise: Q_t, on turns before the last
    A^_t = Q^_t - Q_{t-1}                                     progress: GAE, with V(s_t) = Q_{t-1}
    loss = 1/2 (Q_t - Q^_t)^2 + beta (Q_t - Q_{t-1} - A^_t)^2     Q^ and A^ held fixed

The first line is the paper's Q^_t = A^_t + Q_{t-1}, A^_t = sum_k lam^k d_{t+k}, d_t = Q_t - Q_{t-1}, d_T = R - Q_{T-1},
written as a recursion. V(s_t) = Q_{t-1} holds where the environment is deterministic and Q predicts the whole rollout's
return.

Departures: the paper's PRM is a language model trained whole, on rollouts of one policy; ours is a head on the frozen
SFT policy's states over the action, on all rounds, older ones less. Terms are means over turns, in
shares of `scale`. The first turn has no Q_{t-1} and no second term.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic import Field

from turncredit.credit.models.turn_value import TurnValue, TurnValueSettings, check_returns, widen

if TYPE_CHECKING:
    import torch

    from turncredit.credit.models.replay import Rollouts


class AgentPRMTDSettings(TurnValueSettings):
    """The network and training of `turn_value`, read after the action. `lam` and `beta` are the paper's."""

    hidden_position: Literal["observation", "action"] = "action"
    lam: float = Field(0.95, ge=0, le=1)
    beta: float = Field(1.0, ge=0)


class AgentPRMTD(TurnValue):
    """Q = scale * sigmoid of a network on the state after the action."""

    def before_training(self, network: Any, replay: Rollouts, settings: Any) -> Rollouts:
        """Widen the range of Q to the largest return in the replay. Raises UserError for returns below 0."""
        check_returns(replay, "agentprm_td")
        widen(network, replay.returns)
        return replay

    def losses(self, network: Any, batch: Rollouts, settings: Any) -> dict[str, torch.Tensor]:
        """`promise` (L_Q) and `progress` (beta L_A), the means over an ensemble; targets are made without dropout."""
        import torch

        with torch.no_grad():
            network.eval()
            now = network(batch) / network.scale
            network.train()
        promise, progress = td_targets(now, batch.returns.clamp(min=0) / network.scale, batch.lengths, settings.lam)
        later = batch.present[:, 1:]
        parts = []
        for member in network.members:
            value = member(batch).sigmoid()
            level = 0.5 * (value - promise).square()[batch.present].mean()
            step = (value.diff() - progress[:, 1:]).square()[later].sum() / later.sum().clamp(min=1)
            parts.append(torch.stack([level, settings.beta * step]))
        level, step = torch.stack(parts).mean(0)
        return {"promise": level, "progress": step}


def td_targets(
    value_BT: torch.Tensor, return_B: torch.Tensor, length_B: torch.Tensor, lam: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Q^ and A^ (B, T) of the module's formulas; A^ of the first turn, and both after a rollout's end, mean nothing."""
    import torch

    promise = value_BT.clone()
    turns = value_BT.shape[1]
    for turn in range(turns - 1, -1, -1):
        ahead = promise[:, min(turn + 1, turns - 1)]
        mixed = (1 - lam) * value_BT[:, turn] + lam * ahead
        promise[:, turn] = torch.where(length_B == turn + 1, return_B, mixed)
    return promise, promise - value_BT.roll(1, dims=1)


KIND = AgentPRMTD(AgentPRMTDSettings())
