"""Rows of the pipeline's tables with every column they must have, for tests that care about a few of them."""

from __future__ import annotations

from typing import Any

from turncredit.data import tables

MADE_BY = {"stage": "synthetic", "code": "synthetic", "config": {}, "config_hash": "", "inputs": {}, "seed": 0}


def turn_row(
    group_id: str, rollout_id: str, number: int, *, length: int, success: bool, **columns: Any
) -> dict[str, Any]:
    """A row of `turns` and of `measures` beside it: turn `number` of a rollout of `length` turns, whose last one is
    rewarded if it succeeds.
    """
    last = number == length - 1
    action = columns.get("action", f"go to shelf {number + 1}")
    row = {
        "group_id": group_id,
        "rollout_id": rollout_id,
        "turn": number,
        "env": "household",
        "split": "train",
        "task_id": group_id,
        "family": "pick",
        "goal": "put a clean mug in shelf.",
        "observation": f"You arrive at shelf {number}. On the shelf {number}, you see a mug 1.",
        "context_reset": number == 0,
        "prompt_ids": [1, 2],
        "response_ids": [3],
        "response_logprobs": [-0.5],
        "response_text": action,
        "action": action,
        "valid": True,
        "well_formed": True,
        "admissible": ["look", action],
        "next_observation": f"You arrive at shelf {number + 1}.",
        "reward": float(success and last),
        "progress_before": number / length,
        "progress": (number + 1) / length if success or not last else 0.5,
        "distance_before": length - number,
        "distance": length - number - 1 if success else -1,
        "done": last,
        "success": success,
        "score": float(success),
        "policy_id": "sft",
        "agent": "transcript",
        "seed": 0,
        "temperature": 1.0,
        "created_by": "synthetic",
    }
    return _with(row, columns)


def branch_row(
    keys: dict[str, Any], *, v: float = 0.5, q: float = 0.5, se: float = 0.1, **columns: Any
) -> dict[str, Any]:
    """A row of `branches` for the turn with these keys: its values before and after, without a reference policy's."""
    row = {name: keys[name] for name in tables.KEYS}
    row |= {
        "policy_id": "sft",
        "temperature": 1.0,
        "stratum": "all",
        "v_true": v,
        "v_se": 0.07,
        "q_true": q,
        "q_se": 0.07,
    }
    row |= {"advantage_true": q - v, "advantage_true_se": se, "continuations": 24, "turns_played": 200}
    row |= {"replayed": True, "distance_change": None}
    row |= dict.fromkeys(("v_reference", "q_reference", "advantage_reference", "advantage_reference_se"))
    return _with(row, columns)


def label_row(keys: dict[str, Any], role: str | None, **columns: Any) -> dict[str, Any]:
    """A row of `labels` by the rule judge for the turn with these keys."""
    row = {name: keys[name] for name in tables.KEYS} | {"judge": "rule", "role": role, "evidence": "it moved"}
    row |= {"prompt_hash": "h", "cached": False} | dict.fromkeys(
        ("score", "reason", "tokens_in", "tokens_out", "seconds")
    )
    return _with(row, columns)


def _with(row: dict[str, Any], columns: dict[str, Any]) -> dict[str, Any]:
    unknown = columns.keys() - row.keys()
    assert not unknown, f"no such columns: {unknown}"
    return row | columns
