"""One rollout: a customer on the line, the shop's records, and what was done."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from turncredit.data.tools import Call
from turncredit.envs.desk import customer
from turncredit.envs.desk.generate import METHODS, STREETS
from turncredit.envs.desk.settings import Settings
from turncredit.envs.desk.shop import CREDIT, DELIVERED, Case, Change, Order, Request
from turncredit.envs.desk.tools import KIND_OF, KINDS, SETTLES, TOOLS, TOPICS, argument
from turncredit.envs.protocol import Step

START = "A customer is on the line."
RECORDED = "Recorded."
OVER = "The conversation is over."
NO_NAME = "No customer of that name is on the line."
NO_CUSTOMER = "Find the customer first."
NO_ORDER = "There is no such order here."
NOT_OPENED = "Open the order first."
NOT_HERS = "The order is of another customer."
SETTLED = "The order is settled already."
NO_PRODUCT = "There is no such product."
NO_ITEM = "The order has no such item."
NO_METHOD = "There is no such payment method."
NOT_CHECKED = "Check the stock first."
NO_VARIANT = "That variant is not in stock."
NO_ADDRESS = "That is no address."
NO_CHANGE = "That is no change that can be confirmed."
NO_REQUEST = "The customer asks nothing about this order."
NOT_HEARD = "Hear and check everything about this order first."


class State(NamedTuple):
    """A rollout's state: what the customer has told, what was looked up and agreed on, and the log."""

    turns: int
    told: frozenset[str]
    """Topics."""
    found: bool
    """Whether her record was shown."""
    opened: frozenset[str]
    checked: frozenset[str]
    agreed: frozenset[Call]
    log: frozenset[Change]
    closed: bool


Outcome = tuple[str, State | None]
"""A reply, and the state after the action, but for the count of turns; None where it is refused."""


