"""The subgoals of one rollout as brackets over its turns, and HIPIF's penalties in words.

The columns are those of an agent that plans in subgoals (docs/agents.md); turns without them have no subgoals.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

#: HIPIF's penalties (credit/hipif.py) -> what the turn is charged for
PENALTIES = {
    "r_grounding": "ungrounded subgoal",
    "r_termination": "subgoal ended with a failed action",
    "r_execution": "repeated within the subgoal",
    "r_format": "malformed response",
}


@dataclass(frozen=True)
class Subgoal:
    """A subgoal and its turns `first` to `last`.

    `completed_at` is the turn whose response declared it complete, which is the next subgoal's first; None if it was
    left without that, or open at the end. `tokens`: the context of that turn and of the turn after it, the first one
    with the folded history; None where there is no such turn or no `prompt_tokens`.
    """

    number: int
    text: str
    first: int
    last: int
    completed_at: int | None
    at_end: bool
    tokens: tuple[int, int] | None = None

    @property
    def span(self) -> str:
        """`turns 2 to 5`, or `turn 2`."""
        return f"turn {self.first}" if self.first == self.last else f"turns {self.first} to {self.last}"

    @property
    def end(self) -> str:
        """How it ended, in words."""
        if self.completed_at is not None:
            size = "" if self.tokens is None else f" (context: {self.tokens[0]:,}, then {self.tokens[1]:,} tokens)"
            return (
                f"declared complete at turn {self.completed_at}, its history folded to the subgoal and its last "
                f"observation{size}"
            )
        return "still open when the rollout ended" if self.at_end else "left without being declared complete"


def subgoals_of(rows: Sequence[Mapping[str, Any]]) -> list[Subgoal]:
    """The subgoals of a rollout's turns (in order; `turn`, `subgoal`, `subgoal_index`, `completed`, `prompt_tokens`).

    Turns without a subgoal are in none; no subgoals at all without the columns.
    """
    if not rows or "subgoal" not in rows[0] or "subgoal_index" not in rows[0]:
        return []
    parts = [list(part) for _, part in groupby(rows, key=lambda row: (row["subgoal_index"], bool(row["subgoal"])))]
    tokens = {int(row["turn"]): row["prompt_tokens"] for row in rows if row.get("prompt_tokens") is not None}
    subgoals: list[Subgoal] = []
    for place, part in enumerate(parts):
        if part[0]["subgoal"]:
            after = parts[place + 1][0] if place + 1 < len(parts) else None
            done = int(after["turn"]) if after is not None and after.get("completed") else None
            subgoals.append(
                Subgoal(
                    number=len(subgoals) + 1,
                    text=str(part[0]["subgoal"]),
                    first=int(part[0]["turn"]),
                    last=int(part[-1]["turn"]),
                    completed_at=done,
                    at_end=after is None,
                    tokens=(int(tokens[done]), int(tokens[done + 1]))
                    if done is not None and {done, done + 1} <= tokens.keys()
                    else None,
                )
            )
    return subgoals


def charged(components: Mapping[str, Mapping[str, float]]) -> list[tuple[str, float, list[str]]]:
    """The penalties of one turn: what for, how much, and by which methods. `components`: each method's numbers."""
    methods_of: dict[tuple[str, float], list[str]] = {}
    for method, parts in components.items():
        for name, words in PENALTIES.items():
            if parts.get(name, 0.0) < 0:
                methods_of.setdefault((words, parts[name]), []).append(method)
    return [(words, value, methods) for (words, value), methods in methods_of.items()]
