"""What a message says, in every dialect: nothing that it holds is dropped."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turncredit.bridges.importers.base import Context, Options, Report, Skip, Source
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import NO_CALL, NO_RESULT, turns_of
from turncredit.bridges.importers.parts import PARTS, flat
from turncredit.bridges.importers.said import call_text, calls_in

CALL = 'look_up {"city": "Oslo"}'
PIXEL = base64.b64encode(b"pixel").decode()
ARGUMENTS = '{"city": "Oslo"}'


def context(observation: Any = "auto", *, strict: bool = False) -> Context:
    return Context(Source(Path("a.jsonl"), "a", "a.jsonl"), Report(strict=strict), Options(observation=observation))


def said(message: Any) -> str:
    return read_message(message, lambda _: None).text()


#: a message of the policy that thinks "hm", says "ok" and calls `look_up(city="Oslo")`
CALLS: dict[str, list[dict[str, Any]]] = {
    "chat completions": [
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "content": "ok",
            "tool_calls": [{"id": "c", "type": "function", "function": {"name": "look_up", "arguments": ARGUMENTS}}],
        }
    ],
    "legacy": [
        {"role": "assistant", "reasoning": "hm", "content": "ok"}
        | {"function_call": {"name": "look_up", "arguments": ARGUMENTS}}
    ],
    "a router": [
        {
            "role": "assistant",
            "reasoning": "hm",
            "reasoning_details": [{"type": "reasoning.text", "text": "hm"}],
            "content": [{"type": "text", "text": "ok"}],
            "tool_calls": f'[{{"function": {{"name": "look_up", "arguments": {ARGUMENTS}}}}}]',
        }
    ],
    "Anthropic": [
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "x"},
                {"type": "text", "text": "ok"},
                {"type": "tool_use", "id": "c", "name": "look_up", "input": {"city": "Oslo"}},
            ],
        }
    ],
    "Responses": [
        {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
        {"type": "function_call", "call_id": "c", "name": "look_up", "arguments": ARGUMENTS},
    ],
    "Gemini": [
        {
            "role": "model",
            "parts": [
                {"text": "hm", "thought": True},
                {"text": "ok"},
                {"functionCall": {"name": "look_up", "args": {"city": "Oslo"}}},
            ],
        }
    ],
    "Inspect": [
        {
            "role": "assistant",
            "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "ok"}],
            "tool_calls": [{"id": "c", "function": "look_up", "arguments": {"city": "Oslo"}}],
        }
    ],
    "verifiers 0.1": [
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "content": "ok",
            "tool_calls": [json.dumps({"id": "c", "name": "look_up", "arguments": '{"city": "Oslo"}'})],
        }
    ],
    "verifiers 0.1's completions": [
        {
            "role": "assistant",
            "reasoning_content": "hm",
            "content": "ok",
            "tool_calls": [json.dumps({"id": "c", "function": {"name": "look_up", "arguments": '{"city": "Oslo"}'}})],
        }
    ],
    "Vercel": [
        {
            "role": "assistant",
            "content": [
                {"type": "reasoning", "text": "hm"},
                {"type": "text", "text": "ok"},
                {"type": "tool-call", "toolCallId": "c", "toolName": "look_up", "input": {"city": "Oslo"}},
            ],
        }
    ],
    "LangChain": [
        {
            "type": "ai",
            "reasoning_content": "hm",
            "content": "ok",
            "tool_calls": [{"id": "c", "name": "look_up", "args": {"city": "Oslo"}}],
        }
    ],
}


@pytest.mark.parametrize("dialect", sorted(CALLS))
def test_a_response_is_reasoning_text_and_calls_and_the_action_is_the_call(dialect: str) -> None:
    [turn] = turns_of([{"role": "user", "content": "go"}, *CALLS[dialect]], context(), "a:1")
    assert turn["response_text"] == f"hm\nok\n{CALL}"
    assert turn["action"] == CALL


#: what the environment answers with "rain"
ANSWERS: dict[str, dict[str, Any]] = {
    "chat completions": {"role": "tool", "tool_call_id": "c", "content": "rain"},
    "legacy": {"role": "function", "name": "look_up", "content": "rain"},
    "Anthropic": {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c", "content": "rain"}]},
    "Anthropic's parts": {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "c", "content": [{"type": "text", "text": "rain"}]}],
    },
    "Responses": {"type": "function_call_output", "call_id": "c", "output": "rain"},
    "Vercel": {"role": "tool", "content": [{"type": "tool-result", "toolCallId": "c", "result": "rain"}]},
    "ShareGPT": {"from": "observation", "value": "rain"},
}


@pytest.mark.parametrize("dialect", sorted(ANSWERS))
def test_a_result_is_what_the_policy_sees_next(dialect: str) -> None:
    talk = [{"role": "user", "content": "go"}, *CALLS["chat completions"], ANSWERS[dialect]]
    first, second = turns_of([*talk, {"role": "assistant", "content": "bye"}], context("messages", strict=True), "a:1")
    assert first["next_observation"] == second["observation"] == "rain"


def test_results_within_a_response_are_the_environments() -> None:
    """A server's own tools, and Gemini's command line, write the result beside the call."""
    call = {
        "name": "look_up",
        "args": {"city": "Oslo"},
        "result": [{"functionResponse": {"response": {"output": "rain"}}}],
    }
    talk = [{"type": "user", "content": "go"}, {"type": "gemini", "content": "ok", "toolCalls": [call]}]
    [turn] = turns_of(talk, context("messages"), "a:1")
    assert turn["response_text"] == f"ok\n{CALL}"
    assert "rain" in turn["next_observation"]


MEDIA: dict[str, dict[str, Any]] = {
    "an address": {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PIXEL}"}},
    "an input": {"type": "input_image", "image_url": f"data:image/png;base64,{PIXEL}"},
    "bytes": {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PIXEL}},
    "a plain image": {"type": "image", "image": f"data:image/png;base64,{PIXEL}"},
}


@pytest.mark.parametrize("form", sorted(MEDIA))
def test_an_image_is_a_mark_with_the_hash_of_its_bytes(form: str) -> None:
    text = said({"role": "user", "content": [MEDIA[form], {"type": "text", "text": "what is it?"}]})
    assert text == said({"role": "user", "content": [MEDIA["an address"], {"type": "text", "text": "what is it?"}]})
    assert text.startswith("[image ")
    other = {"type": "image_url", "image_url": {"url": "https://example.org/other.png"}}
    assert said({"role": "user", "content": [other]}) not in text


def test_a_refusal_and_a_document_of_text_are_text() -> None:
    assert said({"role": "assistant", "content": None, "refusal": "no"}) == "no"
    assert said({"role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]}) == "no"
    document = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "the law"}}
    assert said({"role": "user", "content": [document]}) == "the law"


def test_sealed_reasoning_is_a_mark() -> None:
    assert said({"role": "assistant", "content": [{"type": "redacted_thinking", "data": "x"}]}).startswith(
        "[reasoning "
    )


def test_a_part_of_an_unknown_type_is_json_and_noted() -> None:
    notes: list[str] = []
    message = {"role": "user", "content": [{"type": "hologram", "beam": 7}]}
    assert read_message(message, notes.append).text() == '{"beam": 7, "type": "hologram"}'
    assert notes == ["a part of the type 'hologram', which is not known, is shown as JSON"]


def test_arguments_are_canonical_and_escaped_once() -> None:
    assert call_text("f", '{"b": "\\"q\\"", "a": 1}') == 'f {"a": 1, "b": "\\"q\\""}'
    assert call_text("f", {"a": 1}) == call_text("f", '{ "a" : 1 }')
    assert call_text("f", None) == call_text("f", {}) == "f {}"
    assert call_text("f", "not JSON") == "f not JSON"


@pytest.mark.parametrize(
    "text",
    [
        'I look.\n<tool_call>\n{"name": "look_up", "arguments": {"city": "Oslo"}}\n</tool_call>',
        "I look.\n<function=look_up>\n<parameter=city>\nOslo\n</parameter>\n</function>",
        '[TOOL_CALLS] [{"name": "look_up", "arguments": {"city": "Oslo"}}]',
    ],
)
def test_a_call_that_is_markup_within_the_text_is_the_action(text: str) -> None:
    assert calls_in(text) == [CALL]
    [turn] = turns_of([{"role": "user", "content": "go"}, {"role": "assistant", "content": text}], context(), "a:1")
    assert (turn["action"], turn["response_text"]) == (CALL, text)


def test_results_without_calls_and_calls_without_results_are_flaws() -> None:
    stray = {"role": "tool", "tool_call_id": "z", "content": "rain"}
    begun = context()
    turns_of([{"role": "user", "content": "go"}, stray, *CALLS["chat completions"]], begun, "a:1")
    assert list(begun.report.flaws) == [NO_CALL]
    begun = context()
    talk = [*CALLS["chat completions"], {"role": "user", "content": "well?"}, {"role": "assistant", "content": "bye"}]
    turns_of(talk, begun, "a:1")
    assert list(begun.report.flaws) == [NO_RESULT]


@pytest.mark.parametrize("messages", [None, "hi", [1], [{"content": "x"}], [{"role": "user", "content": "x"}], []])
def test_what_is_no_conversation_is_a_skip(messages: Any) -> None:
    with pytest.raises(Skip, match=r"messages are not a list|the policy wrote no message"):
        turns_of(messages, context(), "a:1")


LEAVES = st.none() | st.booleans() | st.integers() | st.text(min_size=1, max_size=5)
VALUES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=4), inner, max_size=2)
)
WORD = st.text("abcdefgh", min_size=4, max_size=8)


@settings(max_examples=300, deadline=None)
@given(kind=st.sampled_from(sorted(PARTS)) | st.text(max_size=6), name=st.text(max_size=6), value=VALUES, word=WORD)
def test_no_part_that_says_something_disappears(kind: str, name: str, value: Any, word: str) -> None:
    """Whatever the type of a part and the field that holds it: a word comes out, or a mark or JSON in its place."""
    part = {"type": kind, name: value, "note": word}
    assert said({"role": "user", "content": [part]}).strip()
    assert flat([part], lambda _: None).strip()
