"""verl-agent's prompt for WebShop.

The templates are quoted from verl-agent's agent_system/environments/prompts/webshop.py, only two fields renamed:
Copyright 2025 Nanyang Technological University (NTU), Singapore and the verl-agent (GiGPO) team, Apache License 2.0.
How their fields are filled is a fact of its env_manager.py (WebshopEnvironmentManager).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from turncredit.data.verl_agent import VerlAgentPrompt, read_tagged
from turncredit.envs.webshop.shop import BUY, SEARCH, SEARCH_FORM, SEP, START_PAGE, SUB_PAGES, plain

_LISTED = """Your admissible actions of the current situation are: 
[
{actions}
].

Now it's your turn to take one action for the current step.
You should first reason step-by-step about the current situation, then think carefully which admissible action best advances the shopping goal. This reasoning process MUST be enclosed within <think> </think> tags. 
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <action> </action> tags.
"""  # noqa: E501, W291

FIRST = (
    """
You are an expert autonomous agent operating in the WebShop e\u2011commerce environment. 
Your task is to: {task_description}.
Your current observation is: {current_observation}.
"""  # noqa: W291
    + _LISTED
)

LATER = (
    """
You are an expert autonomous agent operating in the WebShop e\u2011commerce environment.
Your task is to: {task_description}.
Prior to this step, you have already taken {step_count} step(s). Below are the most recent {history_length} observations and the corresponding actions you took: {history}
You are now at step {current_step} and your current observation is: {current_observation}.
"""  # noqa: E501
    + _LISTED
)


def _page(observation: str) -> str:
    """The parts of a page in quotes. Of the page with the search bar, verl-agent shows what follows the instruction."""
    parts = [SEARCH] if observation == START_PAGE else observation.split(SEP)
    return SEP.join(f"'{part}'" for part in parts)


def _listed(actions: Sequence[str]) -> str:
    """An action a line, in lower case; a product's options come last, after the buttons.

    The button of the search bar is listed, too, as the original does; a click on it has no effect.
    """
    shown = [plain(action, "spaced") for action in actions]
    if shown == [SEARCH_FORM]:
        shown.append(f"click[{SEARCH}]")
    if shown and shown[-1] == f"click[{BUY}]":
        buttons = len(SUB_PAGES) + 1
        shown = [*shown[:2], *shown[-buttons:], *shown[2:-buttons]]
    return "\n".join(f"'{action.lower()}'," for action in shown)


PROMPT = VerlAgentPrompt(
    first=FIRST, later=LATER, read=partial(read_tagged, kept=20), page=_page, listed=_listed, longest=13_000
)
