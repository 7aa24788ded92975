"""The desk's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turncredit.data.strict_model import Closed

Family = Literal["cancel", "address", "return", "refund", "exchange", "several"]
FAMILIES: tuple[Family, ...] = ("cancel", "address", "return", "refund", "exchange", "several")

_SHARED = 4
"""Actions that every case can take once: ask for name and order, find the customer, close."""
_MORE = {"cancel": 3, "address": 4, "return": 3, "refund": 4, "exchange": 5, "several": 9}
"""Actions that the longest case of a family takes beside these: open, ask, check, confirm, change."""


class Settings(Closed):
    """What customers want, and how rollouts end."""

    families: Annotated[tuple[Family, ...], Field(min_length=1)] = FAMILIES
    """Families of tasks; they take turns. `several` is two requests of different kinds."""
    forbidden: Annotated[float, Field(ge=0, le=1)] = 0.5
    """Share of cases that the rules forbid, wholly or in part: they end with a refusal or a transfer."""
    told: Annotated[float, Field(ge=0, le=1)] = 0.3
    """How likely the customer tells her name at first, and how likely the numbers of her orders."""
    rules: Literal["varied", "same"] = "varied"
    """Whether each shop has rules of its own, or all have the same."""
    orders: tuple[int, int] = (2, 3)
    """Fewest and most orders of a customer."""
    digits: Annotated[int, Field(ge=2, le=6)] = 4
    """Digits of an order's number."""

    horizon: Annotated[int, Field(ge=1, le=1000)] = 20
    """Actions until a rollout ends."""
    reward: Literal["success", "score"] = "success"
    """Of closing: `success_reward` where the database is as it should be, or times the score."""
    success_reward: Annotated[float, Field(gt=0)] = 1.0

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.orders
        if not 2 <= low <= high <= 9:
            raise ValueError(f"orders: [fewest, most] within 2..9, not [{low}, {high}]")
        if len(set(self.families)) < len(self.families):
            raise ValueError("families: a value is listed twice")
        longest = max(self.families, key=_MORE.__getitem__)
        needed = _SHARED + _MORE[longest]
        if self.horizon < needed:
            raise ValueError(
                f"horizon: {self.horizon} actions are too few, a case of the family '{longest}' can take {needed}; "
                "allow more, or drop the family"
            )
        return self
