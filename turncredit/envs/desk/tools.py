"""The desk's tools, and what a customer can ask for."""

from __future__ import annotations

from typing import NamedTuple

from turncredit.data.tools import Call, Parameter, Tool, Toolbox

TOPICS = ("name", "order", "address", "method", "variant")
"""What the customer can be asked."""

_ORDER = Parameter("Number of the order, such as O1042.")
_PRODUCT = Parameter("Kind of product, such as lamp.")

TOOLS = Toolbox(
    (
        Tool("ask", "Ask the customer for a detail.", "ask {about}", {"about": Parameter("The detail.", TOPICS)}),
        Tool(
            "find_customer",
            "Show the record of the customer, by the name that the customer has given.",
            "find customer {name}",
            {"name": Parameter("First and last name.")},
        ),
        Tool("open_order", "Show an order.", "open order {order}", {"order": _ORDER}),
        Tool(
            "check_stock",
            "Show which variants of a product are in stock.",
            "check stock of {product}",
            {"product": _PRODUCT},
        ),
        Tool(
            "confirm",
            "Ask the customer whether a change is wanted, before it is made.",
            "confirm {change}",
            {"change": Parameter("The change in words, such as: return lamp of order O1042.")},
        ),
        Tool("cancel_order", "Cancel an order. Final.", "cancel order {order}", {"order": _ORDER}),
        Tool(
            "change_address",
            "Send an order to another address. Final.",
            "change address of order {order} to {address}",
            {"order": _ORDER, "address": Parameter("Street and number.")},
        ),
        Tool(
            "return_item",
            "Take back an item of an order. Final.",
            "return {product} of order {order}",
            {"product": _PRODUCT, "order": _ORDER},
        ),
        Tool(
            "refund_item",
            "Refund an item of an order. Final.",
            "refund {product} of order {order} to {method}",
            {"product": _PRODUCT, "order": _ORDER, "method": Parameter("card, bank or credit (store credit).")},
        ),
        Tool(
            "exchange_item",
            "Exchange an item of an order for another variant. Final.",
            "exchange {product} of order {order} for {variant}",
            {"product": _PRODUCT, "order": _ORDER, "variant": Parameter("The new variant, such as red.")},
        ),
        Tool(
            "refuse_order",
            "Record that the request about an order is refused. Final.",
            "refuse order {order}",
            {"order": _ORDER},
        ),
        Tool(
            "transfer_order",
            "Hand the request about an order over to a colleague. Final.",
            "transfer order {order}",
            {"order": _ORDER},
        ),
        Tool("close", "End the conversation, once every request is settled.", "close"),
    )
)


class Kind(NamedTuple):
    """A kind of request: the tool that does it, what the customer must be asked beside the order, and its words."""

    tool: str
    topic: str
    """The detail that only the customer knows; empty if there is none."""
    wish: str
    """As the customer says it, after "I want to"."""
    noun: str


KINDS = {
    "cancel": Kind("cancel_order", "", "cancel {order}", "cancellation"),
    "address": Kind("change_address", "address", "change the address of {order}", "address"),
    "return": Kind("return_item", "", "return a {product} of {order}", "return"),
    "refund": Kind("refund_item", "method", "get a refund for a {product} of {order}", "refund"),
    "exchange": Kind("exchange_item", "variant", "exchange a {product} of {order}", "exchange"),
}
KIND_OF = {kind.tool: name for name, kind in KINDS.items()}
"""The kind of request that a tool serves."""
SETTLES = ("refuse_order", "transfer_order")
"""How a request is settled without a change."""
FINAL = (*KIND_OF, *SETTLES, "close")
"""What cannot be taken back."""


def argument(call: Call, name: str) -> str:
    """An argument of a call by its parameter's name; empty if the tool has no such parameter."""
    return dict(zip(TOOLS[call.tool].parameters, call.arguments, strict=True)).get(name, "")


def change(kind: str, order: str, product: str, detail: str) -> Call:
    """The call that does what a request asks for."""
    topic = KINDS[kind].topic
    values = {"order": order, "product": product, **({topic: detail} if topic else {})}
    tool = TOOLS[KINDS[kind].tool]
    return Call(tool.name, tuple(values[name] for name in tool.parameters))
