"""verl: `rollout_data_dir/{step}.jsonl`, a line for each output: `input`, `output`, `gts`, `score`, `step`.

The trainer of verl 0.9 adds `uid`, the key `{uid}_{session}_{index}` of the output (source: verl 0.9.1,
`trainer/ppo/v1/trainer_base.py`): a session's outputs, which it writes one after the other, are then turns of one
rollout, and the score of the last one is the rollout's (`compute_advantage_for_multi_trajectories` reads no other).
Without `uid` a line is a rollout, and lines of a step with equal `input` are a group.

The turns within an output are told by the markers of the chat template (turncredit/bridges/importers/templates.py), or
by `--template`. verl leaves special tokens out of the text; then they are lines that hold nothing but a role.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Part,
    Record,
    Rollout,
    Skip,
    Turn,
    each,
    finite_or_none,
    id_of,
    outcome,
    short_hash,
)
from turncredit.bridges.importers.messages import chain_replies, turns_from
from turncredit.bridges.importers.said import Said
from turncredit.bridges.importers.templates import TEMPLATES, template_of

SESSION = re.compile(r"(.+)_(\d+)_(\d+)")


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file: sessions, or lines where there are none."""
    report, label = context.report, context.source.label

    def session(first: str, rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Rollout]:
        where, row = rows[-1]
        if "uid" in row and id_of(row["uid"]) is None:
            raise Skip("uid is null, or no id")
        places = [int(ids[2]) for _, output in rows if (ids := _ids(output))]
        if places != list(range(len(places))):
            raise Skip("a session without one of its outputs, or with one in another place", row["uid"])
        turns: list[Turn] = []
        for _, output in rows:
            output_turns = _turns(output, context, where, said=output is row)
            output_turns[0]["context_reset"] = True
            turns += output_turns
        chain_replies(turns, turns[-1]["next_observation"])
        outcome(turns, finite_or_none(row.get("score"), "score"))
        columns = {"task_id": short_hash(rows[0][1]["input"])}
        step = step_of(row)
        if ids := _ids(row):
            report.rollouts_in_parts = True
            if len(rows) > 1:
                report.note("a session of several outputs: its last output's score is the rollout's reward")
            yield Rollout(*ids[:2], turns, where, None, columns)
        elif "uid" in row:
            yield Rollout(f"{step}{row['uid']}", f"{label}:{first}", turns, where, None, columns)
        else:
            report.note("no uid in the file: lines of a step with equal input are a group")
            yield Rollout(f"{step}{columns['task_id']}", f"{label}:{first}", turns, where, None, columns)

    def read_one(number: str, rows: list[tuple[str, dict[str, Any]]]) -> Iterator[Rollout]:
        for rollout in session(number.rpartition(":")[2], rows):
            rollout.record = rows[-1][1]
            yield rollout

    def sessions() -> Iterator[tuple[str, list[tuple[str, dict[str, Any]]]]]:
        for _, run in groupby(records, lambda line: (_ids(line[1]) or line)[:2]):
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


def _turns(row: dict[str, Any], context: Context, where: str, *, said: bool) -> list[Turn]:
    """The turns of one output; the first one's observation is the input. `said`: how they were told is noted."""
    if not isinstance(row["input"], str) or not isinstance(row["output"], str):
        raise Skip("input and output are not text")
    if "traj_uid" in row:
        raise Skip("a line of verl-agent, which is a turn; import with --from verl-agent")
    forced = context.options.template
    template = TEMPLATES[forced] if forced else template_of(row["output"])
    pieces = template.cut(row["output"])
    if said:
        kind = f"of {template.name}" if template.known else "left of the chat template: lines that are a role"
        text = f"turns within an output told by the markers {kind}" if len(pieces) > 1 else "an output is one turn"
        context.report.note(text)
    asked = Said(ours=False, pieces=[("text", row["input"])])
    turns = turns_from([asked, *(Said(ours=ours, pieces=[("text", text)]) for ours, text in pieces)], context, where)
    for turn in turns:
        turn["context_reset"] = False
    return turns


def _matches(record: Mapping[str, Any]) -> bool:
    if not {"input", "output", "score"} <= set(record) or "traj_uid" in record:
        return False
    return (
        SESSION.fullmatch(str(record.get("uid", ""))) is not None
        or template_of(str(record["output"])).known is not None
    )


FORMAT = Format(
    "verl",
    _matches,
    read,
    about=About(
        files="rollout_data_dir/{step}.jsonl",
        group="the uid; without it, equal input in a step",
        turns="outputs of a session; within an output, roles of the chat template",
        reward="score of the last output",
        checked="code of verl 0.9.1",
    ),
)
