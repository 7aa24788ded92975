"""Rollouts made of numbers, as tensors and as the tables of a round."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import torch

from turncredit.credit.models import train
from turncredit.credit.models.replay import Rollouts

HIDDEN_SIZE = 8


def as_rollouts(hidden_RTD: np.ndarray, *, lengths: Sequence[int], returns: Sequence[float], seed: int = 0) -> Rollouts:
    """Rollouts with these hidden states; the return is the last turn's reward, goals and progress are noise."""
    rng = np.random.default_rng(seed)
    lengths_R = np.asarray(lengths)
    present = np.arange(hidden_RTD.shape[1]) < lengths_R[:, None]
    reward = np.zeros(present.shape)
    reward[np.arange(len(lengths_R)), lengths_R - 1] = returns
    gain = np.round(rng.normal(size=present.shape), 1) * present
    return Rollouts(
        hidden=torch.from_numpy(hidden_RTD * present[..., None]).half(),
        present=torch.from_numpy(present),
        reward=torch.from_numpy(reward).float(),
        goal=torch.from_numpy(rng.normal(size=(len(lengths_R), hidden_RTD.shape[2]))).half(),
        gain=torch.from_numpy(gain).float(),
    )


def noise_rollouts(*, lengths: Sequence[int], returns: Sequence[float] | None = None, seed: int = 0) -> Rollouts:
    """Rollouts whose hidden states are noise."""
    shape = (len(lengths), int(max(lengths)), HIDDEN_SIZE)
    hidden = np.random.default_rng(seed).normal(size=shape)
    return as_rollouts(hidden, lengths=lengths, returns=[0] * len(lengths) if returns is None else returns, seed=seed)


def as_tables(rollouts: Rollouts, *, shuffle: bool = False) -> tuple[pa.Table, pa.Table]:
    """Tables `turns` (the columns that credit models read, and progress) and `hiddens` with these rollouts, two in a
    group.
    """
    at = rollouts.present.nonzero().numpy()
    keys = {
        "group_id": [f"g{rollout // 2:03d}" for rollout, _ in at],
        "rollout_id": [f"r{rollout:03d}" for rollout, _ in at],
        "turn": pa.array(at[:, 1].astype(np.int32)),
    }
    gain = rollouts.gain[rollouts.present].double().numpy()
    reward = rollouts.reward[rollouts.present].double().numpy()
    turns = pa.table({**keys, "reward": reward, "progress_before": np.zeros(len(gain)), "progress": gain})
    hidden = [rollouts.hidden[rollout, turn].numpy() for rollout, turn in at]
    goal = [rollouts.goal[rollout].numpy() if turn == 0 else None for rollout, turn in at]
    kind = pa.list_(pa.float16())
    vectors = {"hidden": pa.array(hidden, kind), "goal": pa.array(goal, kind)}
    hiddens = pa.table({**keys, "policy_id": ["sft"] * len(at), **vectors})
    order = np.arange(len(at))
    if shuffle:
        order = np.random.default_rng(0).permutation(order)
        hiddens = hiddens.take(np.random.default_rng(1).permutation(len(at)))
    return turns.take(order), hiddens


def trained_on(kind: str, settings: Any, *rounds: Rollouts) -> train.CreditModel:
    """A model of this kind after one training on these rounds."""
    model = train.fresh(kind, settings, HIDDEN_SIZE, seed=0)
    train.train(model, rounds, seed=0, round=2)
    return model
