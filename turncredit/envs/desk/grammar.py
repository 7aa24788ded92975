"""The rule judge's grammar of the desk: its calls, in words or in JSON, and its replies.

What the rules decide about a request is judged by the records that the window shows. Where it does not show them, a
change that the customer has confirmed there counts as allowed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turncredit.data.tools import Call
from turncredit.envs.desk import reading
from turncredit.envs.desk.customer import NO_MATTER, NOT_TOLD, YES
from turncredit.envs.desk.reading import Goal, Known
from turncredit.envs.desk.shop import ALLOW, Customer, Order, Request, Stock, decide
from turncredit.envs.desk.tools import KIND_OF, KINDS, SETTLES, TOOLS, argument
from turncredit.envs.desk.world import OVER, RECORDED
from turncredit.envs.judging import Turn

read_goal = reading.read_goal


class Act(NamedTuple):
    """A parsed action and its reply. `call` is None if the action is not a call."""

    text: str
    call: Call | None
    reply: str
    known: Known

    @property
    def answered(self) -> bool:
        """Whether it was done, and not refused."""
        told = self.reply in (RECORDED, OVER) or self.reply.startswith("Customer: ")
        return self.call is not None and (told or self.known != Known())


class Records(NamedTuple):
    """What a window shows of the customer, her orders, her requests and the stock."""

    customer: Customer | None
    orders: dict[str, Order]
    requests: tuple[Request, ...]
    stock: dict[str, Stock]


def read_turn(turn: Turn) -> Act:
    """The action's call, or its text where it is not one, and what the reply says."""
    call = TOOLS.read(turn.action)
    text = turn.action if isinstance(call, str) else TOOLS.text(call)
    return Act(text, None if isinstance(call, str) else call, turn.observation, reading.read_reply(turn.observation))


def knows(turn: Turn) -> bool:
    """Whether a turn's action has a form that the environment knows."""
    return read_turn(turn).call is not None


def judge(goal: Goal | None, before: Sequence[Act], now: Act, after: Sequence[Act]) -> tuple[str, str]:
    """The role of `now`, and the evidence for it."""
    del after  # what comes later does not change what an action was
    repeated = any(act.text == now.text for act in before)
    if now.call is None or not now.answered:
        return ("R", "repeats what was refused") if repeated else ("N", "refused")
    if now.call.tool == "close":
        return _close(goal, before)
    if now.call.tool in KIND_OF or now.call.tool in SETTLES:
        return _settle(goal, before, now.call)
    if repeated:
        return "R", "asks or looks up again what is known"
    if now.call.tool == "confirm":
        return _confirm(now.reply)
    if now.call.tool == "ask":
        return ("N", "does not matter") if now.reply == NO_MATTER else ("E", "asks the customer for a detail")
    if goal is not None and _is_beside(goal, before, now.call):
        return "N", "looks up what nobody has asked about"
    return "E", "looks up a record"


def _confirm(reply: str) -> tuple[str, str]:
    if reply == YES:
        return "D", "the customer confirms the change"
    if reply == NOT_TOLD:
        return "N", "asks for confirmation before everything is told"
    return "R", "proposes what the customer does not want"


def _is_beside(goal: Goal, before: Sequence[Act], call: Call) -> bool:
    """Whether a look-up is of an order or a product that no request is about, as far as is known."""
    requests = _records(goal, before).requests
    if call.tool == "open_order":
        orders = {request.order for request in requests}
        return "" not in orders and argument(call, "order").upper() not in orders
    wanted = {request.product for request in requests if request.kind == "exchange"}
    return call.tool == "check_stock" and argument(call, "product").lower() not in wanted


def _settle(goal: Goal | None, before: Sequence[Act], call: Call) -> tuple[str, str]:
    order = argument(call, "order").upper()
    if call.tool in KIND_OF and not _confirmed(before, call):
        return "R", "changes something without the customer's confirmation"
    if goal is None:
        return "D", "settles a request"
    records = _records(goal, before)
    request = next((one for one in records.requests if one.order == order), None)
    if call.tool in KIND_OF and request is not None and request.kind != KIND_OF[call.tool]:
        return "R", "changes what the customer did not ask for"
    verdict = _verdict(goal, records, request)
    done = ALLOW if call.tool in KIND_OF else call.tool.removesuffix("_order")
    if verdict is not None and verdict != done:
        return "R", f"the rules say {verdict}"
    return "D", "settles the request as the rules say" if verdict else "settles the request"


def _verdict(goal: Goal, records: Records, request: Request | None) -> str | None:
    """What the rules say about a request; None where the window does not show enough."""
    if request is None or request.order not in records.orders:
        return None
    order = records.orders[request.order]
    if (KINDS[request.kind].topic and not request.detail) or (
        request.kind == "exchange" and request.product not in records.stock
    ):
        return None
    if records.customer is None and goal.rules.transfer_business:
        return None
    customer = records.customer or Customer("", False, (), "")
    return decide(goal.rules, customer, order, request, records.stock)


def _close(goal: Goal | None, before: Sequence[Act]) -> tuple[str, str]:
    settled = sum(act.reply == RECORDED for act in before)
    wanted = 1 if goal is None else len(goal.requests)
    if settled >= wanted or (settled and len(before) >= _WINDOW):
        return "D", "closes with the requests settled, as far as the window shows"
    return "R", "closes before every request is settled"


_WINDOW = 5
"""Turns that a window has before the judged one; with fewer, it begins with the rollout."""


def _confirmed(before: Sequence[Act], call: Call) -> bool:
    text = TOOLS.text(call).lower()
    return any(
        act.call is not None
        and act.call.tool == "confirm"
        and act.reply == YES
        and argument(act.call, "change").lower() == text
        for act in before
    )


def _records(goal: Goal, before: Sequence[Act]) -> Records:
    customer, orders, stock = None, {}, {}
    requests = list(goal.requests)
    for act in before:
        known = act.known
        customer = known.customer or customer
        if known.order is not None:
            orders[known.order.number] = known.order
        if known.stock is not None:
            stock[known.stock[0]] = known.stock[1]
        for kind, order in known.orders_of:
            requests = [one._replace(order=order) if kind in ("", one.kind) else one for one in requests]
        if known.detail and act.call is not None:
            about = argument(act.call, "about")
            requests = [
                one._replace(detail=known.detail) if KINDS[one.kind].topic == about else one for one in requests
            ]
    return Records(customer, orders, tuple(requests), stock)
