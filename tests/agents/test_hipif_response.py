"""HIPIF's parser: what is well-formed, what every malformed response is called, and what is taken from it."""

from __future__ import annotations

import re
import time
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.agents.hipif.response import FAULTS, SUBGOAL_CHARACTERS, TAGS, Response, read

R, S, A = "<reflection>not yet</reflection>", "<subgoal>find a mug</subgoal>", "<action>look</action>"
LONG = "<subgoal>" + "mug " * 2500 + "</subgoal>"


def test_a_response_is_a_reflection_a_subgoal_if_there_is_a_new_one_and_an_action():
    assert read(R + S + A) == Response("look", "find a mug", "not yet", "")
    assert read(f" {R}\n\n{A} \n") == Response("look", "", "not yet", "")
    assert read(R + S + A, has_subgoal=False).fault == ""
    assert read(S + A, reflection=False) == Response("look", "find a mug", "", "")
    assert read(R + A, subgoals=False, has_subgoal=False) == Response("look", "", "not yet", "")


def test_texts_are_on_one_line_and_tags_of_another_spelling_are_text():
    said = read("<reflection>a <Action> b</reflection><action> take\n mug 1\tfrom  shelf 2 </action>")
    assert said == Response("take mug 1 from shelf 2", "", "a <Action> b", "")


#: fault: (response, options, action, subgoal)
CASES = {
    "empty_response": [("", {}, "", ""), (" \n\t\x00", {}, "", "")],
    "unclosed_tag": [
        (f"{R}<action>go to shelf 1", {}, "go to shelf 1", ""),
        (f"<reflection>no mug{S}{A}", {}, "look", "find a mug"),
        (f"{R}<subgoal>find a mug{A}", {}, "look", ""),
        (f"{R}<action>look</subgoal>", {}, "look", ""),
        (f"{A}<action>", {}, "look", ""),
    ],
    "nested_tag": [
        (f"<reflection>maybe {A}?</reflection><action>open drawer 1</action>", {}, "open drawer 1", ""),
        (f"<reflection>maybe {A}?</reflection>", {}, "look", ""),
        (f"{R}<action>go {A} on</action>", {}, "look", ""),
        (f"{R}<subgoal>a {S}</subgoal>{A}", {}, "look", "find a mug"),
    ],
    "unopened_tag": [(f"{R}look</action>", {}, "look", ""), (f"{R}{A}</action>", {}, "look", "")],
    "repeated_action": [
        (f"{R}{A}<action>open drawer 1</action>", {}, "open drawer 1", ""),
        (f"{R}{A}<action> </action>", {}, "look", ""),
    ],
    "repeated_subgoal": [(f"{R}{S}<subgoal>take mug 1</subgoal>{A}", {}, "look", "take mug 1")],
    "repeated_reflection": [(f"{R}{R}{A}", {}, "look", "")],
    "subgoal_without_action": [(f"{R}{S}", {}, "find a mug", "find a mug"), (f"{S}\nlook", {}, "look", "find a mug")],
    "no_action": [("I will\nopen drawer 1\n", {}, "open drawer 1", ""), (R, {}, "not yet", "")],
    "empty_action": [(f"{R}<action>\n</action>", {}, "not yet", "")],
    "empty_subgoal": [(f"{R}<subgoal> </subgoal>{A}", {}, "look", "")],
    "empty_reflection": [(f"<reflection></reflection>{A}", {}, "look", "")],
    "no_reflection": [(A, {}, "look", ""), (S + A, {}, "look", "find a mug")],
    "unasked_reflection": [(R + A, {"reflection": False}, "look", "")],
    "no_subgoal": [(R + A, {"has_subgoal": False}, "look", "")],
    "unasked_subgoal": [(R + S + A, {"subgoals": False}, "look", "")],
    "wrong_order": [(A + R, {}, "look", ""), (R + A + S, {}, "look", "find a mug")],
    "text_outside": [(f"Well. {R}{A}", {}, "look", ""), (f"{R} so {A}", {}, "look", "")],
    "text_after_end": [(f"{R}{A} and then wait", {}, "look", ""), (f"{R}{A}.", {}, "look", "")],
    "long_subgoal": [(R + LONG + A, {}, "look", ("mug " * 2500)[:SUBGOAL_CHARACTERS].strip())],
    "control_characters": [
        (f"{R}<action>lo\x00ok\x1b</action>", {}, "look", ""),
        (f"{R}<act\x07ion>look</action>", {}, "look", ""),
        (f"{R}<subgoal>find\x9f a\ud800 mug</subgoal>{A}", {}, "look", "find a mug"),
    ],
}  # fmt: skip


@pytest.mark.parametrize(
    ("fault", "text", "options", "action", "subgoal"),
    [(fault, *case) for fault, cases in CASES.items() for case in cases],
)
def test_a_malformed_response_has_a_name_an_action_and_the_subgoal_it_gave(fault, text, options, action, subgoal):
    said = read(text, **options)
    assert (said.fault, said.action, said.subgoal) == (fault, action, subgoal)


def test_every_fault_has_a_case_and_the_page_says_how_many_there_are():
    assert list(CASES) == list(FAULTS)
    page = (Path(__file__).parents[2] / "docs" / "agents_hipif.md").read_text()
    assert f"the first of the {len(FAULTS)} in" in page


PIECES = st.sampled_from(
    [R, S, A, *(f"<{end}{tag}>" for tag in TAGS for end in ("", "/")), "look", " ", "\n", "\x00", "<", ">", "</action"]
)
TEXTS = st.lists(PIECES | st.text(max_size=4), max_size=14).map("".join)


@given(TEXTS, st.booleans(), st.booleans(), st.booleans())
def test_any_text_is_read_and_what_is_read_is_on_one_clean_line(text, reflection, subgoals, has_subgoal):
    said = read(text, reflection=reflection, subgoals=subgoals, has_subgoal=has_subgoal)
    assert said.fault in {"", *FAULTS}
    for part in (said.action, said.subgoal, said.reflection):
        assert part == " ".join(part.split())
        assert not any(unicodedata.category(character) in ("Cc", "Cs") for character in part)
        assert not re.search(r"</?(?:reflection|subgoal|action)>", part)
        part.encode()
    assert said.fault or (said.action and bool(said.reflection) == reflection)
    assert said.fault or said.subgoal or has_subgoal or not subgoals


def squeezed(text):
    """The text without white space; control characters stay."""
    return "".join(c for c in text if not c.isspace() or (unicodedata.category(c) == "Cc" and c not in "\t\n\v\f\r"))


@given(TEXTS)
def test_a_response_is_well_formed_exactly_if_it_is_its_own_parts_in_tags(text):
    said = read(text)
    parts = [R.replace("not yet", said.reflection)]
    parts += [S.replace("find a mug", said.subgoal)] if said.subgoal else []
    parts += [A.replace("look", said.action)]
    rebuilt = "".join(parts)
    assert (said.fault == "") == (squeezed(text) == squeezed(rebuilt) and bool(said.reflection and said.action))


@pytest.mark.slow
def test_a_megabyte_of_tags_is_read_in_linear_time():
    started = time.perf_counter()
    for piece in ("<action>", "</action>", "<action></action>", "<reflection><action>x</action>"):
        assert read(piece * (1_000_000 // len(piece))).fault
    assert time.perf_counter() - started < 30
