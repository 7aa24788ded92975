"""Tools: actions with a name, a description and parameters, written as text or as a call in JSON.

An environment whose actions are calls declares them once (`Words.tools`). Both spellings are one action:

    refund lamp of order O57 to card
    {"name": "refund_item", "arguments": {"product": "lamp", "order": "O57", "method": "card"}}

`Toolbox.declarations` has the form in which chat templates and the OpenAI API take tools
(https://platform.openai.com/docs/guides/function-calling).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

LONGEST = 1000
"""Characters of an action; a longer one is refused unread."""

NOT_UNDERSTOOD = "Not understood."
NOT_JSON = "Malformed call: it is not JSON."


class Parameter(NamedTuple):
    """A parameter of a tool, which is a text. With `choices`, only these are allowed.

    `without` has the characters that it may not contain, because they end an action in words.
    """

    description: str
    choices: tuple[str, ...] = ()
    without: str = ""

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        schema: dict[str, Any] = {"type": "string", "description": self.description}
        if self.choices:
            schema["enum"] = list(self.choices)
        if self.without:
            schema["pattern"] = f"^[^{re.escape(self.without)}]*$"
        return schema

    def wrong(self, value: Any) -> str:
        """What is wrong with a value, as the end of a sentence; empty if nothing is."""
        if not isinstance(value, str):
            return "must be text"
        if any("\ud800" <= character <= "\udfff" for character in value):
            return "is no valid Unicode"
        if not value.strip():
            return "is empty"
        if self.choices and " ".join(value.lower().split()) not in self.choices:
            return f"must be one of {', '.join(self.choices)}"
        if any(character in self.without for character in value):
            return f"must not contain any of {' '.join(self.without)}"
        return ""


class Call(NamedTuple):
    """A call that was read: the tool's name, and its arguments in the order of its parameters."""

    tool: str
    arguments: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tool:
    """A tool. `text` is its form in words, with each parameter once in braces: `refund {product} of order {order}`."""

    name: str
    description: str
    text: str
    parameters: Mapping[str, Parameter] = field(default_factory=dict)

    def declaration(self) -> dict[str, Any]:
        """The tool with its JSON schema, as chat templates take it. All parameters are required."""
        schema = {
            "type": "object",
            "properties": {name: parameter.schema() for name, parameter in self.parameters.items()},
            "required": list(self.parameters),
            "additionalProperties": False,
        }
        function = {"name": self.name, "description": self.description, "parameters": schema}
        return {"type": "function", "function": function}

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What its form in words matches, in any case."""
        parts = re.split(r"\{(\w+)\}", self.text)
        texts = [re.escape(part) if number % 2 == 0 else f"(?P<{part}>.+?)" for number, part in enumerate(parts)]
        return re.compile("".join(texts), re.IGNORECASE)

    def check(self, given: Mapping[str, Any]) -> Call | str:
        """The call with these arguments, or what is wrong with them."""
        for name in given:
            if name not in self.parameters:
                return f"{self.name}: there is an argument that it does not have. It has {self._listed()}."
        values = []
        for name, parameter in self.parameters.items():
            if name not in given:
                return f"{self.name}: the argument '{name}' is missing."
            if wrong := parameter.wrong(given[name]):
                return f"{self.name}: the argument '{name}' {wrong}."
            value = " ".join(given[name].split())
            values.append(value.lower() if parameter.choices else value)
        return Call(self.name, tuple(values))

    def _listed(self) -> str:
        return ", ".join(self.parameters) or "none"


class Toolbox:
    """An environment's tools. Iterating gives them in their order."""

    def __init__(self, tools: Sequence[Tool]):
        self._tools = {tool.name: tool for tool in tools}

    def __iter__(self) -> Iterator[Tool]:
        return iter(self._tools.values())

    def __getitem__(self, name: str) -> Tool:
        return self._tools[name]

    def declarations(self) -> list[dict[str, Any]]:
        """All tools with their JSON schemas."""
        return [tool.declaration() for tool in self]

    def read(self, action: str) -> Call | str:
        """The call that an action spells, in words or in JSON; for any other text, what is wrong with it.

        The answer never repeats what was given, so that any text can be stored and shown.
        """
        if len(action) > LONGEST:
            return NOT_UNDERSTOOD
        if action.lstrip().startswith("{"):
            return self._from_json(action)
        words = " ".join(action.split())
        for tool in self:
            if match := tool.pattern.fullmatch(words):
                return tool.check(match.groupdict())
        return NOT_UNDERSTOOD

    def text(self, call: Call) -> str:
        """A call in words."""
        return self._tools[call.tool].text.format_map(self.arguments(call))

    def json(self, call: Call) -> str:
        """A call in JSON."""
        return json.dumps({"name": call.tool, "arguments": self.arguments(call)})

    def arguments(self, call: Call) -> dict[str, str]:
        """A call's arguments by the names of the parameters."""
        return dict(zip(self._tools[call.tool].parameters, call.arguments, strict=True))

    def call(self, value: Any, arguments: str = "arguments") -> Call | str:
        """The call that decoded JSON is, or what is wrong with it. `arguments` is the key that holds its arguments."""
        if not isinstance(value, dict) or set(value) != {"name", arguments}:
            return f"Malformed call: it needs the keys 'name' and '{arguments}', and no others."
        if not isinstance(value["name"], str) or value["name"] not in self._tools:
            return f"Unknown tool. There are {', '.join(self._tools)}."
        if not isinstance(value[arguments], dict):
            return f"Malformed call: '{arguments}' must be an object."
        return self._tools[value["name"]].check(value[arguments])

    def _from_json(self, action: str) -> Call | str:
        decoded = decode(action)
        if isinstance(decoded, str):
            return decoded
        return NOT_JSON if decoded.rest else self.call(decoded.value)


class Decoded(NamedTuple):
    """A JSON value at the start of a text, and the text after it."""

    value: Any
    rest: str


def decode(text: str) -> Decoded | str:
    """The JSON value that a text begins with; for any other text, what is wrong with it.

    Stricter than `json.loads`: a key may occur once, and NaN and Infinity are no numbers.
    """
    text = text.strip()
    try:
        value, end = _DECODER.raw_decode(text)
    except _RepeatedKey:
        return "Malformed call: a key occurs twice."
    except (ValueError, RecursionError):
        return NOT_JSON
    return Decoded(value, text[end:].strip())


class _RepeatedKey(ValueError):
    """A key that occurs twice in an object."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    out = dict(pairs)
    if len(out) < len(pairs):
        raise _RepeatedKey
    return out


def _no_number(name: str) -> Any:
    raise ValueError(name)


_DECODER = json.JSONDecoder(object_pairs_hook=_object, parse_constant=_no_number)
