"""The obvious rule: search for the instruction, take the first product, select the options that it names, and buy."""

from __future__ import annotations

import re

from turncredit.envs.obvious_rule import Rule, Script
from turncredit.envs.webshop.shop import BUY, SEP

_ASIN = re.compile(r"[A-Z0-9]{10}")


def rule(goal: str) -> Rule:
    """Four kinds of actions, in this order, and none that looks at what a product is."""
    return Rule(_script(goal))


def _script(goal: str) -> Script:
    yield ""
    results = yield f"search[{goal}]"
    first = next((part for part in results.split(SEP) if _ASIN.fullmatch(part)), None)
    if first is None:
        return
    parts = (yield f"click[{first}]").split(SEP)
    end = next((n for n, part in enumerate(parts) if part.startswith("Price: ")), 2)
    for text in parts[2 : end - 1]:  # options stand between the buttons and the title
        if re.search(rf"(?<!\w){re.escape(text.lower())}(?!\w)", goal.lower()):
            yield f"click[{text}]"
    yield f"click[{BUY}]"
