"""Facts about ALFRED's household, from which games are generated.

What each receptacle can contain, what can be cleaned, heated, cooled or sliced and what opens are the tables
of ALFRED and ALFWorld (`alfworld.gen.constants`, version 0.4.2; static receptacles and whole objects only).
Which receptacles and objects belong to which room, and the most of a kind a room has, follow the released
training games. Kept here so that games can be generated and played without the reference packages.
"""

from __future__ import annotations


def _table(text: str) -> dict[str, frozenset[str]]:
    rows = (line.split(":") for line in text.strip().splitlines())
    return {name.strip(): frozenset(items.split()) for name, items in rows}


_ANY_TOP = (
    "AlarmClock Apple BaseballBat BasketBall Book Bowl Box Bread ButterKnife CD Candle CellPhone Cloth "
    "CreditCard Cup DishSponge Egg Fork Glassbottle HandTowel Kettle KeyChain Knife Ladle Laptop Lettuce Mug "
    "Newspaper Pan PaperTowel Pen Pencil PepperShaker Plate Pot Potato RemoteControl SaltShaker SoapBar "
    "SoapBottle Spatula Spoon SprayBottle Statue TennisRacket TissueBox ToiletPaper ToiletPaperRoll Tomato "
    "Vase Watch WateringCan WineBottle"
)
_SEAT = "BasketBall Book Box CellPhone Cloth CreditCard KeyChain Laptop Newspaper Pillow RemoteControl"

CONTAINS = _table(
    f"""
    ArmChair: {_SEAT}
    BathtubBasin: Cloth DishSponge HandTowel SoapBar
    Bed: BaseballBat BasketBall Book CellPhone Laptop Newspaper Pillow TennisRacket
    Cabinet: Book Bowl Box CD Candle Cloth Cup DishSponge Glassbottle HandTowel Kettle Ladle Mug Newspaper Pan \
PepperShaker Plate Plunger Pot SaltShaker SoapBar SoapBottle SprayBottle TissueBox ToiletPaper ToiletPaperRoll \
Vase WateringCan WineBottle
    Cart: Candle Cloth DishSponge HandTowel Mug PaperTowel Plunger SoapBar SoapBottle SprayBottle Statue TissueBox \
ToiletPaper ToiletPaperRoll Vase
    CoffeeMachine: Mug
    CoffeeTable: {_ANY_TOP}
    CounterTop: {_ANY_TOP}
    Desk: AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup Glassbottle KeyChain Laptop \
Mug Newspaper Pen Pencil Plate RemoteControl SoapBottle SprayBottle Statue TennisRacket TissueBox ToiletPaper \
ToiletPaperRoll Vase Watch WateringCan WineBottle
    DiningTable: {_ANY_TOP}
    Drawer: Book ButterKnife CD Candle CellPhone Cloth CreditCard DishSponge Fork HandTowel KeyChain Knife Ladle \
Newspaper Pen Pencil PepperShaker RemoteControl SaltShaker SoapBar SoapBottle Spatula Spoon SprayBottle TissueBox \
ToiletPaper ToiletPaperRoll Watch WateringCan
    Dresser: AlarmClock BasketBall Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup Glassbottle KeyChain \
Laptop Mug Newspaper Pen Pencil Plate RemoteControl SprayBottle Statue TennisRacket TissueBox ToiletPaper \
ToiletPaperRoll Vase Watch WateringCan WineBottle
    Fridge: Apple Bowl Bread Cup Egg Glassbottle Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    GarbageCan: Apple Bread CD Cloth DishSponge Egg HandTowel Lettuce Newspaper PaperTowel Pen Pencil Potato SoapBar \
SoapBottle SprayBottle TissueBox ToiletPaper ToiletPaperRoll Tomato WineBottle
    HandTowelHolder: HandTowel
    LaundryHamper: Cloth
    Microwave: Apple Bowl Bread Cup Egg Glassbottle Mug Plate Potato Tomato
    Ottoman: {_SEAT}
    Safe: CD CellPhone CreditCard KeyChain Statue Vase Watch
    Shelf: AlarmClock Book Bowl Box CD Candle CellPhone Cloth CreditCard Cup DishSponge Glassbottle HandTowel Kettle \
KeyChain Mug Newspaper PaperTowel Pen Pencil PepperShaker Plate Pot RemoteControl SaltShaker SoapBar SoapBottle \
SprayBottle Statue TissueBox ToiletPaper ToiletPaperRoll Vase Watch WateringCan WineBottle
    SideTable: {_ANY_TOP}
    SinkBasin: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Glassbottle HandTowel Kettle Knife Ladle Lettuce \
Mug Pan Plate Pot Potato SoapBar Spatula Spoon Tomato
    Sofa: {_SEAT}
    StoveBurner: Kettle Pan Pot
    Toilet: Candle Cloth DishSponge HandTowel Newspaper PaperTowel SoapBar SoapBottle SprayBottle TissueBox \
ToiletPaper ToiletPaperRoll
    ToiletPaperHanger: ToiletPaper ToiletPaperRoll
    TowelHolder: Towel
    TVStand: TissueBox
    Toaster:
    """
)
"""Receptacle type to the object types it can contain. (A toaster takes only sliced bread.)"""

OPENABLE = frozenset({"Cabinet", "Drawer", "Fridge", "Microwave", "Safe"})

