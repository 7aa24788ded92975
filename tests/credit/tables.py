"""Small tables for tests."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np


def table(groups: dict[str, Sequence[Sequence[float]]], **columns: Sequence) -> dict[str, list]:
    """Turns from the rewards of each turn of each rollout of each group; `columns` hold one value a turn, in order."""
    made: dict[str, list] = {"group_id": [], "rollout_id": [], "turn": [], "reward": []}
    for group, members in groups.items():
        for number, rewards in enumerate(members):
            for turn, reward in enumerate(rewards):
                for name, value in zip(made, (group, f"{group}{number}", turn, float(reward)), strict=True):
                    made[name].append(value)
    for name, values in columns.items():
        assert len(values) == len(made["turn"]), name
        made[name] = list(values)
    return made


def side(turns: dict[str, list], **columns: Sequence) -> dict[str, list]:
    """A side table for these turns."""
    return {
        **{key: turns[key] for key in ("group_id", "rollout_id", "turn")},
        **{k: list(v) for k, v in columns.items()},
    }


def numbers(result, column: str = "advantage") -> np.ndarray:
    """A column of a credits table."""
    return result[column].to_numpy()
