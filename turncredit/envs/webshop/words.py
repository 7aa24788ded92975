"""WebShop's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words
from turncredit.envs.webshop.tools import TOOLS
from turncredit.envs.webshop.verl_agent import PROMPT

WORDS = Words(
    setting="You shop in a text web shop.",
    game="a text web shop",
    task="Your instruction:",
    examples=("search[leak proof water bottle]", "click[Buy Now]"),
    templates=("search[{words}]", "click[{button, product or option}]"),
    tools=TOOLS,
    verl_agent=PROMPT,
)
