"""What generated households are made of: furniture by room, small objects and where they belong.

Class names and properties are those of VirtualHome's own scenes and tables, so that the package's executor treats them
alike. Where something belongs is common knowledge: households are drawn from it, and the expert searches by it.
"""

from __future__ import annotations

from typing import NamedTuple


class Furniture(NamedTuple):
    """A piece of furniture: its room, the package's properties, its states; `always`: in every household."""

    room: str
    properties: tuple[str, ...]
    states: tuple[str, ...] = ()
    always: bool = True
    category: str = "Furniture"


class Thing(NamedTuple):
    """A small object: properties, and the furniture it may lie on or in; `washable`: whether it may be dirty."""

    places: tuple[str, ...]
    washable: bool = False
    properties: tuple[str, ...] = ()


_BOX = ("CAN_OPEN", "CONTAINERS")
_DEVICE = ("HAS_SWITCH", "HAS_PLUG")

FURNITURE = {
    "bathroom_cabinet": Furniture("bathroom", _BOX, ("CLOSED",)),
    "bathroom_counter": Furniture("bathroom", ("SURFACES",)),
    "toilet": Furniture("bathroom", ("SITTABLE",)),
    "washing_machine": Furniture("bathroom", (*_BOX, *_DEVICE), ("CLOSED", "OFF", "PLUGGED_IN"), True, "Appliances"),
    "bed": Furniture("bedroom", ("SITTABLE", "LIEABLE", "SURFACES")),
    "closet": Furniture("bedroom", _BOX, ("CLOSED",)),
    "nightstand": Furniture("bedroom", ("SURFACES",)),
    "desk": Furniture("bedroom", ("SURFACES",), (), False),
    "computer": Furniture("bedroom", (*_DEVICE, "LOOKABLE"), ("OFF", "PLUGGED_IN"), False, "Electronics"),
    "cupboard": Furniture("kitchen", _BOX, ("CLOSED",)),
    "dishwasher": Furniture("kitchen", (*_BOX, *_DEVICE), ("CLOSED", "OFF", "PLUGGED_IN"), True, "Appliances"),
    "fridge": Furniture("kitchen", _BOX, ("CLOSED",), True, "Appliances"),
    "kitchen_counter": Furniture("kitchen", ("SURFACES",)),
    "coffee_maker": Furniture("kitchen", _DEVICE, ("OFF", "PLUGGED_IN"), False, "Appliances"),
    "toaster": Furniture("kitchen", _DEVICE, ("OFF", "PLUGGED_IN"), False, "Appliances"),
    "bookshelf": Furniture("living_room", ("SURFACES",)),
    "coffee_table": Furniture("living_room", ("SURFACES",)),
    "sofa": Furniture("living_room", ("SITTABLE", "LIEABLE")),
    "tv": Furniture("living_room", (*_DEVICE, "LOOKABLE"), ("OFF", "PLUGGED_IN"), True, "Electronics"),
    "stereo": Furniture("living_room", _DEVICE, ("OFF", "PLUGGED_IN"), False, "Electronics"),
}

_FOOD = ("fridge", "kitchen_counter", "coffee_table")
_DISH = ("cupboard", "kitchen_counter", "coffee_table", "dishwasher")
_BATH = ("bathroom_cabinet", "bathroom_counter", "nightstand")
_CLOTH = ("closet", "bed", "washing_machine")
_PAPER = ("bookshelf", "nightstand", "coffee_table", "bed")

#: every one of them is grabbable; the places are in the order in which the expert looks
THINGS = {
    "milk": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "juice": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "apple": Thing(_FOOD, True, ("EATABLE", "CUTTABLE")),
    "cheese": Thing(_FOOD, False, ("EATABLE", "CUTTABLE")),
    "cup": Thing(_DISH, True, ("RECIPIENT",)),
    "plate": Thing(_DISH, True, ("SURFACES",)),
    "bowl": Thing(_DISH, True, ("RECIPIENT",)),
    "knife": Thing(_DISH, True),
    "soap": Thing(_BATH, False, ("CREAM",)),
    "toothbrush": Thing(_BATH, True),
    "shampoo": Thing(_BATH, False, ("CREAM", "POURABLE")),
    "towel": Thing(("bathroom_counter", "bathroom_cabinet", "washing_machine"), True, ("COVER_OBJECT",)),
    "shirt": Thing(_CLOTH, True, ("CLOTHES", "HANGABLE")),
    "pants": Thing(_CLOTH, True, ("CLOTHES", "HANGABLE")),
    "book": Thing(_PAPER, False, ("READABLE", "HAS_PAPER")),
    "magazine": Thing(_PAPER, False, ("READABLE", "HAS_PAPER")),
}

SEATS = tuple(name for name, piece in FURNITURE.items() if "SITTABLE" in piece.properties)
#: what is switched on for its own sake, and what has to be filled first
MACHINES = tuple(name for name, piece in FURNITURE.items() if {"CAN_OPEN", "HAS_SWITCH"} <= set(piece.properties))
DEVICES = tuple(name for name, piece in FURNITURE.items() if "HAS_SWITCH" in piece.properties and name not in MACHINES)


def opens(name: str) -> bool:
    """Whether furniture of this name has a door."""
    return name in FURNITURE and "CAN_OPEN" in FURNITURE[name].properties


def relation(name: str) -> str:
    """How things are kept there: `INSIDE` what opens, `ON` everything else."""
    return "INSIDE" if opens(name) else "ON"


def preposition(name: str) -> str:
    """`in` or `on`, as sentences and actions have it."""
    return "in" if opens(name) else "on"
