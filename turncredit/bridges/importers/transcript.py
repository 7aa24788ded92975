"""Transcripts: a file in which every record is a message, such as the sessions of Claude Code.

`{"role": ..., "content": ...}` a line, or `{"type": "assistant", "message": {...}, "sessionId": ...}`. Messages in a
row with one session id are a rollout; without such an id, all messages of the file. Records of one message that stand
in a row (equal `message.id`: a record for each part) are one message; records that are no messages are not read.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from turncredit.bridges.importers.base import (
    BY_PROMPT,
    About,
    Context,
    Format,
    Record,
    Rollout,
    each,
    id_of,
    outcome,
    short_hash,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import is_message
from turncredit.bridges.importers.messages import turns_of

SESSIONS = ("sessionId", "session_id", "conversation_id", "thread_id")


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file."""
    report = context.report

    def session(where: str, messages: list[dict[str, Any]]) -> Iterator[Rollout]:
        others = [message for message in messages if not is_message(message)]
        for _ in others:
            report.note("a record that is no message, among the messages of a transcript, is not read")
        turns = turns_of(_whole([message for message in messages if is_message(message)]), context, where)
        outcome(turns, None)
        report.note(BY_PROMPT)
        name = _session(messages[0]) or place_of(where.rpartition(":")[0], context)
        yield Rollout(short_hash(turns[0]["observation"]), name, turns, where, None, record=messages[0])

    def sessions() -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for _, run in groupby(records, lambda record: _session(record[1])):
            rows = list(run)
            report.records += len(rows) - 1
            yield rows[0][0], [record for _, record in rows]

    yield from each(sessions(), report, session)


def _session(record: Mapping[str, Any]) -> str | None:
    return next((id_of(record[name]) for name in SESSIONS if record.get(name) is not None), None)


def _whole(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The messages, with the parts of one that are records of their own put together."""
    whole: list[dict[str, Any]] = []
    for record in messages:
        message = record["message"] if isinstance(record.get("message"), dict) else record
        before = whole[-1] if whole else {}
        lists = isinstance(message.get("content"), list) and isinstance(before.get("content"), list)
        if lists and message.get("id") is not None and message["id"] == before.get("id"):
            whole[-1] = {**before, "content": [*before["content"], *message["content"]]}
        else:
            whole.append(message)
    return whole


def _matches(record: Mapping[str, Any]) -> bool:
    if "messages" in record or "reward" in record:
        return False
    return is_message(record) or {"type", "sessionId"} <= set(record)


FORMAT = Format(
    "transcript",
    _matches,
    read,
    about=About(
        files="a message a line, such as sessions of Claude Code",
        group="the first messages",
        turns="messages of the assistant",
        reward="none",
        checked="hand-made records",
    ),
)
