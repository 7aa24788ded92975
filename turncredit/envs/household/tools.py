"""The household's commands as tools."""

from __future__ import annotations

from turncredit.data.tools import Parameter, Tool, Toolbox

_OBJECT = Parameter("Name and number of the object, such as mug 1.")
_PLACE = Parameter("Name and number of the place, such as shelf 2.")
_THERE = {"object": _OBJECT, "place": _PLACE}

TOOLS = Toolbox(
    (
        Tool("go_to", "Go to a place.", "go to {place}", {"place": _PLACE}),
        Tool("open", "Open a place.", "open {place}", {"place": _PLACE}),
        Tool("close", "Close a place.", "close {place}", {"place": _PLACE}),
        Tool("take", "Take an object from a place.", "take {object} from {place}", _THERE),
        # The editions word it in one of these two ways (profile.py).
        Tool("move", "Put the object in hand in or on a place.", "move {object} to {place}", _THERE),
        Tool("put", "Put the object in hand in or on a place.", "put {object} in/on {place}", _THERE),
        Tool("use", "Turn on a lamp.", "use {lamp}", {"lamp": _OBJECT}),
        Tool("clean", "Clean an object at a place.", "clean {object} with {place}", _THERE),
        Tool("heat", "Heat an object at a place.", "heat {object} with {place}", _THERE),
        Tool("cool", "Cool an object at a place.", "cool {object} with {place}", _THERE),
        Tool("slice", "Slice an object.", "slice {object} with {knife}", {"object": _OBJECT, "knife": _OBJECT}),
        Tool(
            "examine",
            "Look at an object or a place.",
            "examine {thing}",
            {"thing": Parameter("Name and number of the object or place.")},
        ),
        Tool("inventory", "Look at what is in hand.", "inventory"),
        Tool("look", "Look around.", "look"),
    )
)
