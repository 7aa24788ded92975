"""What a message says: its pieces in order, and a policy's response made of them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from turncredit.bridges.importers.base import Turn

Kind = Literal["reasoning", "text", "call", "result"]
Piece = tuple[Kind, str]
Note = Callable[[str], None]


@dataclass
class Said:
    """A message: who wrote it, and its pieces in order.

    ours       whether the policy wrote it
    calls      ids of the tool calls in it, None for one without
    answers    ids of the calls that its results answer, None for one that does not say
    columns    of its turn, where the policy wrote it: tokens, a reward, another action
    joins      what it is a part of, where one response is several messages: they become one turn
    """

    ours: bool
    pieces: list[Piece] = field(default_factory=list)
    calls: list[str | None] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    columns: Turn = field(default_factory=dict)
    joins: str | None = None

    def text(self) -> str:
        """All pieces, one below the other."""
        return "\n".join([text for _, text in self.pieces if text])

    def response(self) -> Response:
        """The pieces as the response of a policy."""
        texts: dict[str, list[str]] = {"reasoning": [], "text": [], "call": [], "result": []}
        for kind, text in self.pieces:
            if text:
                texts[kind].append(text)
        said = "\n".join(texts["text"])
        text = without_thought(said)
        return Response(
            "\n".join([*texts["reasoning"], *texts["text"], *texts["call"]]),
            text,
            "\n".join(texts["call"] or calls_in(text)),
            "\n".join(texts["result"]),
            thought=len(text) < len(said),
        )


class Response(NamedTuple):
    """What a policy wrote.

    whole    reasoning, text and calls: the column `response_text`
    text     the text alone, without a thought that it begins with
    calls    the tool calls, a line each, as parts or as markup in the text; empty without any
    results  of calls that a server answered within the message: the environment's, and not in `whole`
    thought  whether the text began with a thought
    """

    whole: str
    text: str
    calls: str
    results: str
    thought: bool

    @property
    def action(self) -> str:
        """The calls; without any, the text."""
        return self.calls or self.text


#: Thoughts at the beginning of a text, as reasoning models and prompts have them. `<think>` may stand in the prompt.
_THOUGHTS = re.compile(r"(?:\s*<(think|thinking|reasoning)>.*?</\1>)+\s*", re.DOTALL)
_BEGINS = re.compile(r"\s*<(?:think|thinking|reasoning)>")


def without_thought(text: str) -> str:
    """The text after the thoughts that it begins with; one that does not end is no thought."""
    if thoughts := _THOUGHTS.match(text):
        return text[thoughts.end() :]
    before, closed, after = text.partition("</think>")
    return after.lstrip() if closed and "<think>" not in before and "```" not in before else text


def begins_a_thought(text: Any) -> bool:
    """Whether a text begins with the tag of a thought."""
    return isinstance(text, str) and _BEGINS.match(text) is not None


def spoken(text: Any) -> Turn:
    """What a turn says whose response is this text alone: its `action` is what follows the thought."""
    action = without_thought(text) if isinstance(text, str) else text
    return {"response_text": text, "action": action, "_says": True, "_thought": action != text}


_JSON = json.JSONEncoder(ensure_ascii=False, sort_keys=True, default=str)


def canonical(value: Any) -> str:
    """JSON with sorted keys, in one line."""
    return _JSON.encode(value)


def call_text(name: Any, arguments: Any) -> str:
    """A tool call as `name {"argument": value}`: arguments as canonical JSON, whether they came as text or not."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            return f"{name} {arguments.strip()}".strip()
    return f"{name} {canonical({} if arguments is None else arguments)}"


#: Calls within text: `<tool_call>{"name": ..., "arguments": ...}</tool_call>` (Hermes, Qwen),
#: `<function=NAME><parameter=KEY>VALUE</parameter></function>` (Qwen3-Coder, OpenHands), `[TOOL_CALLS] [{...}]`
#: (Mistral)
_TAGGED = re.compile(r"<tool_call>\s*(\{.*?\})\s*</tool_call>|\[TOOL_CALLS\]\s*(\[.*?\}\s*\])", re.DOTALL)
_FUNCTION = re.compile(r"<function=([^>\s]+)>(.*?)(?:</function>|\Z)", re.DOTALL)
_PARAMETER = re.compile(r"<parameter=([^>\s]+)>\n?(.*?)\n?</parameter>", re.DOTALL)


def calls_in(text: str) -> list[str]:
    """The tool calls that a response has as markup in its text, as `call_text` gives them."""
    if "<function=" in text:
        return [call_text(found[1], dict(_PARAMETER.findall(found[2]))) for found in _FUNCTION.finditer(text)]
    if "<tool_call>" not in text and "[TOOL_CALLS]" not in text:
        return []
    calls = []
    for found in _TAGGED.finditer(text):
        try:
            value = json.loads(found[1] or found[2])
        except (ValueError, RecursionError):
            continue
        for call in value if isinstance(value, list) else [value]:
            if isinstance(call, dict) and "name" in call:
                calls.append(call_text(call["name"], call.get("arguments", call.get("parameters"))))
    return calls
