"""The obvious rule: hear everything, and do what the customer wants, whatever the shop's rules say."""

from __future__ import annotations

import random
from dataclasses import dataclass

from turncredit.envs.desk.expert import Expert
from turncredit.envs.desk.shop import ALLOW, Customer, Request


@dataclass
class _Task:
    goal: str


class Obliging(Expert):
    """An expert that does not read the shop's rules."""

    def _verdict(self, request: Request, customer: Customer) -> str:
        del request, customer
        return ALLOW


def rule(goal: str) -> Obliging:
    """Does what the customer asks for, confirmed."""
    return Obliging(_Task(goal), random.Random(0))
