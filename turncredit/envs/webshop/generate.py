"""A shop of our own: a catalogue from a seed, and goals in it.

The catalogue has the structure of the original's (categories, titles that name some of a product's attributes (or all,
if the settings say so), features that name all, options, prices), and none of its text. It is the same for all splits.
The hash of what a goal asks for decides its split, so that no two splits ask for the same, whatever their seeds.
"""

from __future__ import annotations

import hashlib
import json
import random
from typing import NamedTuple

from turncredit.data.seeding import derive_seed
from turncredit.envs.webshop.catalogue import Product, contents_of
from turncredit.envs.webshop.goals import option_clause, price_clause, price_limit, to_text
from turncredit.envs.webshop.reward import Goal
from turncredit.envs.webshop.settings import MOST_ATTRIBUTES, Settings
from turncredit.envs.webshop.wares import BRAND_ENDS, BRAND_STARTS, KINDS, OPINIONS, SYNONYMS, USES, Kind
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
_ATTEMPTS = 2_000
"""Draws for one goal before giving up; a draw falls into the wanted split one time in four."""
_SHOWN: dict[str, int | None] = {"some": 2, "all": None}
"""Attributes in a title, by the setting `titles`; the features have all."""
_LETTERS = "BSHOPITEM"
_DEARER = (45, 80)
"""How much more a dearer lookalike costs, in dollars: a limit is at most 40 above the price of the goal's product."""
_STARTS = ("i am looking for a", "find me a", "i need a", "i want to buy a")


def catalogue(count: int, seed: int, titles: str = "some", lookalikes: float = 0.0) -> list[Product]:
    """`count` products; each kind of product is equally frequent. `titles` and `lookalikes`: the settings.

    A lookalike differs from another product of its kind in one point, and its text has the same words.
    """
    numbers = list(range(count))
    random.Random(derive_seed(seed, "webshop", "order")).shuffle(numbers)
    products: list[Product] = []
    for place, number in enumerate(numbers):  # the place decides the kind, so that numbers say nothing of kinds
        rng = random.Random(derive_seed(seed, "webshop", "product", number))
        kind, before = KINDS[place % len(KINDS)], place - len(KINDS)
        draft = _draft(rng, kind)
        if before >= 0 and rng.random() < lookalikes:
            draft = _lookalike(rng, kind, products[before], draft)
        digits = f"{number:0{max(3, len(str(count - 1)))}d}"
        products.append(_product(kind, draft, _LETTERS[: 10 - len(digits)] + digits, _SHOWN[titles]))
    return sorted(products, key=lambda product: product.asin)


class _Draft(NamedTuple):
    """What is drawn for a product. A `remark`, where there is one, stands for `use` in its description."""

    brand: str
    use: str
    attributes: tuple[str, ...]
    options: dict[str, tuple[str, ...]]
    price: float
    reviews: tuple[tuple[str, str, str], ...]
    remark: str = ""


def _draft(rng: random.Random, kind: Kind) -> _Draft:
    return _Draft(
        brand=rng.choice(BRAND_STARTS) + rng.choice(BRAND_ENDS),
        use=rng.choice(USES),
        attributes=tuple(rng.sample(kind.attributes, rng.randint(MOST_ATTRIBUTES, MOST_ATTRIBUTES + 1))),
        options={
            name: tuple(sorted(rng.sample(values, rng.randint(2, min(4, len(values)))), key=values.index))
            for name, values in kind.options.items()
            if rng.random() < 0.85
        },
        price=rng.randint(*kind.price) - 0.01,
        reviews=tuple(rng.sample(OPINIONS, rng.choice((0, 0, 1, 2)))),
    )


