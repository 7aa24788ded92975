"""agent-lightning 1.0: its trainer of verl with the estimator `turncredit`, told which rows are turns of one rollout.

    import agentlightning.verl.trainer
    from turncredit.bridges.agent_lightning import compute_advantage
    agentlightning.verl.trainer.compute_advantage = compute_advantage      # before its entry point is called

with `algorithm.adv_estimator: turncredit` and `algorithm.enable_rollout_level_advantage: false` (true gives all turns
of a rollout one number). Where every rollout is one row (`trace_aggregator.level: trajectory`, and all traces merged),
these two settings are enough and nothing needs to be replaced.

Its store has one reward for a rollout, which the trainer repeats on every row; here it counts once. Written against
`verl/trainer.py` and `verl/rollout_adapter.py` of https://github.com/microsoft/agent-lightning, commit
c632d8dd804103bd421c65208bc501952689039f (1.0.0).
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from verl.trainer.ppo import ray_trainer

from turncredit.bridges.verl import rows

ROLLOUT, TURN = "rollout_id_list", "turn_index_list"


def compute_advantage(data: Any, *arguments: Any, **settings: Any) -> Any:
    """verl's `compute_advantage`, within `rows` if the batch says which rollout each row belongs to."""
    known = data.non_tensor_batch
    if ROLLOUT not in known:
        return ray_trainer.compute_advantage(data, *arguments, **settings)
    rollout_B = [str(rollout) for rollout in known[ROLLOUT]]
    order_B = [int(turn) for turn in known[TURN]] if TURN in known else _in_order(rollout_B)
    with rows(keys=[f"{rollout}_0_{order}" for rollout, order in zip(rollout_B, order_B, strict=True)]):
        return ray_trainer.compute_advantage(data, *arguments, **settings)


def _in_order(rollout_B: list[str]) -> list[int]:
    """The place of each row among those of its rollout."""
    seen: defaultdict[str, int] = defaultdict(int)
    out = []
    for rollout in rollout_B:
        out.append(seen[rollout])
        seen[rollout] += 1
    return out
