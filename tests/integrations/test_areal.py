"""AReaL's caches with a method's advantages as rewards. Stand-ins have the fields of its own classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from turncredit import credit
from turncredit.bridges.areal import assign_rewards
from turncredit.errors import UserError


@dataclass
class Interaction:
    """Of `InteractionWithTokenLogpReward` of AReaL 1.0.4 what is read and written."""

    remaining_messages: list[dict[str, Any]] = field(default_factory=list)
    output_message_list: list[dict[str, Any]] | None = None
    reward: float | None = None


class InteractionCache(dict[str, Interaction]):
    """Of AReaL's cache the one method that is called."""

    def set_reward(self, interaction_id: str, reward: float) -> None:
        self[interaction_id].reward = reward


def cache(number: int, reward: float | None) -> InteractionCache:
    """Two interactions: an observation, a call, its result, an answer."""
    made = InteractionCache()
    made["a"] = Interaction([{"role": "user", "content": "Find it."}], [_call(number % 2)])
    result = {"role": "tool", "tool_call_id": "c1", "content": f"found {number % 2}"}
    made["b"] = Interaction([result], [{"role": "assistant", "content": "Done."}], reward)
    return made


def _call(number: int) -> dict[str, Any]:
    function = {"name": "search", "arguments": f'{{"query": "{number}"}}'}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": function}],
    }


def test_every_interaction_gets_the_advantage_that_the_method_gives_the_same_table() -> None:
    caches = [cache(number, reward) for number, reward in enumerate((1.0, 0.0, 0.0))]
    assign_rewards(caches, "gigpo", gamma=0.5)
    table = {
        "group_id": ["g"] * 6,
        "rollout_id": ["0", "0", "1", "1", "2", "2"],
        "turn": [0, 1] * 3,
        "reward": [0.0, 1.0, 0.0, 0.0, 0.0, 0.0],
        "observation": ["Find it.", "found 0", "Find it.", "found 1", "Find it.", "found 0"],
    }
    found = [interaction.reward for one in caches for interaction in one.values()]
    assert found == pytest.approx(credit(table, "gigpo", gamma=0.5)["advantage"].to_pylist())
    assert len(set(found)) > 2


def test_what_cannot_be_credited_is_one_line() -> None:
    with pytest.raises(UserError, match="areal: triage needs labels"):
        assign_rewards([cache(0, 1.0)], "triage")
    with pytest.raises(UserError, match="areal: rollout 0 has no interaction"):
        assign_rewards([InteractionCache()])
    with pytest.raises(UserError, match="areal: rollout '0': reward is missing or null"):
        assign_rewards([cache(0, None), cache(1, 1.0)])