def _lookalike(rng: random.Random, kind: Kind, model: Product, draft: _Draft) -> _Draft:
    """A product like `model`, of which one attribute or option value is missing, or the price is above every limit.

    What is missing is still said in words, so that searches find both; only the phrase or the option is not there. An
    attribute of one word is its own phrase: the score then counts it as described (4% of all lookalikes).
    """
    draft = draft._replace(attributes=model.attributes, options=dict(model.options), price=model.price)
    ways = ["price", "attribute", *(["option"] if model.options else [])]
    way = rng.choice(ways)
    if way == "price":
        return draft._replace(price=model.price + rng.randint(*_DEARER))
    if way == "attribute":
        lost = rng.choice(model.attributes)
        other = rng.choice([one for one in kind.attributes if one not in model.attributes])
        attributes = tuple(other if one == lost else one for one in model.attributes)
        words = ", ".join(reversed(lost.split()))
        return draft._replace(attributes=attributes, remark=f". Compare every {kind.name}: {words}")
    name = rng.choice(sorted(model.options))
    lost = rng.choice(model.options[name])
    left = [value for value in kind.options[name] if value != lost]
    values = tuple(sorted(rng.sample(left, min(len(left), len(model.options[name]))), key=left.index))
    return draft._replace(
        options={**model.options, name: values}, remark=f". This {kind.name} is not sold in {lost} now"
    )


def _product(kind: Kind, draft: _Draft, asin: str, shown: int | None) -> Product:
    """The product of a draft. `shown`: attributes in its title; None: all."""
    title = " ".join((draft.brand, *draft.attributes[:shown], kind.name)).title()
    description = f"A {kind.name} by {draft.brand}{draft.remark or f', made {draft.use}'}."
    bullets = tuple(attribute.capitalize() for attribute in draft.attributes)
    reviews = draft.reviews
    return Product(
        asin=asin,
        title=title,
        description=description,
        bullets=bullets,
        prices=(round(draft.price, 2),),
        options=draft.options,
        attributes=draft.attributes,
        query=kind.query,
        path=kind.path,
        contents=contents_of(title, description, bullets[len(draft.attributes[:shown]) :], draft.options),
        rating=f"{sum(int(review[1]) for review in reviews) / len(reviews):.1f}" if reviews else "N.A.",
        reviews=reviews,
    )


def families(settings: Settings) -> list[tuple[int, int]]:
    """The numbers of attributes and of options that goals ask for; they take turns."""
    (a, b), (c, d) = settings.attributes, settings.options
    return [(attributes, options) for options in range(c, d + 1) for attributes in range(a, b + 1)]


def generate(
    products: list[Product], split: str, index: int, seed: int, settings: Settings, seen: set[str]
) -> tuple[str, Goal]:
    """The goal number `index` of a split: (content hash, goal).

    Goals whose hash is in `seen` are left out; the new one is added to it. Raises UserError for an unknown split, and
    where the settings allow too few different goals.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated WebShop goals{nearest(split, SPLITS)}; choose "
            f"one of {', '.join(SPLITS)}"
        )
    sizes = families(settings)
    attributes, options = sizes[index % len(sizes)]
    rng = random.Random(derive_seed(seed, "webshop", split, index))
    for _ in range(_ATTEMPTS):
        product = rng.choice(products)
        if len(product.options) < options:
            continue
        goal = _goal(rng, product, attributes, options, settings.synonyms)
        content = _hash(to_text(goal._replace(instruction="")))
        if int(_hash(_asked(goal, product))[:8], 16) % len(SPLITS) == SPLITS.index(split) and content not in seen:
            seen.add(content)
            return content, goal
    raise UserError(
        f"found no new WebShop goal of {attributes} attributes and {options} options for the split '{split}' in "
        f"{_ATTEMPTS} draws; allow more products, attributes or options, or ask for fewer games"
    )


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def _asked(goal: Goal, product: Product) -> str:
    """What a goal asks for: the kind of product, attributes in any order and options, whatever its words and limit."""
    return json.dumps([product.query, sorted(goal.attributes), goal.options])


def _goal(rng: random.Random, product: Product, attributes: int, options: int, synonyms: float) -> Goal:
    kind = next(kind for kind in KINDS if kind.query == product.query)
    asked = tuple(rng.sample(product.attributes, attributes))
    names = sorted(rng.sample(sorted(product.options), options))
    chosen = tuple((name, rng.choice(product.options[name])) for name in names)
    limit = price_limit(product, rng.randrange(1 << 30))
    said = [SYNONYMS.get(one, one) if synonyms and rng.random() < synonyms else one for one in (*asked, kind.name)]
    wish = f"{said[-1]} that is {' and '.join(said[:-1])}"
    text = f"{rng.choice(_STARTS)} {wish}{option_clause(chosen)}{price_clause(limit)}"
    return Goal(product.asin, text, asked, chosen, limit)
