"""What a message says, in any dialect: reasoning, text, tool calls and results, as pieces of text.

One table, `PARTS`, has the types of parts of chat completions, Responses, Anthropic, Gemini, Vercel's SDK and Inspect.
Nothing is dropped: a part of an unknown type is shown as JSON and noted, an image or a file as a mark with the hash of
its bytes or address, and a message that has content but of which no text came out is an error.

Sources of the types: https://platform.openai.com/docs/api-reference (chat, responses),
https://docs.anthropic.com/en/api/messages, https://ai.google.dev/api/caching#Part,
https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message, inspect_ai `model/_chat_message.py`.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from turncredit.bridges.importers.base import Skip, Turn

Kind = Literal["reasoning", "text", "call", "result"]
Piece = tuple[Kind, str]
Note = Callable[[str], None]

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


@dataclass
class Said:
    """A message: who wrote it, and its pieces in order.

    ours       whether the policy wrote it
    calls      ids of the tool calls in it, None for one without
    answers    ids of the calls that its results answer, None for one that does not say
    columns    of its turn, where the policy wrote it: tokens, a reward, another action
    joins      whether it goes on with the response before it: an item of the Responses API
    """

    ours: bool
    pieces: list[Piece] = field(default_factory=list)
    calls: list[str | None] = field(default_factory=list)
    answers: list[str | None] = field(default_factory=list)
    columns: Turn = field(default_factory=dict)
    joins: bool = False

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
        return Response(
            "\n".join([*texts["reasoning"], *texts["text"], *texts["call"]]),
            said,
            "\n".join(texts["call"] or calls_in(said)),
            "\n".join(texts["result"]),
        )


class Response(NamedTuple):
    """What a policy wrote.

    whole    reasoning, text and calls: the column `response_text`
    text     the text alone
    calls    the tool calls, a line each, as parts or as markup in the text; empty without any
    results  of calls that a server answered within the message: the environment's, and not in `whole`
    """

    whole: str
    text: str
    calls: str
    results: str

    @property
    def action(self) -> str:
        """The calls; without any, the text."""
        return self.calls or self.text


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


def _first(part: Mapping[str, Any], *names: str) -> Any:
    return next((part[name] for name in names if part.get(name) is not None), None)


def _text(*names: str) -> Callable[[Mapping[str, Any], Said, Note], None]:
    return _show("text", *names)


def _reasoning(*names: str) -> Callable[[Mapping[str, Any], Said, Note], None]:
    return _show("reasoning", *names)


def _show(kind: Kind, *names: str) -> Callable[[Mapping[str, Any], Said, Note], None]:
    def show(part: Mapping[str, Any], said: Said, note: Note) -> None:
        for name in names:
            if part.get(name):
                said.pieces.append((kind, flat(part[name], note)))

    return show


def _sealed(part: Mapping[str, Any], said: Said, note: Note) -> None:
    """Reasoning that is encrypted, or of which only a signature is left, beside what of it can be read."""
    _reasoning("thinking", "summary", "text", "reasoning", "content")(part, said, note)
    sealed = _first(part, "data", "encrypted_content", "signature")
    if sealed and not any(kind == "reasoning" and text for kind, text in said.pieces):
        said.pieces.append(("reasoning", _mark("reasoning", sealed)))


def _call(part: Mapping[str, Any], said: Said, note: Note) -> None:
    function = part.get("function")
    inner = function if isinstance(function, dict) else part
    name = _first(inner, "name", "tool_name", "toolName", "function_name", "function") or part.get("type")
    arguments = _first(
        inner, "arguments", "input", "args", "kwargs", "parameters", "action", "queries", "code", "query"
    )
    said.pieces.append(("call", call_text(name, arguments)))
    said.calls.append(_identity(part, "call_id", "tool_call_id", "toolCallId", "id"))
    for answer in ("output", "result", "results", "outputs"):  # of what the server called itself
        if part.get(answer):
            said.pieces.append(("result", flat(part[answer], note)))


def _result(part: Mapping[str, Any], said: Said, note: Note) -> None:
    value = _first(part, "content", "output", "result", "response")
    said.pieces.append(("result", flat(value, note)))
    said.answers.append(_identity(part, "tool_use_id", "call_id", "tool_call_id", "toolCallId", "id"))


def _identity(part: Mapping[str, Any], *names: str) -> str | None:
    value = _first(part, *names)
    return None if value is None or isinstance(value, dict | list) else str(value)


def _media(what: str) -> Callable[[Mapping[str, Any], Said, Note], None]:
    def mark(part: Mapping[str, Any], said: Said, note: Note) -> None:
        source = part.get("source")
        if isinstance(source, dict) and source.get("type") in ("text", "content"):  # a document of plain text
            said.pieces.append(("text", flat(_first(source, "data", "content"), note)))
            return
        said.pieces.append(("text", _mark(what, {key: value for key, value in part.items() if key != "type"})))
        for told in ("transcript", "title", "context"):
            if isinstance(part.get(told), str) and part[told]:
                said.pieces.append(("text", part[told]))

    return mark


def _mark(what: str, value: Any) -> str:
    """`[image 0123456789ab]`: the hash of the bytes or the address, the same wherever these are equal."""
    value = _bytes_or_address(value)
    content = value if isinstance(value, bytes) else (value if isinstance(value, str) else canonical(value)).encode()
    return f"[{what} {hashlib.sha256(content).hexdigest()[:12]}]"


#: of a part with an image or a file: what it is, before what is said about it
_ADDRESSES = (
    "image_url",
    "url",
    "image",
    "video",
    "video_url",
    "audio",
    "audio_url",
    "input_audio",
    "source",
    "data",
    "file",
    "file_data",
    "file_id",
    "fileUri",
    "file_uri",
    "bytes",
    "path",
    "base64",
)


def _bytes_or_address(value: Any) -> Any:
    while isinstance(value, dict):
        inner = _first(value, *_ADDRESSES)
        if inner is None:
            return value
        value = inner
    if isinstance(value, str) and value.startswith("data:"):
        return value.partition(",")[2] or value
    return value


def _function_call(part: Mapping[str, Any], said: Said, note: Note) -> None:
    call = _first(part, "functionCall", "function_call")
    _call(call if isinstance(call, dict) else {"name": call}, said, note)


def _function_response(part: Mapping[str, Any], said: Said, note: Note) -> None:
    response = _first(part, "functionResponse", "function_response")
    _result(response if isinstance(response, dict) else {"content": response}, said, note)


def _gemini_text(part: Mapping[str, Any], said: Said, note: Note) -> None:
    said.pieces.append(("reasoning" if part.get("thought") is True else "text", flat(part["text"], note)))


def _code(part: Mapping[str, Any], said: Said, note: Note) -> None:
    del note
    said.pieces.append(("call", call_text("executable_code", _first(part, "executableCode", "executable_code"))))
    said.calls.append(None)


def _code_result(part: Mapping[str, Any], said: Said, note: Note) -> None:
    _result({"content": _first(part, "codeExecutionResult", "code_execution_result")}, said, note)


Handler = Callable[[Mapping[str, Any], Said, Note], None]
#: type of a part -> what it says
PARTS: dict[str, Handler] = {
    **dict.fromkeys(("text", "input_text", "output_text", "plain_text"), _text("text", "content")),
    "refusal": _text("refusal", "text"),
    **dict.fromkeys(("summary_text", "reasoning_text", "reasoning.text"), _reasoning("text")),
    "reasoning.summary": _reasoning("summary"),
    **dict.fromkeys(("thinking", "redacted_thinking", "reasoning", "reasoning.encrypted"), _sealed),
    **dict.fromkeys(
        [
            "tool_use",
            "server_tool_use",
            "mcp_tool_use",
            "function_call",
            "custom_tool_call",
            "tool_call",
            "tool-call",
            "toolCall",
            "function",
            "mcp_call",
            "web_search_call",
            "file_search_call",
            "computer_call",
            "code_interpreter_call",
            "local_shell_call",
            "shell_call",
            "apply_patch_call",
            "image_generation_call",
        ],
        _call,
    ),
    **dict.fromkeys(
        [
            "tool_result",
            "function_call_output",
            "custom_tool_call_output",
            "computer_call_output",
            "local_shell_call_output",
            "shell_call_output",
            "apply_patch_call_output",
            "tool-result",
            "tool_response",
            "mcp_tool_result",
            "web_search_tool_result",
            "web_fetch_tool_result",
            "code_execution_tool_result",
            "bash_code_execution_tool_result",
            "text_editor_code_execution_tool_result",
        ],
        _result,
    ),
    **dict.fromkeys(("image", "image_url", "input_image", "output_image", "computer_screenshot"), _media("image")),
    **dict.fromkeys(("audio", "audio_url", "input_audio", "output_audio"), _media("audio")),
    **dict.fromkeys(("video", "video_url", "input_video"), _media("video")),
    **dict.fromkeys(("file", "input_file", "document", "pdf", "container_upload", "file_url"), _media("file")),
}
#: field of a part without a type (Gemini) -> what it says
FIELDS: dict[str, Handler] = {
    **dict.fromkeys(("functionCall", "function_call"), _function_call),
    **dict.fromkeys(("functionResponse", "function_response"), _function_response),
    **dict.fromkeys(("executableCode", "executable_code"), _code),
    **dict.fromkeys(("codeExecutionResult", "code_execution_result"), _code_result),
    **dict.fromkeys(("inlineData", "inline_data", "fileData", "file_data"), _media("file")),
    "image_url": _media("image"),
    "image": _media("image"),
    "text": _gemini_text,
}


def read_content(content: Any, said: Said, note: Note) -> None:
    """Add what `content` says: text, a part, or a list of both."""
    if content is None:
        return
    if isinstance(content, str):
        said.pieces.append(("text", content))
    elif isinstance(content, list):
        for part in content:
            read_content(part, said, note)
    elif isinstance(content, dict):
        _read_part(content, said, note)
    else:
        said.pieces.append(("text", canonical(content)))


def _read_part(part: Mapping[str, Any], said: Said, note: Note) -> None:
    kind = part.get("type")
    handler = PARTS.get(kind) if isinstance(kind, str) else None
    if handler is None and kind is None:
        if isinstance(part.get("parts"), list):  # {"content_type": "text", "parts": [...]}
            read_content(part["parts"], said, note)
            return
        handler = next((FIELDS[name] for name in FIELDS if part.get(name) is not None), None)
    before = len(said.pieces)
    if handler is not None:
        handler(part, said, note)
        if any(text for _, text in said.pieces[before:]) or not _says_something(part):
            return
    if handler is None and kind is not None:
        note(f"a part of the type '{str(kind)[:40]}', which is not known, is shown as JSON")
    said.pieces.append(("text", canonical(part)))


def flat(value: Any, note: Note) -> str:
    """`value` as one text: text as it is, parts as they read, other values as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return ""
    if isinstance(value, list) and value and all(isinstance(part, str) or _is_part(part) for part in value):
        inner = Said(ours=False)
        read_content(value, inner, note)
        return inner.text()
    if _is_part(value):
        inner = Said(ours=False)
        _read_part(value, inner, note)
        return inner.text()
    return canonical(value)


