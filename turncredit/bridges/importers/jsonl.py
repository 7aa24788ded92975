"""`jsonl`: anybody's JSON lines, a line for each turn or a line for each rollout, by a mapping.

`--map KEY=FIELD` says which field of a line is `group_id`, `rollout_id`, `reward`, and either `messages` (a line is a
rollout) or `turn` and the columns of a turn (a line is a turn); a field within another one is written `a.b`, which is
also one whose own name is `a.b`. A key that is not mapped is the field of its own name. The reward of a rollout's line
is its return, that of a turn's line the turn's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
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
from turncredit.bridges.importers.messages import text_of, turns_of
from turncredit.data.json_lines import json_lines

TEXTS = ("observation", "response_text", "action", "next_observation")
IDS = ("task_id", "goal")
TRUTHS = ("success", "done")
MOST_FIELDS = 1000  # that are remembered for a message
KEYS = ("group_id", "rollout_id", "reward", "messages", "turn", *TEXTS, *IDS, *TRUTHS)


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file, or, where lines are turns, their parts."""
    names = {key: mapping.get(key, key) for key in KEYS}

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        values = {key: _inside(row, name) for key, name in names.items()}
        for key, name in mapping.items():
            if values[key] is None and not _has(row, name):
                report.note(f"--map {key}={name}: a record has no '{name}'")
                report.fields.update(dict.fromkeys(islice(_fields(row), MOST_FIELDS - len(report.fields))))
            else:
                report.mapped.add(key)
        group, rollout = (_id(values[key], names[key]) for key in ("group_id", "rollout_id"))
        reward = finite(values["reward"])
        columns: dict[str, Any] = {key: str(values[key]) for key in IDS if values[key] is not None}
        success, done = (_truth(values[key], key) for key in TRUTHS)
        if success is not None:
            columns["success"] = success
        messages = values["messages"]
        if messages is not None:
            turns = turns_of(messages)
            outcome(turns, reward)
            yield Rollout(group, rollout, turns, where, done, columns)
            return
        number = values["turn"]
        if number is None:
            raise Skip(f"neither '{names['messages']}' nor '{names['turn']}' in a line")
        turn: Turn = {"turn": number, "reward": reward}
        turn.update({key: text_of(values[key]) for key in TEXTS if values[key] is not None})
        if done is not None:
            turn["done"] = done
        yield Rollout(group, rollout, [turn], where, None, columns, part=True)

    def part_of(row: dict[str, Any]) -> Part | None:
        rollout, messages = (_inside(row, names[key]) for key in ("rollout_id", "messages"))
        return Part(id_of(rollout)) if messages is None else None

    yield from each(json_lines(source.path, report), report, line, part_of)


def _inside(row: Any, name: str) -> Any:
    """The field `name`, or `b` in `a` for `a.b`; None where there is neither."""
    if name in row or "." not in name:
        return row.get(name)
    for inner in name.split("."):
        row = row.get(inner) if isinstance(row, dict) else None
    return row


def _has(row: Any, name: str) -> bool:
    """Whether there is the field that `_inside` reads, be it null."""
    *outer, last = [name] if name in row else name.split(".")
    for inner in outer:
        row = row.get(inner) if isinstance(row, dict) else None
    return isinstance(row, dict) and last in row


def _fields(row: Mapping[str, Any]) -> Iterator[str]:
    """The names of the fields and of those within them, as `--map` has them."""
    for name, value in row.items():
        yield name
        if isinstance(value, dict):
            yield from (f"{name}.{inner}" for inner in value)


def _id(value: Any, name: str) -> str:
    text = id_of(value)
    if text is None:
        raise Skip(f"'{name}' is missing or null, or no id")
    return text


def _truth(value: Any, name: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise Skip(f"{name} is neither true nor false", repr(value)[:60])
    return value


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return {"group_id", "rollout_id", "reward"} <= set(record)


FORMAT = Format("jsonl", ".jsonl", _fits, read, takes=KEYS)
