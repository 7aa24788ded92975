"""rLLM's groups with a method's advantages. Where rLLM is not installed, stand-ins have the fields of its types."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from turncredit import credit
from turncredit.bridges.rllm import assign_advantages, grouping_hook
from turncredit.errors import UserError

try:
    from rllm.types import Action, Step, Trajectory, TrajectoryGroup
except ImportError:

    @dataclass
    class Action:  # type: ignore[no-redef]
        action: Any = None

    @dataclass
    class Step:  # type: ignore[no-redef]
        """The fields of `Step` of rLLM 9beb6e0f that are read and written."""

        observation: Any = None
        action: Any = None
        model_response: str = ""
        reward: float = 0.0
        chat_completions: list[dict[str, Any]] = field(default_factory=list)
        response_ids: list[int] = field(default_factory=list)
        advantage: Any = None

    @dataclass
    class Trajectory:  # type: ignore[no-redef]
        uid: str
        steps: list[Step]
        reward: float | None = None
        name: str = "agent"

    @dataclass
    class TrajectoryGroup:  # type: ignore[no-redef]
        trajectories: list[Trajectory]
        group_id: str = ""


OBSERVATIONS = [["hall", "kitchen"], ["hall", "cellar"], ["hall", "kitchen"]]
REWARDS = [1.0, 0.0, 0.0]


def group(task: str = "t1") -> TrajectoryGroup:
    """Three trajectories of two steps; all see the hall, two of them the kitchen."""
    trajectories = [
        Trajectory(
            uid=f"{task}-{number}",
            name="agent",
            steps=[
                Step(observation=text, action=Action(action=f"go {number}"), model_response=f"I go {number}")
                for text in texts
            ],
            reward=reward,
        )
        for number, (texts, reward) in enumerate(zip(OBSERVATIONS, REWARDS, strict=True))
    ]
    return TrajectoryGroup(trajectories=trajectories, group_id=f"{task}:agent")


def advantages(groups: list[TrajectoryGroup]) -> list[float]:
    return [step.advantage for one in groups for trajectory in one.trajectories for step in trajectory.steps]


def test_every_step_gets_the_advantage_that_the_method_gives_the_same_table() -> None:
    groups = [group("t1"), group("t2")]
    assign_advantages(groups, "gigpo", gamma=0.5)
    table = {
        "group_id": [name for name in ("t1", "t2") for _ in range(6)],
        "rollout_id": [f"{name}{number}" for name in ("t1", "t2") for number in range(3) for _ in range(2)],
        "turn": [0, 1] * 6,
        "reward": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0] * 2,
        "observation": [text for texts in OBSERVATIONS for text in texts] * 2,
    }
    assert advantages(groups) == pytest.approx(credit(table, "gigpo", gamma=0.5)["advantage"].to_pylist())
    # A number, which rLLM repeats on all tokens of the step.
    assert all(type(value) is float for value in advantages(groups))
    assert len(set(advantages(groups))) > 2


def test_rewards_of_steps_count_where_they_sum_to_the_trajectorys() -> None:
    one, other = group(), group()
    for each in (one, other):
        each.trajectories[0].steps[0].reward = 1.0
    other.trajectories[0].steps[1].reward = 5.0
    assign_advantages([one], "step_grpo", gamma=1.0)
    assign_advantages([other], "step_grpo", gamma=1.0)
    # After its first step the first trajectory has nothing to come; without the sum all of it is at the end.
    assert one.trajectories[0].steps[1].advantage < other.trajectories[0].steps[1].advantage


def test_without_a_reward_of_its_own_a_trajectory_has_its_last_steps() -> None:
    one, other = group(), group()
    for trajectory, reward in zip(one.trajectories, REWARDS, strict=True):
        trajectory.reward, trajectory.steps[-1].reward = None, reward
    assign_advantages([one], "gigpo")
    assign_advantages([other], "gigpo")
    assert advantages([one]) == advantages([other])


@pytest.mark.parametrize("kind", [np.float32, np.array])
def test_rewards_may_be_numbers_of_numpy(kind: Any) -> None:
    one, other = group(), group()
    for trajectory in one.trajectories:
        trajectory.reward = kind(trajectory.reward)
        trajectory.steps[-1].reward = kind(0.0)
    assign_advantages([one], "gigpo")
    assign_advantages([other], "gigpo")
    assert advantages([one]) == advantages([other])


def test_the_hook_sets_the_advantages_of_the_groups_that_it_returns() -> None:
    made, same = [group()], [group()]
    hook = grouping_hook("gigpo", group=lambda *_: made, gamma=0.9)
    assert hook(["episodes"], "settings", None) is made
    assign_advantages(same, "gigpo", gamma=0.9)
    assert advantages(made) == advantages(same)


def test_what_cannot_be_credited_is_one_line() -> None:
    with pytest.raises(UserError, match="rllm: triage needs labels, which a trainer does not have"):
        grouping_hook("triage")
    empty = group()
    empty.trajectories[0].steps.clear()
    with pytest.raises(UserError, match="rllm: trajectory t1-0: no turn: a trajectory without steps"):
        assign_advantages([empty], "gigpo")
    one, two = group("t1"), group("t2")
    two.trajectories[0] = one.trajectories[0]
    with pytest.raises(UserError, match="trajectory t1-0 is in group 't2:agent' and before in 't1:agent', but a step"):
        assign_advantages([one, two], "gigpo")
