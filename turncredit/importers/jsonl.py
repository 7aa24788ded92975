"""`jsonl`: anybody's JSON lines, a line for each turn or a line for each rollout, by a mapping.

`--map KEY=FIELD` says which field of a line is `group_id`, `rollout_id`, `reward`, and either `messages` (a line is a
rollout) or `turn` and the columns of a turn (a line is a turn); a field within another one is written `a.b`. A key
that is not mapped is the field of its own name. The reward of a rollout's line is its return, that of a turn's line the
turn's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from turncredit.importers.base import Format, Report, Rollout, Skip, Source, Turn, each, finite, outcome
from turncredit.importers.lines import json_lines
from turncredit.importers.messages import text_of, turns_of

TEXTS = ("observation", "response_text", "action", "next_observation")
IDS = ("task_id", "goal")
TRUTHS = ("success", "done")
KEYS = ("group_id", "rollout_id", "reward", "messages", "turn", *TEXTS, *IDS, *TRUTHS)


def read(source: Source, report: Report, mapping: Mapping[str, str]) -> Iterator[Rollout]:
    """The rollouts of a file, or, where lines are turns, their parts."""

    plain = {key: mapping.get(key, key) for key in KEYS if "." not in mapping.get(key, key)}
    nested = {key: mapping[key].split(".") for key in KEYS if key not in plain}

    def line(where: str, row: dict[str, Any]) -> Iterator[Rollout]:
        values = {key: row.get(name) for key, name in plain.items()}
        values.update({key: _inside(row, path) for key, path in nested.items()})
        group, rollout = (_id(values[key], mapping.get(key, key)) for key in ("group_id", "rollout_id"))
        if values["reward"] is None and "reward" in mapping:
            raise Skip(f"there is no '{mapping['reward']}', mapped to reward, in {', '.join(list(row)[:8])}")
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
            raise Skip(f"neither '{mapping.get('messages', 'messages')}' nor '{mapping.get('turn', 'turn')}' in a line")
        turn: Turn = {"turn": number, "reward": reward}
        turn.update({key: text_of(values[key]) for key in TEXTS if values[key] is not None})
        if done is not None:
            turn["done"] = done
        yield Rollout(group, rollout, [turn], where, None, columns, part=True)

    yield from each(json_lines(source.path, report), report, line)


def _inside(row: Any, path: list[str]) -> Any:
    for name in path:
        row = row.get(name) if isinstance(row, dict) else None
    return row


def _id(value: Any, name: str) -> str:
    if value is None or isinstance(value, dict | list):
        raise Skip(f"'{name}' is missing or null, or no id")
    return str(value)


def _truth(value: Any, name: str) -> bool | None:
    if value is not None and not isinstance(value, bool):
        raise Skip(f"{name} is neither true nor false", repr(value)[:60])
    return value


def _fits(path: Path, record: Mapping[str, Any]) -> bool:
    del path
    return {"group_id", "rollout_id", "reward"} <= set(record)


FORMAT = Format("jsonl", ".jsonl", _fits, read, takes=KEYS)
