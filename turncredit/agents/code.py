"""The code agent: an append-only transcript whose actions are blocks of Python code of several lines.

A response may think first; its action is the code in its first block ```` ```python ... ``` ````. MGR's rules about the
form of an action in AppWorld (A.5): a response is malformed if it has no such block, or if it has `<think>` without
`</think>`. Departure: MGR calls an unclosed thought malformed if it is "excessively long", without a number; here every
unclosed one is, because the response has then run into its limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, outcome_after_goal
from turncredit.agents.transcript import Transcript, markup
from turncredit.data.env_wording import Words

_BLOCK = re.compile(r"```python[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)


def instruction(words: Words) -> str:
    """The system prompt for a chat model."""
    example = f"For example:\n```python\n{words.examples[0]}\n```\n" if words.examples else ""
    return (
        f"{words.setting} Reply to every observation with one block of Python code, which begins with ```python and "
        f"ends with ```; it may have several lines, and you may think before it. {example}"
    )


class Code(Transcript):
    """A transcript whose responses hold code."""

    def parse(self, text: str) -> Parsed:
        """The code of the first block after the thought; empty where there is none."""
        closed = "<think>" not in text or "</think>" in text
        match = _BLOCK.search(text.rpartition("</think>")[2])
        return Parsed(match[1] if match else "", well_formed=bool(match) and closed)

    def target(self, turn: Mapping[str, Any]) -> str:
        """The action as a block."""
        return f"```python\n{turn['action']}\n```"


def make(encoder: Encoder, _settings: AgentSettings, words: Words) -> Callable[[], Code]:
    """Code agents for this tokenizer."""
    first, later = markup(encoder, instruction(words))
    return lambda: Code(encoder, first, later)


AGENT = AgentSpec("code", make, hindsight=outcome_after_goal, multiline=True, append_only=True)