AFFORDANCES = _table(
    """
    heatable: Apple Bread Cup Egg Mug Plate Potato Tomato
    coolable: Apple Bowl Bread Cup Egg Lettuce Mug Pan Plate Pot Potato Tomato WineBottle
    cleanable: Apple Bowl ButterKnife Cloth Cup DishSponge Egg Fork Kettle Knife Ladle Lettuce Mug Pan Plate Pot \
Potato SoapBar Spatula Spoon Tomato
    sliceable: Apple Bread Egg Lettuce Potato Tomato
    toggleable: DeskLamp FloorLamp
    isReceptacleObject: Bowl Box Cup Mug Pan Plate Pot
    """
)
"""PDDL predicate to the object types it holds for."""

LAMPS = ("DeskLamp", "FloorLamp")
LAMP_STANDS = ("Desk", "SideTable", "Dresser", "Shelf")
"""Where generated games put lamps; the tables say nothing about them."""

ROOM_RECEPTACLES: dict[str, dict[str, int]] = {
    "kitchen": {
        "Cabinet": 10, "CoffeeMachine": 1, "CounterTop": 3, "DiningTable": 2, "Drawer": 8, "Fridge": 1,
        "GarbageCan": 1, "Microwave": 1, "Shelf": 3, "SideTable": 1, "SinkBasin": 1, "StoveBurner": 4, "Toaster": 1,
    },
    "living": {
        "ArmChair": 3, "Cabinet": 4, "CoffeeTable": 2, "DiningTable": 1, "Drawer": 8, "Dresser": 1, "GarbageCan": 1,
        "Ottoman": 1, "Safe": 1, "Shelf": 6, "SideTable": 3, "Sofa": 2, "TVStand": 1,
    },
    "bedroom": {
        "ArmChair": 1, "Bed": 2, "Cabinet": 4, "Desk": 2, "Drawer": 10, "Dresser": 2, "GarbageCan": 1,
        "LaundryHamper": 1, "Safe": 1, "Shelf": 6, "SideTable": 3,
    },
    "bathroom": {
        "BathtubBasin": 1, "Cabinet": 8, "Cart": 1, "CounterTop": 2, "Drawer": 6, "GarbageCan": 1,
        "HandTowelHolder": 2, "Shelf": 4, "SideTable": 1, "SinkBasin": 2, "Toilet": 1, "ToiletPaperHanger": 1,
        "TowelHolder": 2,
    },
}  # fmt: skip
"""Room to its receptacle types and the most of each."""

ROOM_OBJECTS: dict[str, tuple[str, ...]] = {
    "kitchen": (
        "Apple", "Book", "Bowl", "Bread", "ButterKnife", "CellPhone", "CreditCard", "Cup", "DishSponge", "Egg", "Fork",
        "Glassbottle", "Kettle", "Knife", "Ladle", "Lettuce", "Mug", "Pan", "PepperShaker", "Plate", "Pot", "Potato",
        "SaltShaker", "SoapBottle", "Spatula", "Spoon", "Statue", "Tomato", "Vase", "WineBottle",
    ),
    "living": (
        "Book", "Bowl", "Box", "Candle", "CellPhone", "CreditCard", "KeyChain", "Laptop", "Newspaper", "Pen", "Pencil",
        "Pillow", "Plate", "RemoteControl", "Statue", "TissueBox", "Vase", "Watch", "WateringCan",
    ),
    "bedroom": (
        "AlarmClock", "BaseballBat", "BasketBall", "Book", "Bowl", "Box", "CD", "CellPhone", "Cloth", "CreditCard",
        "KeyChain", "Laptop", "Mug", "Pen", "Pencil", "Pillow", "RemoteControl", "Statue", "TennisRacket", "TissueBox",
        "Vase", "Watch",
    ),
    "bathroom": (
        "Candle", "Cloth", "DishSponge", "HandTowel", "PaperTowel", "Plunger", "SoapBar", "SoapBottle", "SprayBottle",
        "TissueBox", "ToiletPaper", "ToiletPaperRoll", "Towel",
    ),
}  # fmt: skip

ROOMS = tuple(ROOM_RECEPTACLES)

FAMILY_ROOMS: dict[str, tuple[str, ...]] = {
    "pick": ROOMS,
    "look": ("living", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "pick2": ROOMS,
}
"""Where each family can be set: where its appliance or lamp stands."""

FAMILY_APPLIANCE = {"clean": "SinkBasin", "heat": "Microwave", "cool": "Fridge"}
FAMILY_AFFORDANCE = {"clean": "cleanable", "heat": "heatable", "cool": "coolable"}

SENTENCES: dict[str, tuple[str, ...]] = {
    "pick": ("put a {o} in {r}.", "put some {o} on {r}."),
    "look": ("look at {o} under the {r}.", "examine the {o} with the {r}."),
    "clean": ("put a clean {o} in {r}.", "clean some {o} and put it in {r}."),
    "heat": ("put a hot {o} in {r}.", "heat some {o} and put it in {r}."),
    "cool": ("put a cool {o} in {r}.", "cool some {o} and put it in {r}."),
    "pick2": ("put two {o} in {r}.", "find two {o} and put them in {r}."),
}
"""ALFWorld's task sentences."""
