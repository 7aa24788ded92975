"""Search and answer: not played here yet. The rule judge reads tables of it that were made elsewhere."""

from __future__ import annotations

import re

from turncredit.envs.environment import Environment
from turncredit.envs.judging import HIDDEN

_ANSWER = re.compile(r"<answer>|^\s*(?:answer|finish)\s*\[", re.IGNORECASE)


def redact(action: str, observation: str) -> str:
    """The reply to an answer says whether it was right: none of it is shown."""
    return HIDDEN if _ANSWER.search(action) else observation


ENVIRONMENT = Environment(
    name="searchqa",
    summary="questions answered by search (tables made elsewhere only).",
    aliases=("search_qa", "search-qa", "search"),
    judge="turncredit.envs.searchqa.judge",
    redact=redact,
)
