"""ART: `trajectories/{split}/{step}.parquet`, a row for each rollout: `group_index`, `reward`, `metadata`, `messages`.

A message has `role`, `content`, `tool_calls` (JSON) and `trainable`: whether the policy wrote it, as a choice of the
model. Source: openpipe-art 0.5.18, `utils/trajectory_logging.py`. Groups are numbered within a file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.bridges.importers.base import Format, Report, Rollout, Skip, Source, each, finite, outcome
from turncredit.bridges.importers.messages import turns_of
from turncredit.data.json_lines import parquet_rows


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file."""
    del mapping

    def row(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        if row.get("group_index") is None:
            raise Skip("group_index is missing or null")
        messages = row["messages"] or []
        if any(message.get("trainable") for message in messages):
            turns = turns_of(messages, lambda message: bool(message.get("trainable")))
        else:
            turns = turns_of(messages)
            report.note("no message is marked as trainable: every message of the assistant is a turn")
        outcome(turns, finite(row.get("reward")))
        group = f"{source.label}/{row['group_index']}"
        yield Rollout(group, f"{group}/{where.rpartition(':')[2]}", turns, where, None, {"task_id": group})

    yield from each(parquet_rows(source.path), report, row)


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return {"group_index", "reward", "messages"} <= set(record)


FORMAT = Format("art", ".parquet", _fits, read)
