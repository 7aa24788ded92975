"""The names of warm starts: `sft` for the experiment's own agent, `sft_<agent>` for one of `agents`.

A warm start is an agent's base model and SFT policy. No method can have such a name.
"""

from __future__ import annotations

#: The warm start of the experiment's own agent.
SFT = "sft"


def is_start(name: str) -> bool:
    """Whether `name` is that of a warm start, and so of no method."""
    return name == SFT or name.startswith(f"{SFT}_")


def start_name(agent: str | None) -> str:
    """The warm start of the agent of that name; of the experiment's own agent if None."""
    return SFT if agent is None else f"{SFT}_{agent}"


def agent_name(start: str) -> str | None:
    """The name of a warm start's agent; None for the experiment's own."""
    return None if start == SFT else start.removeprefix(f"{SFT}_")


def start_words(start: str) -> str:
    """The policy of a warm start in words: `the SFT policy`, or `the SFT policy of plain` for the agent `plain`."""
    agent = agent_name(start)
    return "the SFT policy" if agent is None else f"the SFT policy of {agent}"
