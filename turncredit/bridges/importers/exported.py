"""What `turncredit export` adds to a record, so that an import gives the same turns: a block `turncredit`.

    {"group_id": ..., "rollout_id": ..., "ended": ..., "turns": 2, "columns": {"action": [..., ...], ...}}

It has the columns, a value for each turn, for which the other project's format has no place, or which its importer
would read differently. It stands in the record itself (chat logs), in `extra` (ATIF) or in a trace's `info`
(verifiers).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import Report, Rollout, id_of

BLOCK = "turncredit"
CUT = "the columns that turncredit export added are not one for each turn, and were left out"


def restore(rollout: Rollout, report: Report) -> None:
    """Give a rollout that `turncredit export` wrote the ids and columns that it had."""
    block = next(_blocks(rollout), None)
    if block is None:
        return
    columns, count = block.get("columns") or {}, block.get("turns")
    if not isinstance(count, int) or any(
        not isinstance(values, list) or len(values) != count for values in columns.values()
    ):
        report.flaw(rollout.where, CUT)
        return
    rollout.group_id = str(block.get("group_id", rollout.group_id))
    rollout.rollout_id = str(block.get("rollout_id", rollout.rollout_id))
    rollout.ended = block.get("ended", rollout.ended)
    rollout.columns = {name: value for name, value in rollout.columns.items() if name not in columns}
    if len(rollout.turns) != count:  # empty turns are dropped on import, so restore all from the block
        rollout.turns, rollout.columns = [{} for _ in range(count)], {}
    for number, turn in enumerate(rollout.turns):
        turn.update({name: values[number] for name, values in columns.items()})
        turn["_says"] = turn["_thought"] = turn["_empty"] = False  # the action is known
        if "observation" in columns:
            turn["_shows_history"] = False


def group_in(extra: Mapping[str, Any]) -> str | None:
    """The group in the block of a record's `extra`; None where there is no block, or none in it."""
    block = extra.get(BLOCK)
    return id_of(block.get("group_id")) if isinstance(block, dict) else None


def _blocks(rollout: Rollout) -> Iterator[Mapping[str, Any]]:
    """The block in a rollout's record, if there is one."""
    record = rollout.record or {}
    traces = record.get("traces")
    of_trace = [
        trace.get("info")
        for trace in (traces if isinstance(traces, list) else [])
        if isinstance(trace, dict) and str(trace.get("id")) == rollout.rollout_id
    ]
    for place in (record, record.get("extra"), *of_trace):
        if isinstance(place, dict) and isinstance(place.get(BLOCK), dict):
            yield place[BLOCK]
