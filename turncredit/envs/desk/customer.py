"""The simulated customer: rules that answer questions and proposals.

She tells nothing unasked beyond the opening, and agrees only to a change whose details she has told.
"""

from __future__ import annotations

from collections.abc import Collection

from turncredit.data.tools import Call
from turncredit.envs.desk.shop import Case, Request
from turncredit.envs.desk.tools import KIND_OF, KINDS

YES = "Customer: Yes, please."
NO = "Customer: No, I do not want that."
NOT_TOLD = "Customer: I have not told you everything yet."
NO_MATTER = "Customer: That does not matter."


def answer(case: Case, topic: str) -> str:
    """Her answer to a question about a topic (`TOPICS`)."""
    if topic == "name":
        return f"Customer: I am {case.customer.name}."
    if topic == "order":
        if len(case.requests) == 1:
            return f"Customer: It is order {case.requests[0].order}."
        of = ", ".join(f"the {KINDS[one.kind].noun} is order {one.order}" for one in case.requests)
        return f"Customer: {of[0].upper()}{of[1:]}."
    asked = next((one for one in case.requests if KINDS[one.kind].topic == topic), None)
    return NO_MATTER if asked is None else f"Customer: {_WANTED[topic].format(asked.detail)}."


_WANTED = {"address": "To {}, please", "method": "To {}, please", "variant": "The {} one, please"}


def reply(case: Case, told: Collection[str], proposed: Call) -> str:
    """What she says to a proposed change, having told these topics."""
    request = next((one for one in case.requests if one.kind == KIND_OF[proposed.tool]), None)
    if request is None:
        return NO
    if not has_told(request, told):
        return NOT_TOLD
    return YES if request.change() == proposed else NO


def has_told(request: Request, told: Collection[str]) -> bool:
    """Whether all of a request has been told: the order, and its detail if it has one."""
    topic = KINDS[request.kind].topic
    return "order" in told and (not topic or topic in told)
