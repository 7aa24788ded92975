"""What the columns of an imported table hold: `turncredit import --columns`."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from turncredit.data import tables

MEANINGS = {
    "group_id": "rollouts of one task; methods compare them",
    "rollout_id": "unique in the table",
    "turn": "0, 1, 2, ...",
    "reward": "of the turn; null on all turns of a rollout without one",
    "done": "true on the last turn of a rollout that came to its end; null where the file does not say whether it did",
    "source": "file and record",
    "task_id": "the task, where the file names it",
    "goal": "the task in words",
    "observation": "what the policy saw",
    "response_text": "all that it wrote: reasoning, text, calls",
    "action": "the calls, or the text, or what stands where actions stand",
    "next_observation": "the observation of the next turn",
    "success": "whether the rollout succeeded, where the file says so",
    "context_reset": "the context starts over before this turn",
    "prompt_ids": "tokens that entered the context since the last response",
    "response_ids": "tokens of the response",
    "response_logprobs": "their log-probabilities when they were sampled",
    "agent": "who wrote the turn, where there are several agents",
    "step": "place of the turn among all messages of such a log",
    "mistake_agent": "the agent that people hold decisive for the failure (Who&When)",
    "mistake_step": "and the step",
    "progress_before": "a score of the state before the turn, where the file has scores (verifiers' `turn_rewards`)",
    "progress": "and after it",
}


def told() -> Iterator[str]:
    """A line for each column: its name, its type (`?`: may be null), and what it holds."""
    for field in tables.schema("imported"):
        kind = f"{_type(field.type)}{'?' if field.nullable else ''}"
        yield f"{field.name:<18} {kind:<15} {MEANINGS[field.name]}"


def _type(kind: pa.DataType) -> str:
    return f"list of {kind.value_type}" if pa.types.is_list(kind) else {"string": "text"}.get(str(kind), str(kind))
