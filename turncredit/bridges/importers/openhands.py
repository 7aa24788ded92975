"""OpenHands: events of a run, as a list, a line each, in pairs, or in the `history` of an evaluation's record.

Source: OpenHands 0.58 `openhands/events/serialization/`, `evaluation/utils/shared.py`, and its SDK 1.x,
`openhands/sdk/event/` (events with `kind`). A turn is a response of the model, which may be several actions; where the
event carries the model's own message, that is the response. After a condensation the next turn is a `context_reset`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from turncredit.bridges.importers.base import (
    About,
    Context,
    Format,
    Record,
    Rollout,
    Skip,
    dict_of,
    each,
    group_of,
    list_of,
    outcome,
    truth,
)
from turncredit.bridges.importers.containers import is_event
from turncredit.bridges.importers.jsonl import place_of
from turncredit.bridges.importers.message import read_message
from turncredit.bridges.importers.messages import turns_from
from turncredit.bridges.importers.parts import flat
from turncredit.bridges.importers.said import Note, Said, call_text

#: events that neither the model wrote nor saw
UNSEEN = frozenset(
    [
        "change_agent_state",
        "agent_state_changed",
        "null",
        "recall",
        "ConversationStateUpdateEvent",
        "PauseEvent",
        "TokenEvent",
        "CondensationRequest",
        "LLMCompletionLogEvent",
    ]
)
CONDENSED = frozenset(("condensation", "Condensation"))
#: arguments of an action that the model did not write
SILENT = frozenset(
    [
        "thought",
        "hidden",
        "blocking",
        "is_input",
        "is_static",
        "confirmation_state",
        "security_risk",
        "impl_source",
        "cwd",
        "keep_prompt",
        "include_extra",
        "translated_ipython_code",
        "diff",
        "wait_for_response",
        "image_urls",
        "file_urls",
        "timeout",
        "kernel_init_code",
    ]
)


def read(records: Iterable[Record], context: Context) -> Iterator[Rollout]:
    """The rollouts of a file. Each record is a rollout, or all records are the events of one."""

    def runs() -> Iterator[Record]:
        events: list[dict[str, Any]] = []
        first = ""
        for where, record in records:
            if "history" in record:
                yield where, record
            else:
                first = first or where
                events.append(record)
        if events:
            context.report.records += len(events) - 1
            yield first, {"history": events}

    yield from each(runs(), context.report, lambda where, record: _rollout(where, record, context))


def _rollout(where: str, record: dict[str, Any], context: Context) -> Iterator[Rollout]:
    events: list[Any] = []
    for item in list_of(record.get("history"), "history"):
        events += item if isinstance(item, list) else [item]
    if len(events) == 1:
        raise Skip("one event of OpenHands, and no rollout: put the events of a run into one file, in their order")
    turns = turns_from(_said(events, context.report.note), context, where)
    report = dict_of(record.get("report") or dict_of(record.get("test_result"), "test_result").get("report"), "report")
    success = truth(report.get("resolved"), "resolved")
    outcome(turns, None if success is None else float(success))
    columns: dict[str, Any] = {} if success is None else {"success": success}
    task = record.get("instance_id")
    if task is None:
        task = group_of(turns[0]["observation"], place_of(where, context), context.report)
    else:
        columns["task_id"] = str(task)
    yield Rollout(str(task), place_of(where, context), turns, where, not record.get("error"), columns)


def _said(events: list[Any], note: Note) -> Iterator[Said]:
    responses: set[str] = set()
    condensed = False
    for event in events:
        if not isinstance(event, dict):
            raise Skip("an event that is not an object", type(event).__name__)
        kind = str(event.get("kind") or event.get("action") or event.get("observation"))
        condensed |= kind in CONDENSED
        said = _event(event, kind, responses, note)
        if said is None:
            continue
        if said.ours and condensed:
            said.columns = {"context_reset": True}
            condensed = False
        yield said


def _event(event: dict[str, Any], kind: str, responses: set[str], note: Note) -> Said | None:
    """What an event says; None for one that says nothing new."""
    if "kind" in event:
        return _event_of_sdk(event, kind, responses, note)
    if "observation" in event:
        knowledge = dict_of(event.get("extras"), "extras").get("microagent_knowledge")
        texts = [
            item.get("content", "") for item in list_of(knowledge, "microagent_knowledge") if isinstance(item, dict)
        ]
        content = flat(event.get("content"), note)
        if kind in UNSEEN and not texts:
            return None
        metadata = dict_of(event.get("tool_call_metadata"), "tool_call_metadata")
        said = Said(ours=False, pieces=[("result", "\n".join([content, *texts]))])
        if metadata.get("tool_call_id"):
            said.answers = [str(metadata["tool_call_id"])]
        return said
    if kind in UNSEEN | CONDENSED:
        return None
    arguments = dict_of(event.get("args"), "args")
    if event.get("source") != "agent" or kind == "system":
        return Said(ours=False, pieces=[("text", flat(arguments.get("content") or event.get("message"), note))])
    return _response(event, kind, arguments, responses, note)


def _response(
    event: dict[str, Any], kind: str, arguments: dict[str, Any], responses: set[str], note: Note
) -> Said | None:
    """The model's response that an action belongs to; None if an earlier action belonged to the same response."""
    metadata = dict_of(event.get("tool_call_metadata"), "tool_call_metadata")
    response = dict_of(metadata.get("model_response"), "model_response")
    choices = list_of(response.get("choices"), "choices")
    if choices and isinstance(choices[0], dict) and isinstance(choices[0].get("message"), dict):
        if str(response.get("id")) in responses and response.get("id"):
            return None
        responses.add(str(response.get("id")))
        return read_message({"role": "assistant", **choices[0]["message"]}, note)
    text = flat(arguments.get("content") or arguments.get("thought") or arguments.get("final_thought"), note)
    if kind == "message":
        return Said(ours=True, pieces=[("text", text or flat(event.get("message"), note))])
    shown = {name: value for name, value in arguments.items() if name not in SILENT and value not in (None, "", [], {})}
    return Said(ours=True, pieces=[("text", flat(arguments.get("thought"), note)), ("call", call_text(kind, shown))])


