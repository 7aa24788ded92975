"""Chat messages -> turns: every message that the policy wrote is one, and what came before it is its observation."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

from turncredit.bridges.importers.base import Skip, Turn

Message = dict[str, Any]


def text_of(content: Any) -> str:
    """A message's content as text: a string, or the text parts of a list; other values as JSON."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list) and all(isinstance(part, dict) and "type" in part for part in content):
        return "\n".join(str(part["text"]) for part in content if part["type"] == "text" and "text" in part)
    return json.dumps(content, ensure_ascii=False, sort_keys=True, default=str)


def calls_of(message: Message) -> str:
    """A message's tool calls as lines `{"name": ..., "arguments": ...}`; empty if it has none."""
    calls = message.get("tool_calls") or []
    if isinstance(calls, str):
        calls = json.loads(calls)
    lines = []
    for call in calls:
        function = call.get("function") or call
        lines.append(text_of({"name": function.get("name"), "arguments": function.get("arguments")}))
    return "\n".join(lines)


def response_of(message: Message) -> Turn:
    """`response_text` (reasoning, content, calls) and `action` (the calls; without any, the content)."""
    content, calls = text_of(message.get("content")), calls_of(message)
    parts = (text_of(message.get("reasoning_content")), content, calls)
    return {"response_text": "\n".join(part for part in parts if part), "action": calls or content}


def turns_of(
    messages: Any, ours: Callable[[Message], bool] = lambda message: message["role"] == "assistant"
) -> list[Turn]:
    """The turns of a conversation, in order: `observation`, `response_text`, `action`, `next_observation`.

    `ours` tells which messages the policy wrote. An observation is the text of all messages since the turn before.
    Raises Skip for messages that are none, and for a conversation in which the policy wrote nothing.
    """
    if not isinstance(messages, list) or not all(
        isinstance(message, dict) and "role" in message for message in messages
    ):
        raise Skip("messages are not a list of objects with a role")
    turns: list[Turn] = []
    since: list[str] = []
    for message in messages:
        if ours(message):
            turns.append({"observation": "\n".join(since), **response_of(message)})
            since = []
        else:
            since.append(text_of(message.get("content")) or calls_of(message))
    if not turns:
        raise Skip("no turn: the policy wrote no message")
    chain_observations(turns, "\n".join(since))
    return turns


def chain_observations(turns: Sequence[Turn], last: str) -> None:
    """Give every turn the next one's observation as its `next_observation`; the last one gets `last`."""
    for turn, after in zip(turns, [*(turn["observation"] for turn in turns[1:]), last], strict=True):
        turn["next_observation"] = after
