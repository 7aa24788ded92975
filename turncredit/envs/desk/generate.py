"""Draw cases: shops with records, and customers who want something. All names and texts are our own.

The hash of a whole case decides its split, so that no two splits share a case, whatever their seeds.
"""

from __future__ import annotations

import hashlib
import random

from turncredit.data.seeding import derive_seed
from turncredit.envs.desk.settings import FAMILIES, Settings
from turncredit.envs.desk.shop import (
    ALLOW,
    CREDIT,
    DELIVERED,
    PENDING,
    REFUSE,
    TRANSFER,
    Case,
    Customer,
    Item,
    Order,
    Request,
    Rules,
    Stock,
    decide,
    to_text,
)
from turncredit.envs.desk.tools import KINDS
from turncredit.errors import UserError, nearest

SPLITS = ("train", "demos", "valid", "eval")
FORBIDDEN = "forbidden"
"""The family, in the table of tasks, of a single request that is to be refused or transferred."""

_FIRST = ("Ana", "Bela", "Cleo", "Dario", "Edda", "Felix", "Greta", "Hugo", "Ines", "Jonas", "Karla", "Lino")
_LAST = (
    "Adler", "Brandt", "Corvi", "Dolan", "Eberle", "Fink", "Gruber", "Holm", "Ibsen", "Jarrel", "Kolb", "Lorne",
    "Marek", "Novak", "Orsini", "Pohl", "Quint", "Rossi", "Salz", "Tamm",
)  # fmt: skip
STREETS = ("Oak", "Elm", "Mill", "Lake", "Hill", "Park", "Mint", "Rose")
PRODUCTS = ("lamp", "kettle", "chair", "clock", "jacket", "tent", "mirror", "rug", "bag", "vase")
VARIANTS = ("red", "blue", "green", "black", "white", "grey")
METHODS = ("card", "bank", CREDIT)
_DAYS = (5, 10, 20, 25, 40, 50, 70, 80)
"""Days since a delivery. The limits of the rules are between them."""
_LIMITS = (14, 30, 60)
SAME = Rules(days=30, sale_returns=False, credit=True, transfer_business=True)
"""The rules of every shop with `rules: same`."""

_CUSTOMERS = 2
_SOLD = 6
"""Products of a shop."""
_TRANSFERRED = 0.25
"""Share of transfers among what the rules forbid."""
_FOREIGN = 0.15
"""Share of forbidden requests that are about another customer's order."""
_ATTEMPTS = 1_000
"""Draws for one case before giving up; one in four is of the split."""


def generate(split: str, index: int, seed: int, settings: Settings, seen: set[str]) -> tuple[str, str, Case]:
    """The case number `index` of a split: (content hash, family, case).

    Cases whose hash is in `seen` are left out; the new one is added to it. Raises UserError for an unknown split, and
    where the settings allow too few different cases.
    """
    if split not in SPLITS:
        raise UserError(
            f"unknown split '{split}' of generated desk cases{nearest(split, SPLITS)}; choose "
            f"one of {', '.join(SPLITS)}"
        )
    family = settings.families[index % len(settings.families)]
    rng = random.Random(derive_seed(seed, "desk", split, index))
    verdicts = _verdicts(rng, family, settings)
    for _ in range(_ATTEMPTS):
        case = _case(rng, family, verdicts, settings)
        content = hashlib.sha256(to_text(case).encode()).hexdigest()
        if int(content[:8], 16) % len(SPLITS) == SPLITS.index(split) and content not in seen:
            seen.add(content)
            single = len(verdicts) == 1 and verdicts != (ALLOW,)
            return content, FORBIDDEN if single else family, case
    raise UserError(
        f"found no new desk case of the family '{family}' for the split '{split}' in {_ATTEMPTS} draws; allow more "
        "families, orders or digits, or ask for fewer games"
    )


def _verdicts(rng: random.Random, family: str, settings: Settings) -> tuple[str, ...]:
    """How the rules decide the requests of a case: drawn first, so that the shares are as the settings want them."""
    count = 2 if family == "several" else 1
    if rng.random() >= settings.forbidden:
        return (ALLOW,) * count
    if rng.random() < _TRANSFERRED:
        return (TRANSFER,) * count
    verdicts = [REFUSE, ALLOW][:count]
    rng.shuffle(verdicts)
    return tuple(verdicts)


