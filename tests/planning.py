"""SYNTHETIC turns of an agent that plans in subgoals and folds their history, from a plan that a test writes down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tests.rows import turn_row
from turncredit.data import tables

#: the columns that such an agent adds to the turns
COLUMNS = {
    "subgoal": pa.string(),
    "subgoal_index": pa.int32(),
    "completed": pa.bool_(),
    "reflection": pa.string(),
    "fault": pa.string(),
    "folded_tokens": pa.int32(),
    "prompt_tokens": pa.int32(),
    "truncated_tokens": pa.int32(),
}
TASK, OBSERVATION, RESPONSE, FOLDED = 60, 14, 9, 20  # tokens


def rollout(
    group_id: str, rollout_id: str, plan: Sequence[tuple[str, int]], *, success: bool, fold: bool = True, **columns: Any
) -> list[dict[str, Any]]:
    """The turns of a rollout that follows `plan`: (subgoal, its number of turns), in order.

    The context grows by an observation a turn; the prompt after a turn that declares a subgoal complete starts over
    from the task and the folded subgoals (never without `fold`).
    """
    length = sum(turns for _, turns in plan)
    rows: list[dict[str, Any]] = []
    context = folded = 0
    for index, (subgoal, turns) in enumerate(plan):
        for place in range(turns):
            completed = index > 0 and place == 0
            after_fold = fold and index > 0 and place == min(1, turns - 1)
            reset = not rows or after_fold
            added = TASK + OBSERVATION + (FOLDED * index if after_fold else 0) if reset else OBSERVATION
            folded = FOLDED * index if after_fold else folded
            context = added if reset else context + RESPONSE + added
            row = turn_row(group_id, rollout_id, len(rows), length=length, success=success, **columns)
            row |= {"agent": "hipif", "context_reset": reset, "prompt_ids": [1] * added}
            row |= {"response_ids": [2] * RESPONSE, "response_logprobs": [-0.5] * RESPONSE}
            row |= {"subgoal": subgoal, "subgoal_index": index, "completed": completed, "fault": ""}
            row |= {"reflection": f"The subgoal is {'done' if completed else 'not done yet'}: I see no mug here."}
            rows.append(row | {"prompt_tokens": context, "folded_tokens": folded, "truncated_tokens": 0})
    return rows


def table(rows: Sequence[dict[str, Any]]) -> pa.Table:
    """The rows as a table of turns with the agent's columns."""
    schema = tables.schema("turns")
    for name, kind in COLUMNS.items():
        schema = schema.append(pa.field(name, kind))
    return pa.Table.from_pylist(rows, schema=schema)
