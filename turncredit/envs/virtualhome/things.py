"""What generated households are made of: furniture and the rooms it may be in, small objects and where they may be.

Class names and properties are those of VirtualHome's own scenes and tables, so that the package's executor treats them
alike. Where something may be is common knowledge: households are drawn from it, and the expert searches by it. Most
pieces and all small objects may be in several rooms, so that a plan for one household hardly ever is one for another.
"""

from __future__ import annotations

from typing import NamedTuple


class Furniture(NamedTuple):
    """A piece of furniture: the rooms in one of which it is, the package's properties, its states.

    `always`: in every household with such a room.
    """

    rooms: tuple[str, ...]
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
_OFF = ("OFF", "PLUGGED_IN")

_BATH_ROOM = ("bathroom",)
_COOKING = ("kitchen", "dining_room")
_SLEEPING = ("bedroom", "home_office", "living_room")
_WARDROBE = ("bedroom", "bathroom", "home_office", "living_room")
_ANYWHERE = ("bedroom", "dining_room", "home_office", "kitchen", "living_room")

FURNITURE = {
    "bathroom_cabinet": Furniture(_BATH_ROOM, _BOX, ("CLOSED",)),
    "bathroom_counter": Furniture(_BATH_ROOM, ("SURFACES",)),
    "toilet": Furniture(_BATH_ROOM, ("SITTABLE",)),
    "washing_machine": Furniture(
        ("bathroom", "kitchen", "home_office"), (*_BOX, *_DEVICE), ("CLOSED", *_OFF), True, "Appliances"
    ),
    "bed": Furniture(_SLEEPING, ("SITTABLE", "LIEABLE", "SURFACES")),
    "closet": Furniture(_WARDROBE, _BOX, ("CLOSED",)),
    "dresser": Furniture(_SLEEPING, _BOX, ("CLOSED",)),
    "cabinet": Furniture(_ANYWHERE, _BOX, ("CLOSED",)),
    "filing_cabinet": Furniture(_SLEEPING, _BOX, ("CLOSED",), False),
    "nightstand": Furniture(_SLEEPING, _BOX, ("CLOSED",)),
    "desk": Furniture(_ANYWHERE, ("SURFACES",)),
    "chair": Furniture(_ANYWHERE, ("SITTABLE",)),
    "computer": Furniture(_ANYWHERE, (*_DEVICE, "LOOKABLE"), _OFF, False, "Electronics"),
    "laptop": Furniture(_ANYWHERE, (*_DEVICE, "LOOKABLE"), _OFF, False, "Electronics"),
    "lamp": Furniture((*_ANYWHERE, "bathroom"), _DEVICE, _OFF, True, "Lamps"),
    "cupboard": Furniture(_COOKING, _BOX, ("CLOSED",)),
    "dishwasher": Furniture(_COOKING, (*_BOX, *_DEVICE), ("CLOSED", *_OFF), True, "Appliances"),
    "fridge": Furniture(_COOKING, _BOX, ("CLOSED",), True, "Appliances"),
    "kitchen_counter": Furniture(_COOKING, ("SURFACES",)),
    "table": Furniture(_ANYWHERE, ("SURFACES",)),
    "coffee_maker": Furniture((*_COOKING, "home_office", "living_room"), _DEVICE, _OFF, False, "Appliances"),
    "toaster": Furniture((*_COOKING, "living_room"), _DEVICE, _OFF, False, "Appliances"),
    "bookshelf": Furniture(_ANYWHERE, _BOX, ("CLOSED",)),
    "coffee_table": Furniture(_ANYWHERE, ("SURFACES",)),
    "sofa": Furniture(_ANYWHERE, ("SITTABLE", "LIEABLE")),
    "tv": Furniture(_ANYWHERE, (*_DEVICE, "LOOKABLE"), _OFF, True, "Electronics"),
    "stereo": Furniture(_ANYWHERE, _DEVICE, _OFF, False, "Electronics"),
    "radio": Furniture((*_ANYWHERE, "bathroom"), _DEVICE, _OFF, False, "Electronics"),
}

_FOOD = ("fridge", "kitchen_counter", "cupboard", "cabinet", "table")
_DISH = ("cupboard", "kitchen_counter", "dishwasher", "cabinet", "table", "desk")
_BATH = ("bathroom_cabinet", "bathroom_counter", "nightstand", "dresser", "closet")
_CLOTH = ("closet", "bed", "washing_machine", "dresser", "bathroom_cabinet")
_PAPER = ("bookshelf", "filing_cabinet", "nightstand", "dresser", "desk", "coffee_table", "bed")
_LOOSE = ("desk", "bookshelf", "filing_cabinet", "nightstand", "dresser", "cabinet", "coffee_table", "table")

#: every one of them is grabbable; the places are in the order in which the expert looks
THINGS = {
    "milk": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "juice": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "apple": Thing(_FOOD, True, ("EATABLE", "CUTTABLE")),
    "bread": Thing(_FOOD, False, ("EATABLE", "CUTTABLE")),
    "tea": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "wine": Thing(_FOOD, False, ("DRINKABLE", "POURABLE")),
    "cheese": Thing(_FOOD, False, ("EATABLE", "CUTTABLE")),
    "cup": Thing(_DISH, True, ("RECIPIENT",)),
    "mug": Thing(_DISH, True, ("RECIPIENT", "POURABLE")),
    "plate": Thing(_DISH, True, ("SURFACES",)),
    "bowl": Thing(_DISH, True, ("RECIPIENT",)),
    "knife": Thing(_DISH, True),
    "spoon": Thing(_DISH, True),
    "fork": Thing(_DISH, True),
    "glass": Thing(_DISH, True, ("RECIPIENT", "POURABLE")),
    "soap": Thing(_BATH, False, ("CREAM",)),
    "toothbrush": Thing(_BATH, True),
    "comb": Thing(_BATH, True),
    "razor": Thing(_BATH, True),
    "shampoo": Thing(_BATH, False, ("CREAM", "POURABLE")),
    "hairdryer": Thing(_BATH),
    "towel": Thing((*_CLOTH, "bathroom_counter"), True, ("COVER_OBJECT",)),
    "shirt": Thing(_CLOTH, True, ("CLOTHES", "HANGABLE")),
    "pants": Thing(_CLOTH, True, ("CLOTHES", "HANGABLE")),
    "shoes": Thing((*_CLOTH, "table"), True, ("CLOTHES",)),
    "book": Thing(_PAPER, False, ("READABLE", "HAS_PAPER")),
    "magazine": Thing(_PAPER, False, ("READABLE", "HAS_PAPER")),
    "notebook": Thing(_PAPER, False, ("READABLE", "HAS_PAPER", "CUTTABLE")),
    "newspaper": Thing(_PAPER, False, ("READABLE", "HAS_PAPER")),
    "pen": Thing(_LOOSE),
    "pencil": Thing(_LOOSE),
    "keys": Thing(_LOOSE),
    "glasses": Thing(_LOOSE, True),
    "toy": Thing(_LOOSE, True),
    "phone": Thing(_LOOSE),
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
