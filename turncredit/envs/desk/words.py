"""The desk's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words
from turncredit.envs.desk.tools import TOOLS

WORDS = Words(
    setting="You work at the customer service of a shop. Everything that you change is final.",
    game="the customer service of a shop, where everything that you change is final",
    task="Your task is to",
    examples=("ask name", "open order O1042", "confirm return lamp of order O1042", "close"),
    templates=tuple(tool.text for tool in TOOLS),
    tools=TOOLS,
)
