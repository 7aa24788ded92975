"""VirtualHome's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self, get_args

from pydantic import Field, model_validator

from turncredit.data.strict_model import Closed

Room = Literal["bathroom", "bedroom", "dining_room", "home_office", "kitchen", "living_room"]
ROOMS: tuple[Room, ...] = get_args(Room)
Family = Literal["device", "place", "wash", "two", "watch", "machine"]


class Settings(Closed):
    """Where households and tasks come from, and how rollouts end."""

    source: Literal["generated", "real"] = "generated"
    data_root: str | None = None
    """For `real`: the folder with scenes and recorded programs; without it, $VIRTUALHOME_DATA."""
    goals: Literal["annotated", "recorded"] = "annotated"
    """For `real`: the goals of the Embodied Agent Interface, or what each recorded program changes."""

    rooms: tuple[Room, ...] = ROOMS
    """Rooms of a generated household."""
    things: tuple[int, int] = (8, 12)
    """Fewest and most kinds of small objects in a generated household; there are two of about a third of them."""
    families: tuple[Family, ...] = ("device", "place", "wash", "two", "watch", "machine")
    """Families of generated tasks; they take turns."""

    horizon: Annotated[int, Field(ge=1, le=1000)] = 30
    """Actions until a rollout ends."""
    success_reward: Annotated[float, Field(gt=0)] = 1.0
    """Paid when the goal is reached; HIPIF pays 10."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        low, high = self.things
        if not 1 <= low <= high <= 24:
            raise ValueError(f"things: [fewest, most] within 1..24, not [{low}, {high}]")
        for name in ("rooms", "families"):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given):
                raise ValueError(f"{name}: one or more, each once")
        return self
