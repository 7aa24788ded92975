"""The parser: reads action, subgoal and reflection from a response, and names what is malformed in it.

A well-formed response is `<reflection>..</reflection>`, then `<subgoal>..</subgoal>` where a new subgoal is given, then
`<action>..</action>`, and nothing else but white space. Every other response has a fault, one of `FAULTS`; the first
of them that applies is its name. From a malformed response the last well-formed block of each kind that holds any text
is taken; without an action in tags, the last stretch of text between tags and line breaks is the action.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise

#: the tags of a response, in the order in which they must come
TAGS = ("reflection", "subgoal", "action")

#: characters of a subgoal; the rest is cut, because a subgoal is part of every later prompt
SUBGOAL_CHARACTERS = 300

#: what may be malformed, in the order of precedence, and what it means
FAULTS = {
    "empty_response": "there is no text",
    "unclosed_tag": "a tag is opened, and another kind is closed, or none",
    "nested_tag": "a tag is opened within another",
    "unopened_tag": "a tag is closed that was not opened",
    "repeated_action": "several actions",
    "repeated_subgoal": "several subgoals",
    "repeated_reflection": "several reflections",
    "subgoal_without_action": "a subgoal and no action",
    "no_action": "no action, and no subgoal",
    "empty_action": "an action without text",
    "empty_subgoal": "a subgoal without text",
    "empty_reflection": "a reflection without text",
    "no_reflection": "no reflection, though it is asked for",
    "unasked_reflection": "a reflection, though it is switched off",
    "no_subgoal": "no subgoal, though none has been given yet",
    "unasked_subgoal": "a subgoal, though subgoals are switched off",
    "wrong_order": "blocks in another order than reflection, subgoal, action",
    "text_outside": "text before the first block, or between two",
    "text_after_end": "text after the last block",
    "long_subgoal": f"a subgoal of more than {SUBGOAL_CHARACTERS} characters, which is cut",
    "control_characters": "control characters, which are removed",
}

_TAG = re.compile(rf"<(/?)({'|'.join(TAGS)})>")
_BREAK = re.compile(rf"</?(?:{'|'.join(TAGS)})>|[\r\n]+")
# White space (tab, line feed, vertical tab, form feed, carriage return) is none of them; a lone surrogate has no UTF-8.
_CONTROL = re.compile(r"[\x00-\x08\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Response:
    """What a response says. `subgoal` is empty if none is given; `fault` is empty if it is well-formed."""

    action: str
    subgoal: str
    reflection: str
    fault: str


@dataclass(frozen=True, slots=True)
class _Block:
    """A tag, the text up to its end tag, and where both lie in the response."""

    name: str
    text: str
    start: int
    end: int


def read(text: str, *, reflection: bool = True, subgoals: bool = True, has_subgoal: bool = True) -> Response:
    """The parsed response. `reflection` and `subgoals` say what is asked for, `has_subgoal` if one has been given yet.

    A pure function, in time linear in the text. Texts of the result are on one line and without control characters.
    """
    cleaned = _CONTROL.sub("", text)
    tags = list(_TAG.finditer(cleaned))
    blocks = [
        _Block(opening[2], one_line(cleaned[opening.end() : closing.start()]), opening.start(), closing.end())
        for opening, closing in pairwise(tags)
        if not opening[1] and closing[1] and opening[2] == closing[2]
    ]
    last = {block.name: block.text for block in blocks if block.text}
    fault = _broken_tags(tags) if cleaned.strip() else "empty_response"
    fault = fault or _faulty_blocks(blocks, reflection=reflection, subgoals=subgoals, has_subgoal=has_subgoal)
    fault = fault or _stray_text(cleaned, blocks)
    subgoal = last.get("subgoal", "") if subgoals else ""
    if not fault and len(subgoal) > SUBGOAL_CHARACTERS:
        fault = "long_subgoal"
    if not fault and len(cleaned) < len(text):
        fault = "control_characters"
    return Response(
        last.get("action") or _last_stretch(cleaned),
        subgoal[:SUBGOAL_CHARACTERS].rstrip(),
        last.get("reflection", ""),
        fault,
    )


def one_line(text: str) -> str:
    """The text with all white space between words as single spaces."""
    return " ".join(text.split())


def without_control(text: str) -> str:
    """The text without control characters other than white space."""
    return _CONTROL.sub("", text)


def _broken_tags(tags: list[re.Match[str]]) -> str:
    """The fault of tags that do not come in pairs of opening and closing; empty if they do."""
    opened = ""
    for number, tag in enumerate(tags):
        closes, name = bool(tag[1]), tag[2]
        if closes and not opened:
            return "unopened_tag"
        if closes and name != opened:
            return "unclosed_tag"
        if not closes and opened:
            closed_later = any(later[1] and later[2] == opened for later in tags[number + 1 :])
            return "nested_tag" if closed_later else "unclosed_tag"
        opened = "" if closes else name
    return "unclosed_tag" if opened else ""


def _faulty_blocks(blocks: list[_Block], *, reflection: bool, subgoals: bool, has_subgoal: bool) -> str:
    """The fault of blocks that are repeated, missing, empty, not asked for, or in the wrong order; empty if none."""
    names = [block.name for block in blocks]
    for name in reversed(TAGS):
        if names.count(name) > 1:
            return f"repeated_{name}"
    if "action" not in names:
        return "subgoal_without_action" if "subgoal" in names else "no_action"
    empty = {block.name for block in blocks if not block.text}
    for name in reversed(TAGS):
        if name in empty:
            return f"empty_{name}"
    if ("reflection" in names) != reflection:
        return "no_reflection" if reflection else "unasked_reflection"
    if subgoals and not has_subgoal and "subgoal" not in names:
        return "no_subgoal"
    if not subgoals and "subgoal" in names:
        return "unasked_subgoal"
    return "" if names == sorted(names, key=TAGS.index) else "wrong_order"


def _stray_text(text: str, blocks: list[_Block]) -> str:
    """The fault of text outside the blocks, of which there is at least one; empty if there is none."""
    before = [text[: blocks[0].start], *(text[one.end : two.start] for one, two in pairwise(blocks))]
    if any(stretch.strip() for stretch in before):
        return "text_outside"
    return "text_after_end" if text[blocks[-1].end :].strip() else ""


def _last_stretch(text: str) -> str:
    """The last text between tags and line breaks that is not blank; of a text without tags, its last line."""
    return next((line for stretch in reversed(_BREAK.split(text)) if (line := one_line(stretch))), "")
