"""A case: a shop's rules and records, the customer on the line, what she asks for, and how it should end.

The shop's database is the records that a case starts with and the log of changes made to them. The desk can add to the
log and take nothing back. The goal is the log that the rules ask for.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, NamedTuple

from turncredit.data.tools import Call
from turncredit.envs.desk.tools import KINDS, change

PENDING, DELIVERED = "pending", "delivered"
CREDIT = "credit"
"""Store credit: every customer can have it, where the rules allow it."""
ALLOW, REFUSE, TRANSFER = "allow", "refuse", "transfer"

_ALWAYS = (
    "Only pending orders are cancelled or sent to another address. Refuse what the rules forbid, and what is of "
    "another customer's order. Hear and check everything first, and confirm every change. Close when all is settled."
)


class Rules(NamedTuple):
    """What differs between shops: the days after delivery, and what else is allowed."""

    days: int
    sale_returns: bool
    credit: bool
    transfer_business: bool

    def text(self) -> str:
        """The rules as the prompt shows them."""
        return " ".join(
            (
                f"Return, refund and exchange until {self.days} days after delivery.",
                f"Sale items are {'returned too' if self.sale_returns else 'not returned'}.",
                f"Refund to the method that paid{' or to credit' if self.credit else ' only'}.",
                f"Business customers are {'transferred' if self.transfer_business else 'served like all'}.",
                _ALWAYS,
            )
        )


class Customer(NamedTuple):
    """A customer's record."""

    name: str
    business: bool
    methods: tuple[str, ...]
    address: str


class Item(NamedTuple):
    """An item of an order."""

    product: str
    variant: str
    on_sale: bool


class Order(NamedTuple):
    """An order's record. `customer` is the place of its customer in the case; `days` count from the delivery."""

    number: str
    customer: int
    status: str
    days: int
    items: tuple[Item, ...]
    method: str
    address: str

    @property
    def is_hers(self) -> bool:
        """Whether it is of the customer on the line."""
        return self.customer == 0

    def item(self, product: str) -> Item | None:
        """The item of this kind."""
        return next((item for item in self.items if item.product == product), None)


class Stock(NamedTuple):
    """The variants of a product."""

    in_stock: tuple[str, ...]
    sold_out: tuple[str, ...]


class Request(NamedTuple):
    """What the customer wants. `detail` is the address, method or variant that only she knows, or empty."""

    kind: str
    order: str
    product: str
    detail: str

    def change(self) -> Call:
        """The call that does it."""
        return change(*self)


class Change(NamedTuple):
    """An entry of the log: what was done, and whether the customer had confirmed it."""

    call: Call
    confirmed: bool


def decide(rules: Rules, customer: Customer, order: Order, request: Request, stock: dict[str, Stock]) -> str:
    """Whether the rules allow a request about an order (`ALLOW`), or have it refused or transferred."""
    if customer.business and rules.transfer_business:
        return TRANSFER
    if request.kind in ("cancel", "address"):
        forbidden = order.status != PENDING
    else:
        forbidden = order.status != DELIVERED or order.days > rules.days
    if request.kind == "return":
        item = order.item(request.product)
        forbidden |= item is not None and item.on_sale and not rules.sale_returns
    elif request.kind == "refund":
        forbidden |= request.detail != order.method and not (request.detail == CREDIT and rules.credit)
    elif request.kind == "exchange":
        forbidden |= request.detail not in stock[request.product].in_stock
    return REFUSE if forbidden or not order.is_hers else ALLOW


@dataclass(frozen=True)
class Case:
    """A shop with a customer on the line, the first of `customers`.

    Her requests are of different kinds and about different orders. `opening` is what she tells unasked: her name, the
    numbers of her orders.
    """

    rules: Rules
    customers: tuple[Customer, ...]
    stock: dict[str, Stock]
    orders: tuple[Order, ...]
    requests: tuple[Request, ...]
    opening: tuple[str, ...]

    __hash__ = object.__hash__

    @cached_property
    def order_of(self) -> dict[str, Order]:
        """Orders by their numbers."""
        return {order.number: order for order in self.orders}

    @cached_property
    def customer(self) -> Customer:
        """The customer on the line."""
        return self.customers[0]

    @cached_property
    def her_orders(self) -> tuple[str, ...]:
        """The numbers of the orders in her record."""
        return tuple(order.number for order in self.orders if order.is_hers)

    @cached_property
    def entries(self) -> tuple[Change, ...]:
        """The entries of the log that settle her requests by the rules, in their order."""
        return tuple(self._entry(request) for request in self.requests)

    @cached_property
    def goal(self) -> frozenset[Change]:
        """The log that the case should end with."""
        return frozenset(self.entries)

    @cached_property
    def text(self) -> str:
        """The task: what the customer says, and the shop's rules."""
        return f'help the customer, who says: "{self.said()}" {self.rules.text()}'

    def said(self) -> str:
        """What the customer says at first."""
        name = f"This is {self.customer.name}. " if "name" in self.opening else ""
        return f"{name}I want to {' and to '.join(map(self._wish, self.requests))}."

    def _entry(self, request: Request) -> Change:
        verdict = decide(self.rules, self.customer, self.order_of[request.order], request, self.stock)
        return Change(request.change() if verdict == ALLOW else Call(f"{verdict}_order", (request.order,)), True)

    def _wish(self, request: Request) -> str:
        order = f"order {request.order}" if "order" in self.opening else "an order"
        return KINDS[request.kind].wish.format(order=order, product=request.product)


def to_text(case: Case) -> str:
    """A case as JSON."""
    return json.dumps(asdict(case), separators=(",", ":"))


def from_text(text: str) -> Case:
    """The case that `to_text` has written. Raises ValueError, TypeError, KeyError or IndexError for any other text."""
    data: dict[str, Any] = json.loads(text)
    return Case(
        rules=Rules(*data["rules"]),
        customers=tuple(Customer(name, bool(b), tuple(methods), at) for name, b, methods, at in data["customers"]),
        stock={name: Stock(*map(tuple, variants)) for name, variants in data["stock"].items()},
        orders=tuple(
            Order(number, owner, status, days, tuple(Item(*item) for item in items), method, address)
            for number, owner, status, days, items, method, address in data["orders"]
        ),
        requests=tuple(Request(*request) for request in data["requests"]),
        opening=tuple(data["opening"]),
    )
