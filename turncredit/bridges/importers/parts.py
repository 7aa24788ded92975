"""Parts of a message's content, in any dialect, as pieces of text.

One table, `PARTS`, has the types of parts of chat completions, Responses, Anthropic, Gemini, Vercel's SDK and Inspect.
Nothing is dropped: a part of an unknown type is shown as JSON and noted, an image or a file as a mark with the hash of
its bytes or address.

Sources of the types: https://platform.openai.com/docs/api-reference (chat, responses),
https://docs.anthropic.com/en/api/messages, https://ai.google.dev/api/caching#Part,
https://ai-sdk.dev/docs/reference/ai-sdk-core/model-message, inspect_ai `model/_chat_message.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from typing import Any

from turncredit.bridges.importers.said import Kind, Note, Said, call_text, canonical


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
    """Add reasoning: its readable text, or a mark if all that is left is encrypted or a signature."""
    _reasoning("thinking", "summary", "text", "reasoning", "content")(part, said, note)
    sealed = _first(part, "data", "encrypted_content", "signature")
    if sealed and not any(kind == "reasoning" and text for kind, text in said.pieces):
        said.pieces.append(("reasoning", _mark("reasoning", sealed)))


def read_call(part: Mapping[str, Any], said: Said, note: Note) -> None:
    """Add a tool call, and what the server answered within it."""
    function = part.get("function")
    inner = function if isinstance(function, dict) else part
    name = _first(inner, "name", "tool_name", "toolName", "function_name", "function") or part.get("type")
    arguments = _first(
        inner, "arguments", "input", "args", "kwargs", "parameters", "action", "queries", "code", "query"
    )
    said.pieces.append(("call", call_text(name, arguments)))
    said.calls.append(identity(part, "call_id", "tool_call_id", "toolCallId", "id"))
    for answer in ("output", "result", "results", "outputs"):  # of what the server called itself
        if part.get(answer):
            said.pieces.append(("result", flat(part[answer], note)))


def _result(part: Mapping[str, Any], said: Said, note: Note) -> None:
    value = _first(part, "content", "output", "result", "response")
    said.pieces.append(("result", flat(value, note)))
    said.answers.append(identity(part, "tool_use_id", "call_id", "tool_call_id", "toolCallId", "id"))


def identity(part: Mapping[str, Any], *names: str) -> str | None:
    """The id in the first of these fields that has one."""
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
    read_call(call if isinstance(call, dict) else {"name": call}, said, note)


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
        read_call,
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
        read_part(content, said, note)
    else:
        said.pieces.append(("text", canonical(content)))


def read_part(part: Mapping[str, Any], said: Said, note: Note) -> None:
    """Add what a part says; one of an unknown type, or of which no text came out, as JSON."""
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
        if any(text for _, text in said.pieces[before:]) or not says_something(part):
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
        read_part(value, inner, note)
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


def says_something(value: Any) -> bool:
    """Whether there is text or a number in it, beside kinds, ids and times."""
    if isinstance(value, dict):
        return any(says_something(inner) for name, inner in value.items() if name not in _SILENT)
    if isinstance(value, list):
        return any(says_something(inner) for inner in value)
    return bool(value.strip()) if isinstance(value, str) else value is not None and not isinstance(value, bool)
