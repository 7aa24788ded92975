"""Goals made of a real catalogue, as the original makes them, and their text in the tasks table."""

from __future__ import annotations

import itertools
import json
import random
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, TypeVar

from turncredit.data.seeding import derive_seed
from turncredit.envs.webshop.catalogue import Product
from turncredit.envs.webshop.reward import NO_LIMIT, Goal
from turncredit.errors import UserError

T = TypeVar("T")
_SHUFFLE = 233
"""The seed with which the original shuffles its goals before it cuts them into splits."""


def synthetic_goals(products: Iterable[Product]) -> Iterator[Goal]:
    """One goal for every combination of option values of every product that has an instruction, in the catalogue's
    order."""
    for product in products:
        if product.instruction is None:
            continue
        limit = price_limit(product, 0)
        names = sorted(product.options)
        for values in itertools.product(*(product.options[name] for name in names)):
            options = tuple(zip(names, values, strict=True))
            text = product.instruction + option_clause(options) + price_clause(limit)
            yield Goal(product.asin, text, product.instruction_attributes, options, limit)


def human_goals(products: Iterable[Product]) -> Iterator[Goal]:
    """People's instructions that name attributes, in the catalogue's order."""
    for product in products:
        for number, (instruction, attributes, options) in enumerate(product.human):
            if attributes:
                limit = price_limit(product, number)
                text = instruction.strip(".") + price_clause(limit)
                yield Goal(product.asin, text, attributes, tuple(("", value) for value in options), limit)


def shuffled(goals: Iterable[T]) -> list[T]:
    """The original's order of its goals, from which its splits are cut."""
    order = list(goals)
    random.Random(_SHUFFLE).shuffle(order)
    return order


def price_limit(product: Product, number: int) -> float:
    """The larger of two of the next four multiples of 10 above the price, drawn for the product's goal `number`.

    `NO_LIMIT` where there are fewer than two (from 980 on). The original draws it before it sets its seed.
    """
    above = [10.0 * n for n in range(1, 100) if 10.0 * n > product.price][:4]
    if len(above) < 2:
        return NO_LIMIT
    return max(random.Random(derive_seed("webshop", "limit", product.asin, number)).sample(above, 2))


def option_clause(options: Sequence[tuple[str, str]]) -> str:
    """The options as an instruction names them."""
    return " with " + ", and ".join(f"{name}: {value}" for name, value in options) if options else ""


def price_clause(limit: float) -> str:
    """The price limit as an instruction names it."""
    return f", and price lower than {limit:.2f} dollars" if limit < NO_LIMIT else ""


def to_text(goal: Goal) -> str:
    """A goal as JSON, for the tasks table."""
    return json.dumps({**goal._asdict(), "options": list(goal.options)})


def from_text(text: str) -> Goal:
    """The goal of a row of the tasks table. Raises UserError."""
    try:
        data: dict[str, Any] = json.loads(text)
        options = tuple((str(name), str(value)) for name, value in data["options"])
        return Goal(
            str(data["asin"]), str(data["instruction"]), tuple(data["attributes"]), options, float(data["limit"])
        )
    except (ValueError, KeyError, TypeError) as error:
        raise UserError(
            f"a WebShop goal in the tasks table is damaged ({type(error).__name__}: {error}); delete the table and run "
            "again"
        ) from error