def _is_part(value: Any) -> bool:
    return isinstance(value, dict) and isinstance(value.get("type"), str) and value["type"] in PARTS


#: names of fields that say nothing to a reader: kinds, ids, times
_SILENT = frozenset(
    [
        "type",
        "id",
        "role",
        "index",
        "status",
        "cache_control",
        "citations",
        "annotations",
        "signature",
        "name",
        "timestamp",
        "finish_reason",
        "phase",
        "logprobs",
    ]
)


def _says_something(value: Any) -> bool:
    if isinstance(value, dict):
        return any(_says_something(inner) for name, inner in value.items() if name not in _SILENT)
    if isinstance(value, list):
        return any(_says_something(inner) for inner in value)
    return bool(value.strip()) if isinstance(value, str) else value is not None and not isinstance(value, bool)


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
    """What a message says. Raises Skip for what is none, and for one that has content and says nothing."""
    if not isinstance(message, dict):
        raise Skip("messages are not a list of objects with a role")
    message = _unwrapped(message)
    role = role_of(message)
    if role is None:
        return _item(message, note)
    said = Said(ours=_is_policy(role, note), joins=message.get("type") == "message")
    _read_reasoning(message, said, note)
    for name in _CONTENT:
        if message.get(name) not in (None, "", [], {}):
            read_content(message[name], said, note)
            break
    if message.get("refusal") and not message.get("content"):
        said.pieces = said.pieces or [("text", str(message["refusal"]))]
    _read_calls(message, said, note)
    if isinstance(message.get("audio"), dict) and not message.get("content"):
        _media("audio")(message["audio"], said, note)
    if role in ANSWERS and not said.answers:
        said.answers.append(_identity(message, "tool_call_id", "call_id", "id") or _ids_of(message))
        if isinstance(message.get("error"), dict | str) and message["error"]:  # Inspect: what the tool raised
            said.pieces.append(("text", flat(_error_text(message["error"]), note)))
    if not any(text for _, text in said.pieces) and _says_something(
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
    said = Said(ours=True, joins=True)
    _read_part(message, said, note)
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
        try:
            calls = json.loads(calls)
        except (ValueError, RecursionError):
            calls = [{"name": "", "arguments": calls}]
    if isinstance(calls, dict):
        calls = [calls]
    if not isinstance(calls, list):
        raise Skip("tool_calls are not a list", type(calls).__name__)
    for call in calls:
        _call(call if isinstance(call, dict) else {"name": call}, said, note)
    if isinstance(message.get("function_call"), dict):
        _call(message["function_call"], said, note)
