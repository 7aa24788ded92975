"""The household's wording in prompts."""

from __future__ import annotations

from turncredit.words import Words

WORDS = Words(
    setting="You act in a text game.",
    game="a household text game",
    examples=("go to fridge 1", "open fridge 1", "take apple 1 from fridge 1"),
)
