"""OpenEnv: `results.jsonl` of `openenv collect`, a line for each rollout.

`episode_id`, `messages`, `reward`, `done`, `task`, `tool_trace`. Source: openenv-core 0.3.0, `core/harness/collect.py`.
Rollouts of the same task are a group.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path
from typing import Any

from turncredit.bridges.importers.base import Format, Report, Rollout, Skip, Source, each, finite, outcome
from turncredit.bridges.importers.messages import turns_of
from turncredit.data.json_lines import json_lines


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file."""
    del mapping

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        task = row.get("task")
        if task is None:
            raise Skip("task is missing or null: the rollout belongs to no group")
        name = task if isinstance(task, str) else json.dumps(task, sort_keys=True)
        name = name if len(name) <= 64 else sha256(name.encode()).hexdigest()[:16]
        turns = turns_of(row["messages"])
        outcome(turns, finite(row.get("reward")))
        yield Rollout(
            name, f"{source.label}/{row['episode_id']}", turns, where, bool(row.get("done")), {"task_id": name}
        )

    yield from each(json_lines(source.path, report), report, line)


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return {"episode_id", "messages", "tool_trace"} <= set(record)


FORMAT = Format("openenv", ".jsonl", _fits, read)
