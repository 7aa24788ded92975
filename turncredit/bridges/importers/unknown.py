"""Records that no format matches: what they are, as far as their fields tell, and what to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import Context, Format, Record, Rollout

#: fields -> what a record with all of them is
KINDS: dict[tuple[str, ...], str] = {
    ("resolved_ids",): "outcomes of a benchmark, not rollouts (they are rewards: --rewards FILE beside the rollouts)",
    ("model_patch",): "patches, not rollouts: nothing says what the agent did",
    ("input", "expected_output"): (
        "inputs with expected outputs, not rollouts: the messages in it have neither text nor sampled tokens"
    ),
    ("input", "output", "score"): (
        "lines of verl or of verl-agent, which are alike: give --from verl if a line is a rollout, "
        "--from verl-agent if it is a turn"
    ),
}
#: fields of a task; a rollout has others as well
OF_TASKS = frozenset(
    [
        "question",
        "problem",
        "instruction",
        "problem_statement",
        "task",
        "prompt",
        "query",
        "answer",
        "ground_truth",
        "target",
        "result",
        "solution",
        "choices",
        "test",
        "tests",
        "hints_text",
        "base_commit",
        "FAIL_TO_PASS",
        "expected",
    ]
)


def why_not(record: Mapping[str, Any]) -> str:
    """Why a record is no rollout, and what to do."""
    for fields, kind in KINDS.items():
        if set(fields) <= set(record):
            return kind
    if OF_TASKS & set(record) and not any(isinstance(value, list) and len(value) > 2 for value in record.values()):
        return f"tasks, not rollouts: no field holds messages, steps or turns (its fields are {_some(record)})"
    return (
        f"a record of unknown format (its fields are {_some(record)}); say which field is which with "
        "--map messages=FIELD, or --map turn=FIELD if a record is a turn"
    )


def _some(record: Mapping[str, Any]) -> str:
    return ", ".join(str(name)[:40] for name in list(record)[:8]) or "none"


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """No rollout: a skip for each record."""
    for where, record in records:
        context.report.records += 1
        context.report.skip(where, why_not(record), unattributed=True)
    yield from ()


UNKNOWN = Format("unknown", lambda _: False, read)
