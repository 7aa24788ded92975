"""rLLM: a method's advantages in `step.advantage`, which its trainer takes as they are.

    rllm.algorithm.use_precomputed_advantage=true
    AgentTrainer(..., traj_grouping_hook=grouping_hook("gigpo", gamma=0.9))

The hook groups trajectories as rLLM does and sets every step's advantage. `assign_advantages` does it for groups of
one's own. Written against `trainer/algorithms/transform.py`, `trainer/algorithms/advantage.py` and `types.py` of
https://github.com/rllm-org/rllm, commit 9beb6e0f676a46d38858991fd79ac5f8e0b16d4c (0.3.0.pre).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from turncredit.bridges.conversations import COLUMNS, advantages
from turncredit.bridges.importers.base import Report, Rollout, Skip
from turncredit.bridges.importers.rllm import turns_of
from turncredit.bridges.spans import method_of
from turncredit.credit.parts.compose import Method
from turncredit.errors import UserError

STEP = ("observation", "model_response", "reward", "chat_completions")


def assign_advantages(groups: Sequence[Any], method: str = "gigpo", **params: Any) -> None:
    """Set `advantage` of every step of the groups' trajectories: one number a step.

    groups   rLLM's `TrajectoryGroup`s
    params   the method's parameters

    Rewards are those of `turncredit import --from rllm`. Raises UserError for a method that needs side tables, for a
    trajectory without a step, and for one that is in two groups.
    """
    _assign(groups, _method(method, params))


def grouping_hook(
    method: str = "gigpo", group: Callable[..., Sequence[Any]] | None = None, **params: Any
) -> Callable[..., Sequence[Any]]:
    """A `traj_grouping_hook` for rLLM's trainer that sets the advantages of the groups that it makes.

    group   makes the groups; rLLM's own way by default

    Raises UserError for a method that needs side tables.
    """
    looked_up = _method(method, params)

    def hook(*episodes_and_settings: Any) -> Sequence[Any]:
        groups = (group or _default_grouping())(*episodes_and_settings)
        _assign(groups, looked_up)
        return groups

    return hook


def _method(name: str, params: dict[str, Any]) -> Method:
    return method_of(name, params, None, "rllm", COLUMNS)


def _assign(groups: Sequence[Any], method: Method) -> None:
    report = Report(exact=True)
    rollouts = []
    group_of: dict[str, Any] = {}
    for place, group in enumerate(groups):
        for trajectory in group.trajectories:
            uid = str(trajectory.uid)
            if uid in group_of:
                raise UserError(
                    f"rllm: trajectory {uid} is in group '{group.group_id}' and before in '{group_of[uid]}', but a "
                    "step has one advantage; leave it in one group"
                )
            group_of[uid] = group.group_id
            try:
                turns = turns_of(_plain(trajectory), report)
            except Skip as skip:
                raise UserError(f"rllm: trajectory {uid}: {skip}") from None
            rollouts.append(Rollout(f"{place}/{group.group_id}", uid, turns, "rllm", ended=True))
    found = iter(advantages(rollouts, method, "rllm"))
    for group in groups:
        for trajectory in group.trajectories:
            for step, advantage in zip(trajectory.steps, next(found), strict=True):
                step.advantage = advantage


def _plain(trajectory: Any) -> dict[str, Any]:
    """A trajectory as the importer reads it from a file, in which rewards are no arrays or tensors."""
    steps = [
        {name: getattr(step, name) for name in STEP}
        | {"action": getattr(step.action, "action", step.action), "reward": _number(step.reward)}
        for step in trajectory.steps
    ]
    return {"steps": steps, "reward": _number(trajectory.reward)}


def _number(reward: Any) -> Any:
    return reward.item() if hasattr(reward, "item") else reward


def _default_grouping() -> Callable[..., Sequence[Any]]:
    """What rLLM groups with where no hook is given: the default of its own function."""
    from rllm.trainer.algorithms.transform import transform_episodes_to_trajectory_groups

    return inspect.signature(transform_episodes_to_trajectory_groups).parameters["traj_grouping_hook"].default
