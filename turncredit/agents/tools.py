"""The agent that calls tools: an append-only conversation of tool calls and their results.

Where it can, the chat template tells the model of the tools and renders the results; its own format of a call is found
by rendering one. A template without tools gets an instruction of ours. A tokenizer built from scratch has the markers
of `transcript`. The tokens of a response stay in the context as they were sampled.

A call becomes the environment's action in words, so judges, methods and replay read it as any other agent's action.
**Only a well-formed call is carried out**: the action of any other response is empty, which every environment refuses,
and the model is told what was wrong.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

import pyarrow as pa
from pydantic import Field

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, Prompt, outcome_after_goal
from turncredit.agents.tool_calls import FORMATS, Format, read
from turncredit.agents.transcript import Transcript, markup
from turncredit.data.env_wording import Words
from turncredit.data.tools import Call, Toolbox
from turncredit.errors import UserError

_VALUE = "a value"
_PROBE = {"text": _VALUE}
_USER, _ID = "\x01user\x01", "call00000"
_THINK = "<think>"


class Settings(AgentSettings):
    """How calls are written."""

    format: Literal["auto", "hermes", "llama3", "smollm2", "json"] = Field(
        "auto", description="auto: the chat template's own, else json; any other is asked for by an instruction"
    )


class Style(NamedTuple):
    """How a conversation with tools is written: its prompts, as `markup` has them, and the format of calls.

    `lead` stands before the call in a demonstrated response, `space` before every argument.
    """

    first: Callable[[str, str], str]
    later: Callable[[str], str]
    form: Format
    lead: str = ""
    space: str = ""


class Tools(Transcript):
    """A transcript whose responses are tool calls."""

    def __init__(self, encoder: Encoder, style: Style, tools: Toolbox):
        super().__init__(encoder, style.first, style.later)
        self._style, self._tools = style, tools

    def parse(self, text: str) -> Parsed:
        """The call's action in words, or an empty action and what is wrong (`tool_error`)."""
        call = read(text, self._style.form, self._tools)
        if isinstance(call, str):
            return Parsed("", False, {"tool_name": None, "tool_arguments": None, "tool_error": call})
        arguments = json.dumps(self._tools.arguments(call), ensure_ascii=False)
        columns = {"tool_name": call.tool, "tool_arguments": arguments, "tool_error": None}
        return Parsed(self._tools.text(call), True, columns)

    def follow(
        self, response_ids: Sequence[int], parsed: Parsed, observation: str, admissible: Sequence[str]
    ) -> Prompt:
        """The tool's result; after a malformed call what was wrong, then what the environment said."""
        error = parsed.columns.get("tool_error")
        return super().follow(response_ids, parsed, f"{error}\n{observation}" if error else observation, admissible)

    def target(self, turn: Mapping[str, Any]) -> str:
        """The action as a call. Noise that is no call is shown as it is.

        Raises UserError for an imitated action that is not in the form of the environment's tools.
        """
        call, style = self._tools.read(turn["action"]), self._style
        if isinstance(call, Call) and self._tools.text(call) == turn["action"]:
            arguments = {name: f"{style.space}{value}" for name, value in self._tools.arguments(call).items()}
            return style.lead + style.form.write(call.tool, arguments)
        if turn.get("imitate", True):
            forms = ", ".join(tool.text for tool in self._tools)
            raise UserError(
                f"agent 'tools': the demonstrated action {turn['action']!r} is not a call of the environment's "
                f"tools; their forms are {forms} (a setting such as `actions` may choose another form)"
            )
        return turn["action"]


def make(encoder: Encoder, settings: Settings, words: Words) -> Callable[[], Tools]:
    """Tool-calling agents for this tokenizer. Raises UserError for an environment that declares no tools."""
    tools = words.tools
    if tools is None:
        raise UserError(f"the agent 'tools' finds no tools in {words.game} (Words.tools); take another agent")
    style = _style(encoder, settings.format, words, tools)
    return lambda: Tools(encoder, style, tools)


def _style(encoder: Encoder, form: str, words: Words, tools: Toolbox) -> Style:
    if not encoder.has_chat_template:
        # With the space, names are the same tokens in calls and in observations.
        first, later = markup(encoder, "")
        return Style(first, later, FORMATS["json" if form == "auto" else form], space=" ")
    if form == "auto" and (style := _of_template(encoder, words, tools)) is not None:
        return style
    chosen = FORMATS["json" if form == "auto" else form]
    first, later = markup(encoder, instruction(words, chosen, tools))
    return Style(first, later, chosen)


def instruction(words: Words, form: Format, tools: Toolbox) -> str:
    """The system prompt for a chat model whose template does not tell of tools."""
    schemas = "\n".join(json.dumps(one["function"]) for one in tools.declarations())
    return (
        f"{words.setting} Reply to every message with one tool call in this form and nothing else:\n"
        f"{form.write('NAME', {'PARAMETER': 'VALUE'})}\nThe tools, with JSON schemas of their parameters:\n{schemas}\n"
    )


def _of_template(encoder: Encoder, words: Words, tools: Toolbox) -> Style | None:
    """The style of the tokenizer's chat template; None where the template ignores tools.

    Raises UserError where it writes calls in a format that is not known here.
    """
    declared = tools.declarations()
    user = {"role": "user", "content": _USER}
    opening = encoder.chat([user], tools=declared)
    if opening == encoder.chat([user]):
        return None
    function = {"name": "probe", "arguments": _PROBE}
    call = {"role": "assistant", "content": "", "tool_calls": [{"type": "function", "id": _ID, "function": function}]}

    def after_call(result: str) -> str:
        message = {"role": "tool", "name": "probe", "tool_call_id": _ID, "content": result}
        return encoder.chat([user, call, message], tools=declared)

    whole = after_call("")
    form = next((one for one in FORMATS.values() if one.write("probe", _PROBE) in whole), None)
    if form is None:
        raise UserError(
            "agent 'tools': the chat template writes tool calls in a format that is not known here; set "
            "agent.tools.format to json"
        )
    written = form.write("probe", _PROBE)
    before, after = opening.split(_USER)
    preamble = f"{words.setting} Reply to every message with one tool call.\n"

    def first(goal: str, observation: str) -> str:
        return f"{before}{preamble}Task: {goal}\n{observation}{after}"

    def later(observation: str) -> str:
        rest = after_call(observation).partition(written)[2]
        eos = encoder.eos_text  # type: ignore[attr-defined]
        return rest.split(eos, 1)[1] if eos in rest else rest

    return Style(first, later, form, lead=_lead(opening, whole.partition(written)[0]))


def _lead(opening: str, before_call: str) -> str:
    """What the template puts between the start of the assistant's reply and a call, such as an empty thought."""
    if before_call.startswith(opening):
        return before_call[len(opening) :]
    # The template opens a thought where the model is to reply: a demonstration, which has none, closes it.
    return "</think>\n\n" if opening.rstrip().endswith(_THINK) else ""


def around_arguments(words: Words) -> tuple[str, ...]:
    """The texts of calls in JSON around their arguments, so that a call is as short as its action in words."""
    written = [FORMATS["json"].write(tool.name, dict.fromkeys(tool.parameters, _VALUE)) for tool in words.tools or ()]
    return tuple(dict.fromkeys(piece for text in written for piece in text.split(_VALUE)))


AGENT = AgentSpec(
    "tools",
    make,
    Settings,
    turn_columns={"tool_name": pa.string(), "tool_arguments": pa.string(), "tool_error": pa.string()},
    vocabulary=around_arguments,
    hindsight=outcome_after_goal,
    plays=lambda words: words.tools is not None,
    append_only=True,
)