def _event_of_sdk(event: dict[str, Any], kind: str, responses: set[str], note: Note) -> Said | None:
    if kind in UNSEEN | CONDENSED:
        return None
    if kind == "MessageEvent":
        message = dict_of(event.get("llm_message"), "llm_message")
        said = read_message({"role": event.get("source") or "user", **message}, note)
        said.pieces.append(("text", flat(event.get("extended_content"), note)))
        return said
    if kind == "SystemPromptEvent":
        texts = [flat(event.get(name), note) for name in ("system_prompt", "dynamic_context")]
        return Said(ours=False, pieces=[("text", text) for text in texts])
    if kind == "ActionEvent":
        return _action_of_sdk(event, responses, note)
    said = Said(ours=False)
    observation = event.get("observation")
    inner = dict_of(observation, "observation") if isinstance(observation, dict) else {"content": observation}
    content = next((inner[name] for name in ("content", "output", "text", "error") if inner.get(name)), None)
    told = next((event[name] for name in ("error", "rejection_reason", "summary") if event.get(name)), None)
    said.pieces.append(("result", flat(content or told or inner, note)))
    said.pieces.append(("result", flat(event.get("extended_content"), note)))
    if event.get("tool_call_id"):
        said.answers.append(str(event["tool_call_id"]))
    return said


def _action_of_sdk(event: dict[str, Any], responses: set[str], note: Note) -> Said:
    call = dict_of(event.get("tool_call"), "tool_call")
    function = dict_of(call.get("function"), "function") or call
    name = event.get("tool_name") or function.get("name")
    said = Said(ours=True, joins=f"response {event.get('llm_response_id')}")
    first = str(event.get("llm_response_id")) not in responses
    if first:
        said.pieces += [
            ("reasoning", flat(event.get("reasoning_content") or event.get("thinking_blocks"), note)),
            ("text", flat(event.get("thought"), note)),
        ]
    responses.add(str(event.get("llm_response_id")))
    arguments = function.get("arguments")
    if arguments is None:
        action = dict_of(event.get("action"), "action")
        arguments = {key: value for key, value in action.items() if key != "kind"}
    said.pieces.append(("call", call_text(name, arguments)))
    said.calls.append(str(event.get("tool_call_id") or call.get("id")))
    return said


def _matches(record: Mapping[str, Any]) -> bool:
    if "history" not in record:
        return is_event(record) and "source" in record and "steps" not in record
    history = record.get("history")
    first = history[0] if isinstance(history, list) and history else None
    if isinstance(first, list):
        first = first[0] if first else None
    return isinstance(first, dict) and "role" not in first and bool({"action", "observation", "kind"} & set(first))


FORMAT = Format(
    "openhands",
    _matches,
    read,
    about=About(
        files="events, and output.jsonl of evaluations",
        group="instance_id, else the first messages",
        turns="responses of the model",
        reward="report.resolved",
        checked="files of OpenHands 0.35 and 0.58 and one of January 2025; code of its SDK and a file",
    ),
)
