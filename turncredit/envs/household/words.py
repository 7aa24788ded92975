"""The household's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words
from turncredit.envs.household.tools import TOOLS
from turncredit.envs.household.verl_agent import PROMPT

WORDS = Words(
    setting="You act in a text game.",
    game="a household text game",
    task="Your task is to",
    examples=("go to fridge 1", "open fridge 1", "take apple 1 from fridge 1"),
    templates=(
        "go to {place}",
        "open {place}",
        "close {place}",
        "take {object} from {place}",
        "move {object} to {place}",  # the editions word it in one of these two ways (profile.py)
        "put {object} in/on {place}",
        "use {lamp}",
        "clean {object} with {place}",
        "heat {object} with {place}",
        "cool {object} with {place}",
        "slice {object} with {knife}",
        "examine {object or place}",
        "inventory",
        "look",
    ),
    tools=TOOLS,
    verl_agent=PROMPT,
)
