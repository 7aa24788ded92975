"""verl: `rollout_data_dir/{step}.jsonl`, a line for each output: `input`, `output`, `gts`, `score`, `step`.

The trainer of verl 0.9 adds `uid`, the key `{uid}_{session}_{index}` of the output (source: verl 0.9.1,
`trainer/ppo/v1/trainer_base.py`): a session's outputs, which it writes one after the other, are then turns of one
rollout, and the score of the last one is the rollout's (`compute_advantage_for_multi_trajectories` reads no other).
Without `uid` a line is a rollout, and lines of a step with equal `input` are a group.

The turns within an output are told by the markers of the chat template. verl leaves special tokens out of the text;
then they are lines that hold nothing but a role.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from itertools import groupby
from pathlib import Path
from typing import Any

from turncredit.bridges.importers.base import (
    Format,
    Part,
    Report,
    Rollout,
    Skip,
    Source,
    Turn,
    each,
    finite,
    id_of,
    outcome,
)
from turncredit.bridges.importers.messages import chain_observations
from turncredit.data.json_lines import json_lines

SESSION = re.compile(r"(.+)_(\d+)_(\d+)")
#: `<|im_start|>role\n`, `<|start_header_id|>role<|end_header_id|>\n\n`: what begins a message, and what ends one
MARKED = re.compile(r"(?:<\|im_start\|>|<\|start_header_id\|>)(\w+)(?:<\|end_header_id\|>)?\s*\n")
ENDS = re.compile(r"(?:<\|im_end\|>|<\|eot_id\|>|<\|endoftext\|>)\s*")
BARE = re.compile(r"(?:^|(?<=\n))(user|tool|assistant|system)\n")


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file: sessions, or lines where there are none."""
    del mapping
    lines = json_lines(source.path, report)

    def session(first: str, rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Rollout]:
        where, row = rows[-1]
        if "uid" in row and id_of(row["uid"]) is None:
            raise Skip("uid is null, or no id")
        places = [int(ids[2]) for _, output in rows if (ids := _ids(output))]
        if places != list(range(len(places))):
            raise Skip("a session without one of its outputs, or with one in another place", row["uid"])
        turns: list[Turn] = []
        for _, output in rows:
            output_turns = _turns(output, report if output is row else None)
            output_turns[0]["context_reset"] = True
            turns += output_turns
        chain_observations(turns, turns[-1]["next_observation"])
        outcome(turns, finite(row.get("score"), "score"))
        columns = {"task_id": _task(rows[0][1]["input"])}
        step = step_of(row)
        if ids := _ids(row):
            report.rollouts_in_parts = True
            if len(rows) > 1:
                report.note("a session of several outputs: its last output's score is the rollout's reward")
            yield Rollout(*ids[:2], turns, where, None, columns)
        elif "uid" in row:
            yield Rollout(f"{step}{row['uid']}", f"{source.label}:{first}", turns, where, None, columns)
        else:
            report.note("no uid in the file: lines of a step with equal input are a group")
            yield Rollout(f"{step}{columns['task_id']}", f"{source.label}:{first}", turns, where, None, columns)

    def read_one(number: str, rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Rollout]:
        yield from session(number.rpartition(":")[2], rows)

    def sessions() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
        for _, run in groupby(lines, lambda line: (_ids(line[1]) or line)[:2]):
            rows = list(run)
            report.records += len(rows) - 1
            yield rows[0][0], rows

    yield from each(sessions(), report, read_one, part_of=lambda rows: _part(rows[0][1]))


def step_of(row: Mapping[str, Any]) -> str:
    """What ids begin with, since uids are those of a step: `3/`; empty where the line does not say."""
    return f"{row['step']}/" if "step" in row else ""


def _ids(row: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Group, rollout and place in it of a session's output; None for one that is a rollout."""
    key = SESSION.fullmatch(str(row.get("uid", "")))
    return (f"{step_of(row)}{key[1]}", f"{step_of(row)}{key[1]}_{key[2]}", key[3]) if key else None


def _part(row: Mapping[str, Any]) -> Part | None:
    """Of which rollout an output is a part; None for one that is a rollout."""
    if ids := _ids(row):
        return Part(ids[1])
    return Part(None) if "uid" in row and id_of(row["uid"]) is None else None


def _task(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:16]


def _turns(row: dict[str, Any], report: Report | None) -> list[Turn]:
    """The turns of one output; the first one's observation is the input."""
    if not isinstance(row["input"], str) or not isinstance(row["output"], str):
        raise Skip("input and output are not text")
    if "traj_uid" in row:
        raise Skip("a line of verl-agent, which is a turn; import with --from verl-agent")
    pattern = MARKED if MARKED.search(row["output"]) else BARE
    parts = pattern.split(row["output"])
    if report is not None:
        kind = "of the chat template" if pattern is MARKED else "left of the chat template: lines that are a role"
        text = f"turns within an output told by the markers {kind}" if len(parts) > 1 else "an output is one turn"
        report.note(text)
    messages = [("assistant", parts[0]), *zip(parts[1::2], parts[2::2], strict=True)]
    turns: list[Turn] = []
    since = [row["input"]]
    for role, raw in messages:
        text = ENDS.sub("", raw).strip("\n")
        if role == "assistant":
            turns.append(
                {"observation": "\n".join(since), "response_text": text, "action": text, "context_reset": False}
            )
            since = []
        else:
            since.append(text)
    chain_observations(turns, "\n".join(since))
    return turns


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    has_columns = {"input", "output", "score"} <= set(record)
    return has_columns and SESSION.fullmatch(str(record.get("uid", ""))) is not None and "traj_uid" not in record


FORMAT = Format("verl", ".jsonl", _fits, read)
