"""A message of a conversation, in any dialect: who wrote it and what it says.

A message that has content but of which no text came out is an error.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from turncredit.bridges.importers.base import Skip
from turncredit.bridges.importers.parts import PARTS, flat, identity, read_call, read_content, read_part, says_something
from turncredit.bridges.importers.said import Note, Said, canonical

#: Who wrote a message, by its role, as dialects call them.
POLICY = frozenset(["assistant", "gpt", "model", "agent", "gemini", "bot", "ai", "chatgpt", "claude", "policy", "llm"])
OTHERS = frozenset(
    [
        "user",
        "human",
        "tool",
        "function",
        "system",
        "developer",
        "environment",
        "env",
        "observation",
        "ipython",
        "tool_response",
        "function_response",
        "tool_result",
        "exit",
        "info",
        "critic",
    ]
)

#: Roles of messages that are the result of a call.
ANSWERS = frozenset(
    ["tool", "function", "tool_response", "function_response", "tool_result", "observation", "ipython", "environment"]
)

#: What neighbouring items of the Responses API are parts of: the response.
ITEM = "items"
#: fields of a message that hold what it says, beside `tool_calls`
_CONTENT = ("content", "value", "parts", "text", "output", "refusal")
_REASONING = ("reasoning_content", "reasoning", "thinking", "thinking_blocks", "reasoning_details", "thoughts")


def role_of(message: Mapping[str, Any]) -> str | None:
    """The role of a message, in whatever field its dialect has it; None for an item that has none."""
    for name in ("role", "from", "speaker"):
        if isinstance(message.get(name), str):
            return str(message[name])
    kind = message.get("type")
    if isinstance(kind, str) and kind not in PARTS and kind.lower() in POLICY | OTHERS:
        return kind
    return None


def is_message(value: Any) -> bool:
    """Whether a value is a message of a conversation, or an item of the Responses API."""
    if not isinstance(value, dict):
        return False
    if isinstance(value.get("message"), dict) and "role" in value["message"]:
        return True
    if isinstance(value.get("kwargs"), dict) and value.get("type") == "constructor":
        return True
    if role_of(value) is not None:
        return any(name in value for name in (*_CONTENT, *_REASONING, "tool_calls", "function_call", "toolCalls"))
    return isinstance(value.get("type"), str) and value["type"] in PARTS and "text" not in value


def read_message(message: Any, note: Note) -> Said:
    """What a message says. Raises Skip if it is not a message, or has content without text."""
    if not isinstance(message, dict):
        raise Skip("messages are not a list of objects with a role")
    message = _unwrapped(message)
    role = role_of(message)
    if role is None:
        return _item(message, note)
    said = Said(ours=_is_policy(role, note), joins=_whole_of(message))
    _read_reasoning(message, said, note)
    for name in _CONTENT:
        if message.get(name) not in (None, "", [], {}):
            read_content(message[name], said, note)
            break
    if message.get("refusal") and not message.get("content"):
        said.pieces = said.pieces or [("text", str(message["refusal"]))]
    _read_calls(message, said, note)
    if isinstance(message.get("audio"), dict) and not message.get("content"):
        PARTS["audio"](message["audio"], said, note)
    if role in ANSWERS and not said.answers:
        said.answers.append(identity(message, "tool_call_id", "call_id", "id") or _ids_of(message))
        if isinstance(message.get("error"), dict | str) and message["error"]:  # Inspect: what the tool raised
            said.pieces.append(("text", flat(_error_text(message["error"]), note)))
    if not any(text for _, text in said.pieces) and says_something(
        {name: message.get(name) for name in (*_CONTENT, "tool_calls")}
    ):
        raise Skip("a message that has content, of which no text came out", canonical(message)[:80])
    return said


def _error_text(error: Any) -> Any:
    return error.get("message", error) if isinstance(error, dict) else error


def _ids_of(message: Mapping[str, Any]) -> str | None:
    """The id in `tool_call_ids`, where there is one alone (SWE-agent)."""
    ids = message.get("tool_call_ids")
    return str(ids[0]) if isinstance(ids, list) and len(ids) == 1 else None


def _unwrapped(message: dict[str, Any]) -> dict[str, Any]:
    """The message within an event `{"type": "assistant", "message": {...}}` or within LangChain's constructor."""
    inner = message.get("message")
    if isinstance(inner, dict) and "role" in inner:
        return inner
    if message.get("type") == "constructor" and isinstance(message.get("kwargs"), dict):
        return dict(message["kwargs"])
    return message


def _whole_of(message: Mapping[str, Any]) -> str | None:
    """What a message is a part of: a response of the Responses API, which is several items, or one of Anthropic's, of
    which Claude Code writes each part with the same id."""
    if message.get("type") != "message":
        return None
    if "model" in message or "stop_reason" in message:
        return identity(message, "id")
    return ITEM


def _is_policy(role: str, note: Note) -> bool:
    word = role.lower()
    if word in POLICY:
        return True
    if word not in OTHERS:
        note(f"the role '{role[:40]}', which is not known, is read as the environment's")
    return False


def _item(message: Mapping[str, Any], note: Note) -> Said:
    """An item of the Responses API that has no role: reasoning and calls are the policy's, results are not."""
    kind = message.get("type")
    if not isinstance(kind, str) or (kind not in PARTS and "message" not in message):
        raise Skip("messages are not a list of objects with a role", canonical(message)[:80])
    said = Said(ours=True, joins=ITEM)
    read_part(message, said, note)
    said.ours = not said.answers
    return said


def _read_reasoning(message: Mapping[str, Any], said: Said, note: Note) -> None:
    """The first field with reasoning: routers repeat it in several."""
    for name in _REASONING:
        value = message.get(name)
        if not value or isinstance(value, bool):
            continue
        inner = Said(ours=True)
        read_content(value, inner, note)
        if inner.text():
            said.pieces.append(("reasoning", inner.text()))
            return


def _read_calls(message: Mapping[str, Any], said: Said, note: Note) -> None:
    calls = message.get("tool_calls") or message.get("toolCalls") or []
    if isinstance(calls, str):
        calls = _decoded(calls) or [{"name": "", "arguments": calls}]
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        raise Skip("tool_calls are not a list", type(calls).__name__)
    for item in calls:
        call = _decoded(item) or item if isinstance(item, str) else item  # a text of JSON each: verifiers 0.1
        read_call(call if isinstance(call, dict) else {"name": call}, said, note)
    if isinstance(message.get("function_call"), dict):
        read_call(message["function_call"], said, note)


def _decoded(text: str) -> Any:
    """The object or list that a text of JSON holds; None for another text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict | list) else None