def _case(rng: random.Random, family: str, verdicts: tuple[str, ...], settings: Settings) -> Case:
    rules = SAME if settings.rules == "same" else _rules(rng)
    customers = tuple(_customer(rng, name) for name in _names(rng))
    if TRANSFER in verdicts:
        rules, customers = (
            rules._replace(transfer_business=True),
            (customers[0]._replace(business=True), *customers[1:]),
        )
    elif rules.transfer_business:
        customers = (customers[0]._replace(business=False), *customers[1:])
    stock = {product: _stock(rng) for product in sorted(rng.sample(PRODUCTS, _SOLD))}
    owners = [owner for owner in range(_CUSTOMERS) for _ in range(rng.randint(*settings.orders))]
    low = 10 ** (settings.digits - 1)
    numbers = [f"O{number}" for number in rng.sample(range(low, 10 * low), len(owners))]
    orders, requests = [], []
    kinds = rng.sample(FAMILIES[:-1], 2) if family == "several" else [family]
    for kind, verdict in zip(kinds, verdicts, strict=True):
        foreign = verdict != ALLOW and rng.random() < _FOREIGN
        number, owner = numbers.pop(), owners.pop(-1 if foreign else 0)
        while True:
            order = _order(rng, number, owner, customers[owner], stock)
            request = _request(rng, kind, order, customers[0], stock)
            if decide(rules, customers[0], order, request, stock) == verdict:
                break
        orders.append(order)
        requests.append(request)
    orders += [
        _order(rng, number, owner, customers[owner], stock) for number, owner in zip(numbers, owners, strict=True)
    ]
    opening = tuple(topic for topic in ("name", "order") if rng.random() < settings.told)
    return Case(rules, customers, stock, tuple(sorted(orders)), tuple(requests), opening)


def _rules(rng: random.Random) -> Rules:
    days = rng.choice(_LIMITS)
    return Rules(days, *(rng.random() < 0.5 for _ in range(3)))


def _names(rng: random.Random) -> list[str]:
    return [
        f"{one} {two}" for one, two in zip(rng.sample(_FIRST, _CUSTOMERS), rng.sample(_LAST, _CUSTOMERS), strict=True)
    ]


def _customer(rng: random.Random, name: str) -> Customer:
    methods = tuple(sorted(rng.sample(METHODS[:-1], rng.randint(1, 2))))
    return Customer(name, rng.random() < 0.3, methods, _address(rng))


def _address(rng: random.Random) -> str:
    return f"{rng.choice(STREETS)} {rng.randint(10, 99)}"


def _stock(rng: random.Random) -> Stock:
    variants = rng.sample(VARIANTS, 4)
    out = rng.randint(1, 2)
    return Stock(tuple(sorted(variants[out:])), tuple(sorted(variants[:out])))


def _order(rng: random.Random, number: str, owner: int, of: Customer, stock: dict[str, Stock]) -> Order:
    products = rng.sample(sorted(stock), rng.randint(1, 2))
    items = tuple(
        Item(product, rng.choice((*stock[product].in_stock, *stock[product].sold_out)), rng.random() < 0.4)
        for product in products
    )
    status = rng.choice((PENDING, "shipped", DELIVERED, DELIVERED))
    days = rng.choice(_DAYS) if status == DELIVERED else 0
    return Order(number, owner, status, days, items, rng.choice(of.methods), of.address)


def _request(rng: random.Random, kind: str, order: Order, of: Customer, stock: dict[str, Stock]) -> Request:
    product = rng.choice(order.items)
    details = {
        "address": lambda: _other_address(rng, order),
        "method": lambda: rng.choice((*of.methods, CREDIT)),
        "variant": lambda: _other_variant(rng, product, stock),
    }
    topic = KINDS[kind].topic
    named = product.product if kind not in ("cancel", "address") else ""
    return Request(kind, order.number, named, details[topic]() if topic else "")


def _other_address(rng: random.Random, order: Order) -> str:
    while (address := _address(rng)) == order.address:
        pass
    return address


def _other_variant(rng: random.Random, item: Item, stock: dict[str, Stock]) -> str:
    return rng.choice([one for variants in stock[item.product] for one in variants if one != item.variant])
