"""WebShop's settings."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from turncredit.data.strict_model import Closed

MOST_ATTRIBUTES, MOST_OPTIONS = 3, 2
"""Of a generated goal: every product has that many attributes, some have that many options."""


class Settings(Closed):
    """Where the catalogue comes from, what goals ask for, and how purchases are rewarded."""

    source: Literal["generated", "real"] = "generated"
    data_root: str | None = None
    """For `real`: the folder with the original's files, or the file of products in it; without it, $WEBSHOP_DATA."""
    goals: Literal["synthetic", "human"] = "synthetic"
    """For `real`: instructions made of attributes and options, or those of people (items_human_ins.json)."""
    splits: Literal["original", "verl-agent"] = "original"
    """For `real`: train starts after the 1,000 goals of `eval`, or, in verl-agent, directly after the 500 of `test`."""

    products: Annotated[int, Field(ge=50, le=20_000)] = 1000
    """Size of the generated catalogue."""
    catalogue_seed: int = 0
    attributes: tuple[int, int] = (1, 3)
    """Fewest and most attributes that a generated goal asks for."""
    options: tuple[int, int] = (0, 2)
    """Fewest and most options that a generated goal asks for."""

    titles: Literal["some", "all"] = "some"
    """Whether the title of a generated product names two of its attributes, as titles of real products do, or all."""

    lookalikes: Annotated[float, Field(ge=0, le=0.9)] = 0.7
    """Share of generated products that differ from another one in an attribute, an option or the price alone."""
    synonyms: Annotated[float, Field(ge=0, le=1)] = 0.2
    """How often a generated instruction says an attribute or the kind of product in other words, where there are."""

    page_size: Annotated[int, Field(ge=1, le=50)] = 10
    """Products on a page of results; the original has 10."""
    horizon: Annotated[int, Field(ge=1, le=1000)] = 15
    """Actions until a rollout ends; verl-agent has 15."""
    reward: Literal["score", "success"] = "score"
    """Of a purchase: `success_reward` times its score, or only where the score is 1 (verl-agent)."""
    success_reward: Annotated[float, Field(gt=0)] = 1.0
    """The reward of a perfect purchase. verl-agent's WebShop, and so the recipe of GiGPO, SCPO and HIPIF, has 10."""
    actions: Literal["plain", "spaced"] = "plain"
    """How demonstrations write actions: `click[text]`, or `click[ text]`, which is only understood with `spaced`."""
    original_colors: bool = False
    """Compare colours as the original does: 7% of its synthetic goals are then out of reach
    (docs/environments/webshop.md)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        for name, least, most in (("attributes", 1, MOST_ATTRIBUTES), ("options", 0, MOST_OPTIONS)):
            low, high = getattr(self, name)
            if not least <= low <= high <= most:
                raise ValueError(f"{name}: [fewest, most] within {least}..{most}, not [{low}, {high}]")
        return self
