"""How a response writes a tool call: the formats of chat models, and their strict reading.

| format | a call | models |
|---|---|---|
| `hermes` | `<tool_call>`, JSON with `name` and `arguments`, `</tool_call>` | Qwen2.5, Qwen3, Hermes |
| `smollm2` | `<tool_call>`, a JSON array of such objects, `</tool_call>` | SmolLM2 |
| `llama3` | JSON with `name` and `parameters` | Llama 3.1 and later |
| `json` | JSON with `name` and `arguments` | any other |

Sources: the chat templates of Qwen/Qwen2.5-7B-Instruct, Qwen/Qwen3-8B and meta-llama/Llama-3.2-3B-Instruct; the model
card of HuggingFaceTB/SmolLM2-1.7B-Instruct (function calling).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple

from turncredit.data.tools import LONGEST, NOT_JSON, Call, Toolbox, decode

OPEN, CLOSE = "<tool_call>", "</tool_call>"
_THINK, _THOUGHT = "<think>", "</think>"

NO_CALL = "There is no tool call."
TWO_CALLS = "There is more than one tool call."
NOT_CLOSED = "The tool call is not closed."
BEFORE, AFTER = "There is text before the tool call.", "There is text after the tool call."
THINKING = "The thought is not closed."
TOO_LONG = f"The tool call is longer than {LONGEST} characters."
NO_ARRAY = "Malformed call: it must stand in an array."
NOT_PLAIN = "An argument has words that belong to the form of the action."


class Format(NamedTuple):
    """How a call is written. `before` and `after` stand around its JSON; `arguments` is the key of its arguments."""

    name: str
    before: str = ""
    after: str = ""
    arguments: str = "arguments"

    @property
    def tagged(self) -> bool:
        """Whether a call stands between tags, so that text may precede it."""
        return OPEN in self.before

    @property
    def listed(self) -> bool:
        """Whether calls stand in a JSON array."""
        return self.before.endswith("[")

    def write(self, name: str, arguments: Mapping[str, str]) -> str:
        """A call."""
        return f"{self.before}{json.dumps({'name': name, self.arguments: arguments}, ensure_ascii=False)}{self.after}"


FORMATS = {
    one.name: one
    for one in (
        Format("hermes", f"{OPEN}\n", f"\n{CLOSE}"),
        Format("smollm2", f"{OPEN}[", f"]{CLOSE}"),
        Format("llama3", arguments="parameters"),
        Format("json"),
    )
}


class _Malformed(Exception):
    """A response that is not one tool call; its text says why."""


def read(text: str, form: Format, tools: Toolbox) -> Call | str:
    """The one call of a response, or what is wrong with the response, in one sentence.

    A thought in `<think>` is skipped. Text before the call is allowed where calls have tags, as in the models' own
    templates; text after it never is. The answer never repeats what was given, so it can be stored and shown.
    """
    try:
        value = _value(text, form)
    except _Malformed as error:
        return str(error)
    call = tools.call(value, form.arguments)
    if isinstance(call, Call) and tools.read(tools.text(call)) != call:
        return NOT_PLAIN
    return call


def _value(text: str, form: Format) -> Any:
    """The decoded JSON of the one call in a response."""
    said = text.rpartition(_THOUGHT)[2].strip()
    if _THINK in said:
        raise _Malformed(THINKING)
    piece = _between_tags(said) if form.tagged else said
    if not form.tagged and not piece.startswith("{"):
        raise _Malformed(BEFORE if "{" in piece else NO_CALL)
    if len(piece) > LONGEST:
        raise _Malformed(TOO_LONG)
    decoded = decode(piece)
    if isinstance(decoded, str):
        raise _Malformed(decoded)
    if decoded.rest:
        raise _Malformed(NOT_JSON if form.tagged else TWO_CALLS if decoded.rest.startswith("{") else AFTER)
    return _only(decoded.value) if form.listed else decoded.value


def _between_tags(said: str) -> str:
    """What stands between the tags of the only call."""
    _, *calls = said.split(OPEN)
    if len(calls) != 1:
        raise _Malformed(TWO_CALLS if calls else NO_CALL)
    inside, closing, after = calls[0].partition(CLOSE)
    if not closing:
        raise _Malformed(NOT_CLOSED)
    if after.strip():
        raise _Malformed(AFTER)
    return inside


def _only(calls: Any) -> Any:
    """The only element of an array."""
    if not isinstance(calls, list):
        raise _Malformed(NO_ARRAY)
    if len(calls) != 1:
        raise _Malformed(TWO_CALLS if calls else NO_CALL)
    return calls[0]
