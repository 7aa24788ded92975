"""Tools of any environment: both spellings, JSON schemas, and what is wrong with a call."""

from __future__ import annotations

import json

import jsonschema
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turncredit.data.tools import LONGEST, NOT_UNDERSTOOD, Call, Parameter, Tool, Toolbox

BOX = Toolbox(
    (
        Tool("look", "Look around.", "look"),
        Tool(
            "put",
            "Put a thing somewhere.",
            "put {thing} on {place}",
            {"thing": Parameter("A."), "place": Parameter("B.")},
        ),
        Tool("turn", "Turn.", "turn {side}", {"side": Parameter("Where to.", ("left", "right"))}),
    )
)
WORDS = st.text("abc", min_size=1, max_size=5)
ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@pytest.mark.parametrize(
    ("action", "call"),
    [
        ("look", Call("look")),
        ("  PUT  red cup   on  shelf 1 ", Call("put", ("red cup", "shelf 1"))),
        ("turn Left", Call("turn", ("left",))),
        ('{"name": "turn", "arguments": {"side": "Left"}}', Call("turn", ("left",))),
        (' {"arguments": {"place": " shelf  1", "thing": "cup"}, "name": "put"}', Call("put", ("cup", "shelf 1"))),
        ("turn back", "turn: the argument 'side' must be one of left, right."),
        ("look around", NOT_UNDERSTOOD),
        ('{"name": "put", "arguments": {"thing": " ", "place": "x"}}', "put: the argument 'thing' is empty."),
        ("look" + " " * LONGEST, NOT_UNDERSTOOD),
    ],
)
def test_both_spellings_are_read(action, call):
    assert BOX.read(action) == call


@given(st.sampled_from([Call("look")]) | st.builds(lambda a, b: Call("put", (a, b)), WORDS, WORDS))
def test_a_written_call_is_read_as_it_was_meant(call):
    assert BOX.read(BOX.text(call)) == BOX.read(BOX.json(call)) == call


@given(name=st.sampled_from(["put", "turn", "look"]), near=st.booleans(), data=st.data())
def test_a_call_is_accepted_exactly_where_its_json_schema_accepts_it(name, near, data):
    keys = st.sampled_from(["thing", "place", "side"]) if near else st.text(max_size=3)
    given = data.draw(st.dictionaries(keys, ANY if not near else st.sampled_from(["left", "cup", 3, None]), max_size=3))
    schema = BOX[name].declaration()["function"]["parameters"]
    valid = jsonschema.Draft202012Validator(schema).is_valid(given)
    action = json.dumps({"name": name, "arguments": given})
    # Empty texts, and choices in upper case, are ours: the schema says nothing about either.
    assume(all(value == value.lower() != "" and value.strip() for value in given.values() if isinstance(value, str)))
    assert isinstance(BOX.read(action), Call) == valid


def test_declarations_are_functions_with_every_parameter_required():
    first, put, turn = BOX.declarations()
    assert first["function"]["parameters"]["required"] == []
    assert put == {
        "type": "function",
        "function": {
            "name": "put",
            "description": "Put a thing somewhere.",
            "parameters": {
                "type": "object",
                "properties": {
                    "thing": {"type": "string", "description": "A."},
                    "place": {"type": "string", "description": "B."},
                },
                "required": ["thing", "place"],
                "additionalProperties": False,
            },
        },
    }
    assert turn["function"]["parameters"]["properties"]["side"]["enum"] == ["left", "right"]
    for one in BOX.declarations():
        jsonschema.Draft202012Validator.check_schema(one["function"]["parameters"])
