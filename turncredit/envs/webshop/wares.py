"""What the generated shop sells: kinds of products with the attributes, options and prices that they can have."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

_COLORS = ("black", "white", "red", "blue", "green", "grey", "pink", "yellow", "brown", "purple", "orange", "silver")
_SIZES = ("small", "medium", "large")
_SHOES = ("size six", "size seven", "size eight", "size nine", "size ten")
_SCENTS = ("lavender", "vanilla", "citrus", "cedar", "jasmine", "unscented")
_FLAVORS = ("chocolate", "strawberry", "caramel", "lemon", "ginger", "cinnamon", "plain")
_PACKS = ("single", "pack of two", "pack of four", "pack of six")
_WOODS = ("oak", "walnut", "birch", "bamboo", "pine")


class Kind(NamedTuple):
    """A kind of product. Prices are drawn between two whole numbers of dollars."""

    name: str
    query: str
    path: str
    attributes: tuple[str, ...]
    options: Mapping[str, tuple[str, ...]]
    price: tuple[int, int]


def _kind(
    name: str, query: str, path: str, attributes: str, price: tuple[int, int], **options: tuple[str, ...]
) -> Kind:
    named = {option.replace("_", " "): values for option, values in options.items()}
    return Kind(name, query, path, tuple(attributes.split(", ")), named, price)


_HOME, _BEAUTY = "Home › Kitchen", "Beauty › Care"
_WEAR, _TECH, _FOOD = "Clothing", "Electronics", "Grocery"
_ROOM = "Home › Furniture"

KINDS = (
    _kind("kettle", "kettles", f"{_HOME} › Kettles",
          "stainless steel, fast boiling, cool touch, quiet, cordless, drip free, energy saving, easy clean",
          (18, 70), color=_COLORS, size=_SIZES),
    _kind("water bottle", "water bottles", f"{_HOME} › Bottles",
          "leak proof, double wall, dishwasher safe, wide mouth, easy carry, bpa free, one hand lid, shatter proof",
          (8, 40), color=_COLORS, size=_SIZES),
    _kind("frying pan", "frying pans", f"{_HOME} › Cookware",
          "non stick, oven safe, cast iron, induction ready, long handle, scratch resistant, light weight, easy clean",
          (15, 80), size=_SIZES, color=_COLORS),
    _kind("cutting board", "cutting boards", f"{_HOME} › Boards",
          "knife friendly, anti slip, odor resistant, juice groove, "
          "double sided, easy clean, hanging hole, extra thick",
          (9, 45), material=_WOODS, size=_SIZES),
    _kind("coffee mug", "mugs", f"{_HOME} › Mugs",
          "hand painted, microwave safe, heat keeping, stackable, big handle, chip resistant, travel lid, gift boxed",
          (6, 30), color=_COLORS, style=("matte", "glossy", "speckled", "striped")),
    _kind("bed sheet set", "bed sheets", "Home › Bedding › Sheets",
          "wrinkle free, deep pocket, cooling, organic cotton, machine wash, fade resistant, extra soft, quick dry",
          (20, 90), color=_COLORS, size=("twin", "full", "queen", "king")),
    _kind("bookshelf", "bookshelves", f"{_ROOM} › Shelves",
          "wall mounted, easy assembly, open back, space saving, "
          "adjustable height, scratch resistant, solid wood, rustic",
          (40, 240), material=_WOODS, size=_SIZES),
    _kind("office chair", "office chairs", f"{_ROOM} › Chairs",
          "lumbar support, high back, mesh seat, folding arms, swivel, easy assembly, heavy duty, padded headrest",
          (60, 320), color=_COLORS, style=("armless", "reclining", "upright")),
    _kind("table lamp", "lamps", f"{_ROOM} › Lamps",
          "dimmable, touch control, eye care, battery powered, bendable neck, "
          "warm light, energy saving, wireless charging",
          (14, 95), color=_COLORS, style=("modern", "farmhouse", "industrial")),
    _kind("storage basket", "baskets", f"{_ROOM} › Baskets",
          "hand woven, collapsible, lined, easy carry, moisture proof, stackable, with lid, machine wash",
          (9, 50), color=_COLORS, size=_SIZES),
    _kind("shampoo", "shampoo", f"{_BEAUTY} › Hair",
          "sulfate free, paraben free, color safe, for dry hair, anti dandruff, cruelty free, tea tree, argan oil",
          (7, 40), scent=_SCENTS, size=_PACKS),
    _kind("face cream", "face creams", f"{_BEAUTY} › Skin",
          "fragrance free, anti aging, oil free, for sensitive skin, "
          "hyaluronic acid, sun protection, vegan, fast absorbing",
          (10, 65), scent=_SCENTS, size=_SIZES),
    _kind("lip balm", "lip balms", f"{_BEAUTY} › Lips",
          "long lasting, bees wax, cruelty free, sun protection, tinted, petroleum free, deep moisture, natural oils",
          (3, 18), flavor_name=_FLAVORS, size=_PACKS),
    _kind("hair dryer", "hair dryers", f"{_BEAUTY} › Tools",
          "fast drying, low noise, foldable handle, cool shot, ionic, dual voltage, light weight, with diffuser",
          (20, 110), color=_COLORS, style=("wall mount", "hand held")),
    _kind("soap bar", "soaps", f"{_BEAUTY} › Bath",
          "hand made, palm free, exfoliating, for sensitive skin, goat milk, plastic free, vegan, deep clean",
          (4, 22), scent=_SCENTS, size=_PACKS),
    _kind("running shoe", "running shoes", f"{_WEAR} › Shoes › Running",
          "arch support, rubber sole, breathable, memory foam, slip resistant, light weight, reflective, wide toe",
          (35, 160), color=_COLORS, size=_SHOES),
    _kind("sandal", "sandals", f"{_WEAR} › Shoes › Sandals",
          "open toe, ankle strap, cork sole, non slip, arch support, water friendly, adjustable strap, vegan leather",
          (15, 90), color=_COLORS, size=_SHOES),
    _kind("rain jacket", "jackets", f"{_WEAR} › Coats › Jackets",
          "water proof, wind proof, with hood, packable, breathable, reflective, zipped pockets, machine wash",
          (30, 150), color=_COLORS, size=_SIZES),
    _kind("dress", "dresses", f"{_WEAR} › Women › Dresses",
          "long sleeve, v neck, high waist, side pockets, machine wash, floral print, lined, wrinkle free",
          (18, 110), color=_COLORS, size=_SIZES),
    _kind("wool sock", "socks", f"{_WEAR} › Basics › Socks",
          "moisture wicking, cushioned sole, odor control, knee high, "
          "arch support, machine wash, seamless toe, extra warm",
          (6, 35), color=_COLORS, size=_SIZES),
    _kind("backpack", "backpacks", f"{_WEAR} › Bags › Backpacks",
          "water resistant, laptop sleeve, anti theft, light weight, "
          "padded straps, charging port, expandable, hip belt",
          (20, 130), color=_COLORS, size=_SIZES),
    _kind("headphones", "headphones", f"{_TECH} › Audio › Headphones",
          "noise cancelling, wireless, fast charging, sweat proof, foldable, "
          "deep bass, long battery, built in microphone",
          (20, 220), color=_COLORS, style=("over ear", "on ear", "in ear")),
    _kind("speaker", "speakers", f"{_TECH} › Audio › Speakers",
          "water proof, wireless, stereo pairing, long battery, shock proof, hands free, deep bass, fast charging",
          (18, 180), color=_COLORS, size=_SIZES),
    _kind("phone case", "phone cases", f"{_TECH} › Phones › Cases",
          "shock proof, wireless charging, with stand, scratch resistant, slim fit, card holder, non slip, anti yellow",
          (7, 40), color=_COLORS, material=("leather", "silicone", "plastic")),
    _kind("power bank", "power banks", f"{_TECH} › Phones › Power",
          "fast charging, slim fit, solar powered, high capacity, "
          "digital display, dual output, with cable, travel safe",
          (15, 90), color=_COLORS, size=_SIZES),
    _kind("keyboard", "keyboards", f"{_TECH} › Computers › Keyboards",
          "mechanical, wireless, back light, spill proof, hot swap, low profile, quiet keys, wrist rest",
          (18, 170), color=_COLORS, style=("compact", "full size", "split")),
    _kind("granola", "granola", f"{_FOOD} › Breakfast › Granola",
          "gluten free, low sugar, high protein, nut free, non gmo, whole grain, organic, dairy free",
          (4, 25), flavor_name=_FLAVORS, size=_PACKS),
    _kind("protein bar", "protein bars", f"{_FOOD} › Snacks › Bars",
          "keto friendly, low sugar, plant based, gluten free, high fiber, soy free, non gmo, no artificial colors",
          (6, 38), flavor_name=_FLAVORS, size=_PACKS),
    _kind("herbal tea", "teas", f"{_FOOD} › Drinks › Tea",
          "caffeine free, organic, loose leaf, fair trade, sugar free, immune support, hand picked, compostable bags",
          (4, 28), flavor_name=_FLAVORS, size=_PACKS),
    _kind("cookie", "cookies", f"{_FOOD} › Snacks › Cookies",
          "gluten free, nut free, sugar free, individually wrapped, dairy free, kosher, artificial free, soft baked",
          (4, 24), flavor_name=_FLAVORS, size=_PACKS),
)  # fmt: skip

#: how people say in other words what the catalogue has; no text of a product has these words
SYNONYMS = {
    "easy clean": "simple to wipe down", "light weight": "not heavy at all", "machine wash": "safe for the laundry",
    "wireless": "free of cables", "fast charging": "quick to fill up", "scratch resistant": "hard to mar",
    "gluten free": "made with no wheat", "arch support": "good for flat feet", "sugar free": "unsweetened",
    "water proof": "fine in the rain", "easy assembly": "simple to put together", "energy saving": "frugal with power",
    "long battery": "running for days", "organic": "grown naturally", "breathable": "letting air through",
    "cruelty free": "never tested on animals", "non slip": "firmly gripping", "stackable": "good to pile up",
    "easy carry": "handy to take along", "for sensitive skin": "gentle to delicate faces", "vegan": "of plants alone",
    "quiet": "hardly audible", "cordless": "without a cable", "warm light": "glowing softly",
    "low sugar": "hardly sweet", "nut free": "safe with a peanut allergy", "non gmo": "of unmodified crops",
    "deep bass": "rich in low notes", "shock proof": "surviving drops", "wrinkle free": "never in need of ironing",
    "kettle": "water boiler", "frying pan": "skillet", "coffee mug": "cup", "bookshelf": "bookcase",
    "storage basket": "hamper", "running shoe": "sneaker", "backpack": "rucksack", "rain jacket": "anorak",
    "headphones": "earphones", "cookie": "biscuit",
}  # fmt: skip

BRAND_STARTS = ("Al", "Bren", "Cor", "Dav", "El", "Fen", "Gar", "Hol", "Jun", "Kel", "Lor", "Mar", "Nor", "Pel", "Ros")
BRAND_ENDS = (
    "ado",
    "bury",
    "crest",
    "dale",
    "esse",
    "ford",
    "ima",
    "land",
    "mont",
    "ora",
    "ric",
    "ton",
    "vale",
    "wick",
)
USES = ("at home", "for every day", "as a gift", "when travelling", "for the whole family", "on busy mornings")
OPINIONS = (
    ("As described", "5", "Arrived on time and is what the page says."),
    ("Good value", "4", "Does its job; I would buy it again."),
    ("It is fine", "3", "Neither better nor worse than the one before."),
    ("Not for me", "2", "I had expected more for this price."),
)


def in_catalogue_words(text: str) -> str:
    """A text with the generated catalogue's words for their synonyms."""
    for word, synonym in SYNONYMS.items():
        text = re.sub(rf"\b{synonym}\b", word, text)
    return text
