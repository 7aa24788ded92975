"""Tools: actions with a name, a description and parameters, written as text or as a call in JSON.

An environment whose actions are calls declares them once (`Environment.tools`). Both spellings are one action:

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
_NO_CALL = "Malformed call: it needs the keys 'name' and 'arguments', and no others."


class Parameter(NamedTuple):
    """A parameter of a tool, which is a text. With `choices`, only these are allowed."""

    description: str
    choices: tuple[str, ...] = ()

    def schema(self) -> dict[str, Any]:
        """Its JSON schema."""
        chosen = {"enum": list(self.choices)} if self.choices else {}
        return {"type": "string", "description": self.description, **chosen}


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
            value = given[name]
            if not isinstance(value, str):
                return f"{self.name}: the argument '{name}' must be text."
            value = " ".join(value.split())
            if parameter.choices:
                value = value.lower()
                if value not in parameter.choices:
                    return f"{self.name}: the argument '{name}' must be one of {', '.join(parameter.choices)}."
            if not value:
                return f"{self.name}: the argument '{name}' is empty."
            values.append(value)
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
        tool = self._tools[call.tool]
        return tool.text.format_map(dict(zip(tool.parameters, call.arguments, strict=True)))

    def json(self, call: Call) -> str:
        """A call in JSON."""
        tool = self._tools[call.tool]
        return json.dumps({"name": call.tool, "arguments": dict(zip(tool.parameters, call.arguments, strict=True))})

    def _from_json(self, action: str) -> Call | str:
        try:
            given = json.loads(action)
        except (ValueError, RecursionError):
            return "Malformed call: it is not JSON."
        if not isinstance(given, dict) or set(given) != {"name", "arguments"}:
            return _NO_CALL
        name, arguments = given["name"], given["arguments"]
        if not isinstance(name, str) or name not in self._tools:
            return f"Unknown tool. There are {', '.join(self._tools)}."
        if not isinstance(arguments, dict):
            return "Malformed call: 'arguments' must be an object."
        return self._tools[name].check(arguments)
