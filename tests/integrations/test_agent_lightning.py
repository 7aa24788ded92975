"""agent-lightning's batches: rows with the lists that its adapter writes, through verl's own `compute_advantage`."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("verl", reason="verl has an environment of its own: make test-integrations")

import torch
from omegaconf import OmegaConf
from verl import DataProto

from turncredit import credit
from turncredit.bridges.agent_lightning import ROLLOUT, TURN, compute_advantage

pytestmark = pytest.mark.integrations

LENGTH = 3


def batch(rollouts: list[list[int]], rewards: list[float], *, turns: bool = True) -> DataProto:
    """A row for each turn, with its rollout's reward; `rollouts` has the turns of each in the order of the rows."""
    rows = [(number, turn) for number, order in enumerate(rollouts) for turn in order]
    scores = torch.zeros(len(rows), LENGTH)
    scores[:, -1] = torch.tensor([rewards[number] for number, _ in rows])
    made = DataProto.from_single_dict(
        {
            "token_level_rewards": scores,
            "response_mask": torch.ones(len(rows), LENGTH, dtype=torch.long),
            "uid": np.array(["task"] * len(rows), dtype=object),
        }
    )
    made.non_tensor_batch[ROLLOUT] = np.array([f"ro-{number}" for number, _ in rows])
    if turns:
        made.non_tensor_batch[TURN] = np.array([turn for _, turn in rows])
    return made


def advantages(data: DataProto, method: str, **params: Any) -> list[float]:
    config = OmegaConf.create({"turncredit": {"method": method, "params": params, "preset": None}})
    done = compute_advantage(data, adv_estimator="turncredit", gamma=1.0, lam=1.0, num_repeat=2, config=config)
    assert torch.equal(done.batch["advantages"].amin(1), done.batch["advantages"].amax(1))
    return done.batch["advantages"][:, 0].tolist()


def expected(method: str, **params: Any) -> list[float]:
    table = {"group_id": ["g"] * 5, "rollout_id": list("aabbb"), "turn": [0, 1, 0, 1, 2], "reward": [0.0, 1, 0, 0, 0]}
    return credit(table, method, **params)["advantage"].to_pylist()


def test_rows_of_a_rollout_are_its_turns_and_its_reward_counts_once() -> None:
    params = {"gamma": 0.5}
    assert advantages(batch([[0, 1], [0, 1, 2]], [1.0, 0.0]), "step_grpo", **params) == pytest.approx(
        expected("step_grpo", **params)
    )
    assert len(set(expected("step_grpo", **params))) > 2


def test_the_turns_numbers_are_their_order_whatever_the_rows_is() -> None:
    found = advantages(batch([[1, 0], [2, 0, 1]], [1.0, 0.0]), "step_grpo", gamma=0.5)
    wanted = expected("step_grpo", gamma=0.5)
    assert found == pytest.approx([wanted[place] for place in (1, 0, 4, 2, 3)])


def test_rows_without_numbers_are_in_their_order() -> None:
    found = advantages(batch([[0, 1], [0, 1, 2]], [1.0, 0.0], turns=False), "step_grpo", gamma=0.5)
    assert found == pytest.approx(expected("step_grpo", gamma=0.5))


def test_a_batch_of_somebody_else_goes_through_as_it_is() -> None:
    data = batch([[0], [0]], [1.0, 0.0])
    del data.non_tensor_batch[ROLLOUT], data.non_tensor_batch[TURN]
    found = advantages(data, "flat_grpo")
    assert found[0] == pytest.approx(-found[1])
    assert found[0] > 0
