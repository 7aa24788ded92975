"""The score of a purchase, as the original computes it.

    score = type * (attributes + options + price) / (|goal's attributes| + |goal's options| + 1)

    attributes  those of the goal that the product has, by its list of attributes (fuzzily), title, features or text
    options     those of the goal that some selected option matches (fuzzily)
    price       1 if it is not above the limit
    type        1; 0.5 for another kind of product; 0.1 where few, 0 where none of the title's nouns are shared

Source: WebShop (Yao et al. 2022, section 3.2) and its code, web_agent_site/engine/goal.py. Departures:

- Nouns. The original takes what spaCy's en_core_web_sm tags as a noun or a proper noun. Here a noun is every word of a
  title that is neither a number nor in a short list, mostly of function words. As that tagger does, words are cut at
  hyphens and apostrophes, and units from numbers.
- Colours. The original reduces a selected option to the first colour word in it ("navy blue" to "blue"), but not the
  goal's where it has a name, so 7% of its synthetic goals cannot reach 1. Here both are reduced, unless
  `original_colors`.
- Prices within a range are drawn by product, not by process (`Product.price`).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.webshop.catalogue import Product

NO_LIMIT = 1_000_000.0
"""The price limit of goals without one."""
_ALIKE = 85

#: in the original's order, which decides where a text has several
COLORS = tuple(
    "alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel "  # noqa: SIM905
    "camo caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry "
    "cream crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green "
    "grey heather indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot "
    "midnight mint mocha multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple "
    "rainbow red rose royal rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan "
    "taupe teal tiger turquoise violet walnut wheat white wine yellow".split()
)

#: words of titles that the tagger takes for something else than a noun; adjectives are nouns to it, as titles are in
#: title case
_NOT_NOUNS = frozenset(
    "a about above across after against all along also am among an and any are around as at away based be because "  # noqa: SIM905
    "been before behind being below beneath beside besides between beyond both but by can comfortable could did "
    "do does down during each either etc every except few for from full fully had has have he her here hers him "
    "his how i if in include included includes including into is it its large led less like made make makes many "
    "me more most much my near nor not of off on once one only onto or other our out over own per plus s she "
    "should so some such than that the their them then there these they this those through to too toward towards "
    "two under until up upon us very via was we were what when where which while who whose why will with within "
    "without would x you your".split()
)
_TITLE_WORD = re.compile(r"[^\W_]+")
_MEASURE = re.compile(r"^\d+(oz|mm|cm|ft|inch|inches|kg|g|mg|lb|lbs|l|ml|gb|tb|hz|mah|w|v|k|m)$")
_NOT_IN_WORD = re.compile(r"\W")
_LATIN_1 = dict.fromkeys(range(128, 256))
"""What thefuzz takes out as "not ASCII"; letters beyond are kept, and other signs separate words."""


class Goal(NamedTuple):
    """What is to be bought. Options are (name, value); those of people's instructions have no name."""

    asin: str
    """The product that the goal was made of; any other with a score of 1 will do."""
    instruction: str
    attributes: tuple[str, ...]
    options: tuple[tuple[str, str], ...]
    limit: float

    @property
    def conditions(self) -> int:
        """Attributes, options and the price."""
        return len(self.attributes) + len(self.options) + 1


class Score(NamedTuple):
    """The parts of a purchase's score: a factor, and the numbers of attributes, options and prices that are right."""

    kind: float
    attributes: int
    options: int
    price: int
    total: float


def score(product: Product, selected: Iterable[str], goal: Goal, wanted: Product, *, original_colors: bool) -> Score:
    """The score of buying `product` with the option values `selected`; `wanted` is the goal's own product."""
    attributes = sum(has_attribute(product, attribute) for attribute in goal.attributes)
    chosen = tuple(selected)
    options = sum(any(matches(value, asked) for value in chosen) for asked in asked_options(goal, original_colors))
    price = int(product.price <= goal.limit)
    kind = kind_factor(product, wanted)
    return Score(kind, attributes, options, price, kind * (attributes + options + price) / goal.conditions)


def matches(value: str, asked: str) -> bool:
    """Whether a selected value counts for an option of the goal (one of `asked_options`)."""
    return token_set_ratio(first_color(value), asked) > _ALIKE


@lru_cache(maxsize=1 << 14)
def asked_options(goal: Goal, original_colors: bool) -> tuple[str, ...]:
    """The goal's options as texts to compare with. The original compares with the pair of name and value as Python
    prints it, so that the name's words count as words of the option, and so do we. Of such a pair it reduces no
    colour; the options of people's instructions, which are texts there, it reduces.
    """
    values = ((name, value if name and original_colors else first_color(value)) for name, value in goal.options)
    return tuple(str((name, value)) if name else value for name, value in values)


def first_color(text: str) -> str:
    """The first of `COLORS` that is in a text ("tan" is in "standard"), or else the text."""
    return next((color for color in COLORS if color in text), text)


@lru_cache(maxsize=1 << 16)
def has_attribute(product: Product, attribute: str) -> bool:
    """Whether a product has an attribute of a goal."""
    return (
        any(token_set_ratio(own, attribute) > _ALIKE for own in product.attributes)
        or attribute in product.title.lower()
        or attribute in " ".join(product.bullets).lower()
        or attribute in product.description.lower()
    )


@lru_cache(maxsize=1 << 16)
def kind_factor(product: Product, wanted: Product) -> float:
    """How far a product is of the wanted kind: 1, 0.5, 0.1 or 0."""
    nouns = title_nouns(wanted.title)
    shared = len(set(title_nouns(product.title)) & set(nouns)) / len(nouns) if nouns else 0.2
    if shared == 0:
        return 0.0
    if shared < 0.1:
        return 0.1
    alike = product.query == wanted.query or len(_categories(product) & _categories(wanted)) >= 2 or shared > 0.2
    return 1.0 if alike else 0.5


@lru_cache(maxsize=1 << 14)
def title_nouns(title: str) -> tuple[str, ...]:
    """The nouns of a title, by the plain rule (see above); a noun that occurs twice is listed twice."""
    words = (_MEASURE.sub(r"\1", word) for word in _TITLE_WORD.findall(title.lower()))
    return tuple(word for word in words if word not in _NOT_NOUNS and not word.isdigit())


def _categories(product: Product) -> set[str]:
    return {part.strip() for part in product.path.split("›")}


@lru_cache(maxsize=1 << 17)
def token_set_ratio(one: str, other: str) -> int:
    """The similarity of two texts as sets of words, from 0 to 100: 100 where one has all words of the other.

    That of thefuzz 0.19 without python-Levenshtein, as the original installs it, which compares by `difflib`.
    """
    words, others = (set(_plain(text).split()) for text in (one, other))
    if not words or not others:
        return 0
    both = " ".join(sorted(words & others))
    first = f"{both} {' '.join(sorted(words - others))}".strip()
    second = f"{both} {' '.join(sorted(others - words))}".strip()
    return max(_ratio(both, first), _ratio(both, second), _ratio(first, second))


def _ratio(one: str, other: str) -> int:
    return round(100 * SequenceMatcher(None, one, other).ratio()) if one and other else 0


def _plain(text: str) -> str:
    return _NOT_IN_WORD.sub(" ", text.translate(_LATIN_1)).lower().strip()