class Desk:
    """One rollout. `step` takes the calls of `turncredit.envs.desk.tools`, in words or in JSON."""

    def __init__(self, case: Case, settings: Settings):
        self.case, self.settings = case, settings
        self.goal = case.text
        self._start = State(
            turns=0,
            told=frozenset(case.opening),
            found=False,
            opened=frozenset(),
            checked=frozenset(),
            agreed=frozenset(),
            log=frozenset(),
            closed=False,
        )
        self._state = self._start

    def reset(self) -> str:
        """Start again."""
        self._state = self._start
        return START

    def step(self, action: str) -> Step:
        """Carry out one action. What is refused costs a turn and changes nothing else; `valid` is then false."""
        if self._ended:
            raise RuntimeError("the rollout has ended; call reset or restore")
        call = TOOLS.read(action)
        text, after = (call, None) if isinstance(call, str) else self._done(call)
        self._state = (after or self._state)._replace(turns=self._state.turns + 1)
        paid = self._reward() if self._state.closed else 0.0
        return Step(text, paid, self._ended, self.won, after is not None)

    def close(self) -> None:
        """Nothing to release."""

    @property
    def won(self) -> bool:
        """Whether the conversation was closed with the database as it should be."""
        return self._state.closed and self._state.log == self.case.goal

    def score(self) -> float:
        """The share of requests that are settled as they should be, less one for each other change; at least 0."""
        log, goal = self._state.log, self.case.goal
        return max(0, len(log & goal) - len(log - goal)) / len(goal)

    def progress(self) -> float:
        """The share of what the goal takes that holds: orders opened, changes confirmed, requests settled, closed.

        Closing counts only with the database as it should be: 1 exactly if won.
        """
        holds, count = int(self.won), 1
        for request, entry in zip(self.case.requests, self.case.entries, strict=True):
            facts = [request.order in self._state.opened, entry in self._state.log]
            if entry.call.tool not in SETTLES:
                facts.append(entry.call in self._state.agreed)
            holds, count = holds + sum(facts), count + len(facts)
        return holds / count

    def distance(self) -> int:
        """The fewest actions to the goal; -1 after a wrong change or with too few turns left.

        Each fact that is missing takes one action of its own, so their number is exact.
        """
        if self._state.closed:
            return 0 if self.won else -1
        left = len(self._plan())
        return left if not self._lost and left <= self.settings.horizon - self._state.turns else -1

    def oracle(self) -> list[str]:
        """An optimal plan; empty once won or out of reach."""
        return [TOOLS.text(call) for call in self._plan()] if self.distance() > 0 else []

    def admissible(self) -> tuple[str, ...]:
        """Calls that are allowed now, in words, with what was told or shown as arguments."""
        if self._ended:
            return ()
        state, case = self._state, self.case
        calls = [Call("ask", (topic,)) for topic in TOPICS]
        if "name" in state.told:
            calls.append(Call("find_customer", (case.customer.name,)))
        opened = [case.order_of[number] for number in sorted(state.opened)]
        if state.found:
            calls += [Call("open_order", (number,)) for number in self._known_orders()]
        hers = [order for order in opened if order.is_hers]
        products = {request.product for request in case.requests if request.product}
        products.update(item.product for order in hers for item in order.items)
        calls += [Call("check_stock", (product,)) for product in sorted(products)]
        unsettled = [order for order in hers if order.number not in self._settled()]
        changes = [call for order in unsettled for call in self._changes(order)]
        calls += [Call("confirm", (TOOLS.text(call),)) for call in changes]
        calls += changes
        for request in sorted(case.requests):
            if request.order in state.opened and request.order not in self._settled() and self._heard(request):
                calls += [Call(tool, (request.order,)) for tool in SETTLES]
        return tuple(TOOLS.text(call) for call in (*calls, Call("close")))

    def snapshot(self) -> State:
        """The state, which is immutable."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    # -- what holds --

    @property
    def _ended(self) -> bool:
        return self._state.closed or self._state.turns >= self.settings.horizon

    @property
    def _lost(self) -> bool:
        return bool(self._state.log - self.case.goal)

    def _reward(self) -> float:
        share = float(self.won) if self.settings.reward == "success" else self.score()
        return share * self.settings.success_reward

    def _settled(self) -> set[str]:
        return {argument(entry.call, "order") for entry in self._state.log}

    def _known_orders(self) -> list[str]:
        """Orders that the customer has told of or that her record lists."""
        told = {request.order for request in self.case.requests} if "order" in self._state.told else set()
        return sorted(told | set(self.case.her_orders if self._state.found else ()))

    def _heard(self, request: Request) -> bool:
        """Whether a request was told, and the stock looked up that it asks for."""
        checked = request.kind != "exchange" or request.product in self._state.checked
        return checked and customer.has_told(request, self._state.told)

    def _changes(self, order: Order) -> list[Call]:
        """The changes of an order that can be made now, with what was told or shown."""
        out = [Call("cancel_order", (order.number,))]
        for request in self.case.requests:
            if request.kind == "address" and "address" in self._state.told:
                out.append(Call("change_address", (order.number, request.detail)))
        for item in order.items:
            out.append(Call("return_item", (item.product, order.number)))
            methods = (*self.case.customer.methods, CREDIT)
            out += [Call("refund_item", (item.product, order.number, method)) for method in methods]
            if item.product in self._state.checked:
                variants = self.case.stock[item.product].in_stock
                out += [Call("exchange_item", (item.product, order.number, variant)) for variant in variants]
        return out

    def _plan(self) -> list[Call]:
        """What is missing, if nothing wrong was done: one call for each fact, in an order in which it can be made."""
        state, plan, told = self._state, [], set(self._state.told)

        def ask(topic: str) -> None:
            if topic and topic not in told:
                plan.append(Call("ask", (topic,)))
                told.add(topic)

        left = [
            (request, entry)
            for request, entry in zip(self.case.requests, self.case.entries, strict=True)
            if entry not in state.log
        ]
        if left and not state.found and any(request.order not in state.opened for request, _ in left):
            ask("name")
            plan.append(Call("find_customer", (self.case.customer.name,)))
        for request, entry in left:
            ask("order")
            if request.order not in state.opened:
                plan.append(Call("open_order", (request.order,)))
            ask(KINDS[request.kind].topic)
            if request.kind == "exchange" and request.product not in state.checked:
                plan.append(Call("check_stock", (request.product,)))
            if entry.call.tool not in SETTLES and entry.call not in state.agreed:
                plan.append(Call("confirm", (TOOLS.text(entry.call),)))
            plan.append(entry.call)
        return [*plan, Call("close")]

    # -- what is done --

    def _done(self, call: Call) -> Outcome:
        if call.tool in KIND_OF:
            return self._change(call)
        if call.tool in SETTLES:
            return self._settle(call)
        return _DO[call.tool](self, *call.arguments)

    def _ask(self, topic: str) -> Outcome:
        return customer.answer(self.case, topic), self._state._replace(told=self._state.told | {topic})

    def _find(self, name: str) -> Outcome:
        who = self.case.customer
        if "name" not in self._state.told or name.casefold() != who.name.casefold():
            return NO_NAME, None
        kind = "business" if who.business else "private"
        text = (
            f"{who.name}, {kind} customer, lives at {who.address}, pays by {', '.join(who.methods)}. "
            f"Orders: {', '.join(self.case.her_orders)}."
        )
        return text, self._state._replace(found=True)

    def _open(self, number: str) -> Outcome:
        if not self._state.found:
            return NO_CUSTOMER, None
        number = number.upper()
        if number not in self._known_orders():
            return NO_ORDER, None
        order = self.case.order_of[number]
        text = _shown(order) if order.is_hers else f"Order {number}: of another customer."
        return text, self._state._replace(opened=self._state.opened | {number})

    def _check(self, product: str) -> Outcome:
        product = product.lower()
        stock = self.case.stock.get(product)
        if stock is None:
            return NO_PRODUCT, None
        text = f"Stock of {product}: {', '.join(stock.in_stock)}. Sold out: {', '.join(stock.sold_out) or 'none'}."
        return text, self._state._replace(checked=self._state.checked | {product})

    def _confirm(self, change: str) -> Outcome:
        call = TOOLS.read(change)
        if isinstance(call, str) or call.tool not in KIND_OF:
            return NO_CHANGE, None
        call = _plain(call)
        text = customer.reply(self.case, self._state.told, call)
        agreed = self._state.agreed | {call} if text == customer.YES else self._state.agreed
        return text, self._state._replace(agreed=agreed)

    def _opened(self, call: Call) -> Order | str:
        """The order of a call that is to be settled, or why it cannot be."""
        number = argument(call, "order")
        if not self._state.found:
            return NO_CUSTOMER
        if number not in self._known_orders():
            return NO_ORDER
        if number not in self._state.opened:
            return NOT_OPENED
        return SETTLED if number in self._settled() else self.case.order_of[number]

    def _change(self, call: Call) -> Outcome:
        call = _plain(call)
        order = self._opened(call)
        if isinstance(order, str):
            return order, None
        why = self._cannot(call, order)
        return (why, None) if why else self._recorded(Change(call, call in self._state.agreed))

    def _cannot(self, call: Call, order: Order) -> str:
        """Why the tool cannot do this to an opened order; empty if it can, whether the rules allow it or not."""
        product, method, variant = (argument(call, name) for name in ("product", "method", "variant"))
        if not order.is_hers:
            return NOT_HERS
        if product and order.item(product) is None:
            return NO_ITEM
        if method and method not in METHODS:
            return NO_METHOD
        if variant and product not in self._state.checked:
            return NOT_CHECKED
        if variant and variant not in self.case.stock[product].in_stock:
            return NO_VARIANT
        if call.tool == "change_address" and not _is_address(argument(call, "address")):
            return NO_ADDRESS
        return ""

    def _settle(self, call: Call) -> Outcome:
        call = _plain(call)
        order = self._opened(call)
        if isinstance(order, str):
            return order, None
        request = next((one for one in self.case.requests if one.order == order.number), None)
        if request is None:
            return NO_REQUEST, None
        return self._recorded(Change(call, True)) if self._heard(request) else (NOT_HEARD, None)

    def _recorded(self, entry: Change) -> Outcome:
        return RECORDED, self._state._replace(log=self._state.log | {entry})

    def _close(self) -> Outcome:
        return OVER, self._state._replace(closed=True)


_DO: dict[str, Callable[..., Outcome]] = {
    "ask": Desk._ask,
    "find_customer": Desk._find,
    "open_order": Desk._open,
    "check_stock": Desk._check,
    "confirm": Desk._confirm,
    "close": Desk._close,
}


def _shown(order: Order) -> str:
    """An order's record."""
    status = f"delivered {order.days} days ago" if order.status == DELIVERED else order.status
    items = ", ".join(f"{one.variant} {one.product}{' on sale' * one.on_sale}" for one in order.items)
    return f"Order {order.number}: {status}, paid by {order.method}, to {order.address}. Items: {items}."


def _plain(call: Call) -> Call:
    """A call with its arguments as the records write them."""
    written: dict[str, Callable[[str], str]] = {"order": str.upper, "address": str.title}
    names = TOOLS[call.tool].parameters
    return Call(
        call.tool, tuple(written.get(name, str.lower)(text) for name, text in zip(names, call.arguments, strict=True))
    )


def _is_address(text: str) -> bool:
    street, _, number = text.rpartition(" ")
    return street in STREETS and number.isascii() and number.isdigit() and len(number) <= 3
