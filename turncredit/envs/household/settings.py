"""The household's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turncredit.data.strict_model import Closed
from turncredit.envs.household.domain import FAMILY_ROOMS, ROOMS
from turncredit.envs.household.goals import FAMILIES

Family = Literal["pick", "look", "clean", "heat", "cool", "pick2"]
Room = Literal["kitchen", "living", "bedroom", "bathroom"]

MOST_RECEPTACLES = 24
"""No generated room can have more than its table allows; every room allows this many."""


class Settings(Closed):
    """Engine, source of games, and difficulty of generated ones."""

    engine: Literal["native", "textworld"] = "native"
    """`textworld` is the reference: the packages alfworld and textworld, thousands of times slower."""
    source: Literal["generated", "real"] = "generated"
    data_root: str | None = None
    """Folder that holds `json_2.1.1/` (as `alfworld-download` makes it); without it, $ALFWORLD_DATA."""
    families: Annotated[tuple[Family, ...], Field(min_length=1)] = FAMILIES  # type: ignore[assignment]
    rooms: Annotated[tuple[Room, ...], Field(min_length=1)] = ROOMS  # type: ignore[assignment]
    """Kinds of rooms of generated games."""
    receptacles: tuple[int, int] = (6, 10)
    """Fewest and most receptacles in a generated room."""
    distractors: tuple[int, int] = (4, 10)
    """Fewest and most objects drawn that have nothing to do with the goal; one that fits nowhere is left out."""
    horizon: Annotated[int, Field(ge=1, le=1000)] = 30
    """Commands until a rollout ends."""
    success_reward: Annotated[float, Field(gt=0)] = 1.0
    """The reward of the step that reaches the goal; every other step has 0. verl-agent's ALFWorld, and so the recipe of
    GiGPO, SCPO and HIPIF, has 10; penalties, SCPO's alpha and a critic's value clip are in the same units."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, least, most in (("receptacles", 4, MOST_RECEPTACLES), ("distractors", 0, 60)):
            low, high = getattr(self, name)
            if not least <= low <= high <= most:
                raise ValueError(f"{name}: [fewest, most] within {least}..{most}, not [{low}, {high}]")
        for name in ("families", "rooms"):
            values = getattr(self, name)
            if len(set(values)) != len(values):
                raise ValueError(f"{name}: a value is listed twice")
        if self.source == "generated":
            for family in self.families:
                if not set(FAMILY_ROOMS[family]) & set(self.rooms):
                    raise ValueError(
                        f"rooms: the family '{family}' needs one of {', '.join(FAMILY_ROOMS[family])}; "
                        "add one or drop the family"
                    )
        return self
