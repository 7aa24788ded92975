"""Sokoban's settings."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, field_validator, model_validator

from turncredit.data.strict_model import Closed

SIZES = (5, 9)
MOST_BOXES = 4
FILE_SPLITS = ("train", "eval")
"""The splits of a single file of levels."""


class Settings(Closed):
    """Where levels come from, how hard generated ones are, what is shown, and how rollouts end."""

    levels: dict[str, str] = Field(default_factory=dict)
    """A file of levels in the common text format, or one for each split: {train: FILE, eval: FILE}.

    A file that several splits name is divided among them by the hash of the room; so is a single one, among `train` and
    `eval`. Without it, levels are generated.
    """
    boxes: tuple[int, ...] = (1, 2)
    """Numbers of boxes of generated levels. They and `sizes` make the families, which take turns."""
    sizes: tuple[int, ...] = (6,)
    """Rows and columns of generated rooms, the outer wall included (gym-sokoban's dim_room)."""
    walls: Annotated[float, Field(ge=0, le=0.5)] = 0.15
    """The chance that an inner square of a generated room is a wall."""
    length: tuple[int, int] = (4, 16)
    """Fewest and most actions of an optimal plan in generated levels."""

    view: Literal["grid", "relations", "both"] = "grid"
    """What an observation shows: the grid, or where boxes, targets and walls are, seen from the player."""
    horizon: Annotated[int, Field(ge=1, le=1000)] = 30
    """Actions until a rollout ends."""
    success_reward: Annotated[float, Field(gt=0)] = 1.0
    """Paid when all boxes are on targets. gym-sokoban pays 10 then, 1 and -1 for a box that gets on or off a target,
    and -0.1 for each action."""

    @field_validator("levels", mode="before")
    @classmethod
    def _one_file(cls, value: Any) -> Any:
        return dict.fromkeys(FILE_SPLITS, value) if isinstance(value, str) else value

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, least, most in (("boxes", 1, MOST_BOXES), ("sizes", *SIZES)):
            given = getattr(self, name)
            if not given or len(set(given)) < len(given) or not all(least <= one <= most for one in given):
                raise ValueError(f"{name}: one or more numbers within {least}..{most}, each once, not {list(given)}")
        low, high = self.length
        if not 1 <= low <= high:
            raise ValueError(f"length: [fewest, most], at least 1, not [{low}, {high}]")
        if not self.levels and self.horizon < high:
            raise ValueError(
                f"horizon: an optimal plan may take {high} actions (length), which do not fit into {self.horizon}; "
                "raise horizon or lower length"
            )
        return self
