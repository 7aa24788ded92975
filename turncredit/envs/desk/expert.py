"""An expert that knows only the task's sentence and what it has observed, and plausible noise.

It works as the rules say: it identifies the customer and hears and checks each request. Then it has the change
confirmed and makes it, or refuses or transfers the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from turncredit.data.tools import Call
from turncredit.envs.desk.customer import YES
from turncredit.envs.desk.reading import Known, read_goal, read_reply
from turncredit.envs.desk.shop import ALLOW, Customer, Order, Request, Stock, decide
from turncredit.envs.desk.tools import FINAL, KINDS, TOOLS, TOPICS, argument
from turncredit.envs.desk.world import RECORDED
from turncredit.envs.protocol import Rng
from turncredit.errors import UserError


class Task(Protocol):
    """What the expert may know of an environment."""

    goal: str


class Run(Task, Protocol):
    """What noise may know of one."""

    def admissible(self) -> Sequence[str]:
        """The calls that are allowed now."""
        ...


class Expert:
    """Settles one customer's requests. Call `observe` with what is printed, `act` for the next action.

    `rng` decides nothing. Raises UserError for a task whose sentence is not a desk's.
    """

    def __init__(self, env: Task, _rng: Rng) -> None:
        goal = read_goal(env.goal)
        if goal is None:
            raise UserError(f"not a task of the desk: {env.goal[:80]!r}")
        self._rules, self._name, self._requests = goal.rules, goal.name, list(goal.requests)
        self._customer: Customer | None = None
        self._orders: dict[str, Order] = {}
        self._stock: dict[str, Stock] = {}
        self._agreed: set[Call] = set()
        self._settled: set[str] = set()
        self._last = ""

    def observe(self, observation: str, action: str | None = None) -> None:
        """See what was printed; `action` is given if another action than `act`'s was carried out."""
        call = TOOLS.read(self._last if action is None else action)
        if isinstance(call, str):
            return
        known = read_reply(observation)
        self._name = known.name or self._name
        self._customer = known.customer or self._customer
        if known.order is not None:
            self._orders[known.order.number] = known.order
        if known.stock is not None:
            self._stock[known.stock[0]] = known.stock[1]
        self._requests = [self._told(request, call, known) for request in self._requests]
        if call.tool == "confirm" and observation == YES:
            agreed = TOOLS.read(argument(call, "change"))
            assert isinstance(agreed, Call)
            self._agreed.add(agreed)
        if observation == RECORDED:
            self._settled.add(argument(call, "order"))

    def act(self) -> str:
        """The next action."""
        self._last = TOOLS.text(self._next())
        return self._last

    def _told(self, request: Request, call: Call, known: Known) -> Request:
        """A request with what the reply to a question tells of it."""
        for kind, order in known.orders_of:
            if kind in ("", request.kind):
                request = request._replace(order=order)
        if known.detail and argument(call, "about") == KINDS[request.kind].topic:
            request = request._replace(detail=known.detail)
        return request

    def _next(self) -> Call:
        if self._customer is None:
            return Call("find_customer", (self._name,)) if self._name else Call("ask", ("name",))
        if not all(request.order for request in self._requests):
            return Call("ask", ("order",))
        left = [request for request in self._requests if request.order not in self._settled]
        return self._serve(left[0], self._customer) if left else Call("close")

    def _serve(self, request: Request, customer: Customer) -> Call:
        topic = KINDS[request.kind].topic
        if request.order not in self._orders:
            return Call("open_order", (request.order,))
        if topic and not request.detail:
            return Call("ask", (topic,))
        if request.kind == "exchange" and request.product not in self._stock:
            return Call("check_stock", (request.product,))
        verdict = self._verdict(request, customer)
        if verdict != ALLOW:
            return Call(f"{verdict}_order", (request.order,))
        change = request.change()
        return change if change in self._agreed else Call("confirm", (TOOLS.text(change),))

    def _verdict(self, request: Request, customer: Customer) -> str:
        """What the rules say about a request that is heard and checked."""
        return decide(self._rules, customer, self._orders[request.order], request, self._stock)


def slip_command(env: Run, rng: Rng) -> str:
    """An allowed action that is mostly useless, and never final."""
    return _pick([text for text in env.admissible() if not _is_final(text)], rng)


def random_command(env: Run, rng: Rng) -> str:
    """A random action that is never final: half the time an allowed one, otherwise one that is mostly refused."""
    action = slip_command(env, rng)
    if rng.random() < 0.5:
        return action
    number = f"O{10 + int(rng.random() * 90)}"
    forms = (
        f"open order {number}",
        f"find customer {_pick(('Ana', 'Hugo'), rng)}",
        f"confirm refuse order {number}",
        f"ask {_pick(TOPICS, rng)} {number}",
        action.rsplit(" ", 1)[0],
    )
    text = _pick(forms, rng)
    return action if _is_final(text) else text


def _is_final(text: str) -> bool:
    call = TOOLS.read(text)
    return isinstance(call, Call) and call.tool in FINAL


def _pick(options: Sequence[str], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
