"""WebShop: shopping by search and click, in a shop of our own or in the original's catalogue."""

from __future__ import annotations

import re

from turncredit.envs.environment import Environment, Lengths
from turncredit.envs.webshop.catalogue import check_data
from turncredit.envs.webshop.expert import Expert, random_command, slip_command
from turncredit.envs.webshop.rule import rule
from turncredit.envs.webshop.settings import Settings
from turncredit.envs.webshop.tasks import make_tasks, open_task
from turncredit.envs.webshop.words import WORDS
from turncredit.envs.webshop.world import WebShop

__all__ = ["ENVIRONMENT", "WORDS", "Expert", "Settings", "make_tasks", "open_task", "random_command", "slip_command"]

_PURCHASE = re.compile(r"^\s*click\[\s*buy now\s*\]\s*$", re.IGNORECASE)
_SCORE = re.compile(r"your score|thank you for shopping", re.IGNORECASE)


def redact(action: str, observation: str) -> str:
    """The last page without the score that it shows."""
    if _PURCHASE.match(action) and _SCORE.search(observation):
        return "Thank you for shopping with us!"
    return observation


def _least_actions(settings: Settings) -> dict[str, int]:
    """A search, the product, a click for each option that a generated goal asks for, and the purchase."""
    low, high = settings.options if settings.source == "generated" else (0, 0)
    return {f"{options} options": 3 + options for options in range(low, high + 1)}


def lengths(settings: Settings) -> Lengths:
    """Tokens of the generated shop, and of the original's 1,000 products."""
    if settings.source == "generated":
        return Lengths(goal=28, first=8, observation=136, action=6, admissible=50)
    return Lengths(goal=45, first=8, observation=347, action=10, admissible=108)


ENVIRONMENT = Environment(
    name="webshop",
    summary="shopping by search and click; a generated catalogue, or the original's files.",
    Settings=Settings,
    lengths=lengths,
    open_task=open_task,
    env_class=WebShop,
    make_tasks=make_tasks,
    least_actions=_least_actions,
    task_key=lambda row: row["goal"],  # there is one shop for all tasks
    check_installed=check_data,
    expert=Expert,
    random_command=random_command,
    rule=rule,
    slip_command=slip_command,
    words=WORDS,
    judge="turncredit.envs.webshop.grammar",
    redact=redact,
    commands="turncredit.envs.webshop.commands:app",
)
