"""What an environment provides for judges: a grammar of its turns, redaction of outcomes in replies, a rubric.

The rule judge reads actions and replies with the environment's grammar: a module `grammar.py` in its folder, imported
when a judge asks for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

HIDDEN = "(the environment's reply is not shown)"
"""Replaces a reply that would reveal how the attempt ended."""


class Turn(NamedTuple):
    """One action and the environment's reply."""

    action: str
    observation: str


class Grammar(Protocol):
    """The rule judge's knowledge of an environment: the functions of its module `grammar`."""

    def read_goal(self, text: str) -> Any:
        """The parsed task sentence."""
        ...

    def read_turn(self, turn: Turn) -> Any:
        """One parsed turn."""
        ...

    def knows(self, turn: Turn) -> bool:
        """Whether a turn's action has a form that the environment knows."""
        ...

    def judge(self, goal: Any, before: Sequence[Any], now: Any, after: Sequence[Any]) -> tuple[str, str]:
        """The role (D, E, N or R) of the turn `now` among its neighbours, all parsed, and the evidence for it."""
        ...


@dataclass(frozen=True)
class Rubric:
    """An environment's part of an LLM judge's prompt: examples for each role, and rules for close calls.

    decisive, exploration, no_progress, regression    examples that follow the role's definition
    close_calls                                       further rules, each a line that begins with "- "
    """

    decisive: str
    exploration: str
    no_progress: str
    regression: str
    close_calls: tuple[str, ...] = ()


#: TRIAGE's own examples (appendix H), one rubric for its three environments: household, shop, search. The default.
TRIAGE = Rubric(
    decisive=(
        "Taking the object that is wanted, or opening what it turns out to be in; the cleaning, heating or cooling "
        "that is asked for; putting the object where it belongs; going, object in hand, to where the next required "
        "change is made; choosing an attribute that the task names; the purchase of a matching product; an answer that "
        "the evidence supports."
    ),
    exploration=(
        "The first look into a container, the first visit to a place where the object may be, the first query, a "
        "better query after a wrong choice was noticed."
    ),
    no_progress="Walking past a place without looking, a harmless repeat after the task is done, help texts.",
    regression=(
        "The wrong object or product, the wrong change of state, undoing what was right, or repeating something that "
        "has been done and gives nothing new."
    ),
    close_calls=(
        "- The first examination of something is E. Examining it again while nothing about it has changed is R.",
        '- The observation "Nothing happens." means that the action was not possible: N the first time, R when '
        "repeated.",
        "- Taking, cleaning, heating, cooling, placing or buying what the task asks for is D.",
        "- Choosing an attribute that is chosen already is R, even where the observation reports success.",
        "- A purchase or an answer repeated after the first one is N.",
    ),
)
