"""Transcripts: a file in which every record is a message, such as the sessions of Claude Code.

`{"role": ..., "content": ...}` a line, or `{"type": "assistant", "message": {...}, "sessionId": ...}`. Messages in a
row with one session id are a rollout, and one without an id belongs to the session before it; without such ids, all
messages of the file are. Records of one message that stand in a row (equal `message.id`: a record for each part) are
one message. Records that are no messages (Claude Code's `summary`, `file-history-snapshot`) are not read, nor are those
of sub-agents (`isSidechain`) within a session of their caller.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Record,
    Rollout,
    Together,
    each,
    group_of,
    id_of,
    outcome,
)
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import is_message
from turncredit.bridges.importers.messages import NO_TURN, turns_of

SESSIONS = ("sessionId", "session_id", "conversation_id", "thread_id")
#: records of Claude Code that name no session, and a field that they have
WITHOUT_SESSION = {"summary": "leafUuid", "file-history-snapshot": "messageId", "custom-title": "customTitle"}

NO_MESSAGE = "a record that is no message, among the messages of a transcript, is not read"
SIDECHAIN = "a message of a sub-agent (isSidechain), within the session of its caller, is not read"
APART = "a session whose messages do not stand in a row: sort the lines by session"


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file."""
    report = context.report
    together = Together(APART)

    def session(where: str, messages: list[dict[str, Any]]) -> Iterator[Rollout]:
        name = _session(messages[0]) or place_of(where.rpartition(":")[0], context)
        together.begin(name)
        own = [message for message in messages if message.get("isSidechain") is not True]
        for _ in range(len(messages) - len(own) if own else 0):
            report.note(SIDECHAIN)
        turns = turns_of(_whole(own or messages), context, where)
        outcome(turns, None)
        group = group_of(turns[0]["observation"], name, report)
        yield Rollout(group, name, turns, where, None, record=messages[0])

    def sessions() -> Iterator[tuple[str, list[dict[str, Any]]]]:
        for _, run in groupby(_messages(records, context), lambda message: message[0]):
            rows = [record for _, record in run]
            report.records += len(rows) - 1
            yield rows[0][0], [record for _, record in rows]

    yield from each(sessions(), report, session, lambda messages: together.part(_session(messages[0])))


def _messages(records: Iterable[Record], context: Context) -> Iterator[tuple[str | None, Record]]:
    """The records that are messages, each with its session or, without one, that of the message before it."""
    report = context.report
    session, found, first = None, False, ""
    for where, record in records:
        first = first or where
        if is_message(record):
            session, found = _session(record) or session, True
            yield session, (where, record)
        else:
            report.records += 1
            report.note(NO_MESSAGE)
    if first and not found:
        report.skip(first, NO_TURN)


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
    kind = record.get("type")
    if isinstance(kind, str) and WITHOUT_SESSION.get(kind, "") in record:
        return True
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
