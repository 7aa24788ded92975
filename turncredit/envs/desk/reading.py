"""What the task's sentence and the replies say, read back from their texts: for the expert and the rule judge."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from turncredit.envs.desk.shop import (
    Customer,
    Item,
    Order,
    Request,
    Rules,
    Stock,
)
from turncredit.envs.desk.tools import KINDS

_RULES = re.compile(
    r"until (?P<days>\d+) days after delivery\. Sale items are (?P<sale>returned too|not returned)\. "
    r"Refund to the method that paid (?P<credit>or to credit|only)\. "
    r"Business customers are (?P<business>transferred|served like all)\."
)
_SAYS = re.compile(r'who says: "(?:This is (?P<name>[\w ]+)\. )?I want to (?P<wishes>.*?)\."')
_WISHES = {
    kind: re.compile(
        re.escape(one.wish)
        .replace(r"\{product\}", r"(?P<product>\w+)")
        .replace(r"\{order\}", r"(?:an order|order (?P<order>\w+))")
    )
    for kind, one in KINDS.items()
}

_NAME = re.compile(r"Customer: I am ([\w ]+)\.")
_ONE_ORDER = re.compile(r"Customer: It is order (\w+)\.")
_ORDERS = re.compile(r"[Tt]he (\w+) is order (\w+)")
_DETAIL = re.compile(r"Customer: (?:To|The) (.+?)(?: one)?, please\.")
_RECORD = re.compile(r"(?P<name>[\w ]+), (?P<kind>business|private) customer, .*?, pays by (?P<methods>[\w, ]+)\.")
_ORDER = re.compile(
    r"Order (?P<number>\w+): (?P<status>\w+)(?: (?P<days>\d+) days ago)?, paid by (?P<method>\w+), "
    r"to (?P<address>[\w ]+)\. Items: (?P<items>.+)\."
)
_FOREIGN = re.compile(r"Order (\w+): of another customer\.")
_STOCK = re.compile(r"Stock of (\w+): ([\w, ]+)\. Sold out: ([\w, ]+)\.")


class Goal(NamedTuple):
    """A task, read: the rules, the name if it was told, and the requests as far as they were told."""

    rules: Rules
    name: str
    requests: tuple[Request, ...]


@lru_cache(maxsize=4096)
def read_goal(text: str) -> Goal | None:
    """The task of a sentence; None for another sentence."""
    rules, says = _RULES.search(text), _SAYS.search(text)
    if rules is None or says is None:
        return None
    requests = []
    for wish in says["wishes"].split(" and to "):
        for kind, pattern in _WISHES.items():
            if match := pattern.fullmatch(wish):
                found = match.groupdict()
                requests.append(Request(kind, found["order"] or "", found.get("product") or "", ""))
    read = Rules(
        int(rules["days"]), rules["sale"] == "returned too", rules["credit"] == "or to credit",
        rules["business"] == "transferred",
    )  # fmt: skip
    return Goal(read, says["name"] or "", tuple(requests))


class Known(NamedTuple):
    """What a reply shows: all that is not shown is empty."""

    name: str = ""
    orders_of: tuple[tuple[str, str], ...] = ()
    """Kind of request (empty: the only one) and order."""
    detail: str = ""
    customer: Customer | None = None
    order: Order | None = None
    stock: tuple[str, Stock] | None = None


_KIND_OF_NOUN = {one.noun: kind for kind, one in KINDS.items()}


@lru_cache(maxsize=1 << 14)
def read_reply(text: str) -> Known:
    """What a reply shows."""
    if match := _NAME.fullmatch(text):
        return Known(name=match[1])
    if match := _ONE_ORDER.fullmatch(text):
        return Known(orders_of=(("", match[1]),))
    if text.startswith("Customer: The ") and (found := _ORDERS.findall(text)):
        return Known(orders_of=tuple((_KIND_OF_NOUN.get(noun, noun), order) for noun, order in found))
    if match := _DETAIL.fullmatch(text):
        return Known(detail=match[1])
    if match := _RECORD.match(text):
        methods = tuple(match["methods"].split(", "))
        return Known(customer=Customer(match["name"], match["kind"] == "business", methods, ""))
    if match := _ORDER.fullmatch(text):
        return Known(order=_order(match))
    if match := _FOREIGN.fullmatch(text):
        return Known(order=Order(match[1], 1, "", 0, (), "", ""))
    if match := _STOCK.fullmatch(text):
        return Known(stock=(match[1], Stock(tuple(match[2].split(", ")), tuple(match[3].split(", ")))))
    return Known()


def _order(match: re.Match[str]) -> Order:
    items = [(one.removesuffix(" on sale"), one.endswith(" on sale")) for one in match["items"].split(", ")]
    return Order(
        match["number"], 0, match["status"], int(match["days"] or 0),
        tuple(Item(name.split(" ")[1], name.split(" ")[0], sale) for name, sale in items),
        match["method"], match["address"],
    )  # fmt: skip
