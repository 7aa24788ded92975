"""WebShop: not played here yet. The rule judge reads tables of it that were made elsewhere."""

from __future__ import annotations

import re

from turncredit.envs.environment import Environment

_PURCHASE = re.compile(r"^\s*click\[\s*buy now\s*\]\s*$", re.IGNORECASE)
_SCORE = re.compile(r"your score|thank you for shopping", re.IGNORECASE)


def redact(action: str, observation: str) -> str:
    """The last page without the score that it shows."""
    if _PURCHASE.match(action) and _SCORE.search(observation):
        return "Thank you for shopping with us!"
    return observation


ENVIRONMENT = Environment(
    name="webshop",
    summary="shopping by search and click (tables made elsewhere only).",
    judge="turncredit.envs.webshop.judge",
    redact=redact,
)
