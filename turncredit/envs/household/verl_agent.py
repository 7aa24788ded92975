"""verl-agent's prompt for ALFWorld.

The templates are quoted from verl-agent's agent_system/environments/prompts/alfworld.py, only two fields renamed:
Copyright 2025 Nanyang Technological University (NTU), Singapore and the verl-agent (GiGPO) team, Apache License 2.0.
How their fields are filled is a fact of its env_manager.py (AlfWorldEnvironmentManager).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from turncredit.data.verl_agent import VerlAgentPrompt, read_tagged
from turncredit.envs.household.profile import BANNER, TASK_PREFIX

_ASKED = """
Now it's your turn to take an action.
You should first reason step-by-step about the current situation. This reasoning process MUST be enclosed within <think> </think> tags.
Once you've finished your reasoning, you should choose an admissible action for current step and present it within <action> </action> tags.
"""  # noqa: E501

FIRST = f"""
You are an expert agent operating in the ALFRED Embodied Environment.
Your current observation is: {{current_observation}}
Your admissible actions of the current situation are: [{{actions}}].
{_ASKED}"""

LATER = f"""
You are an expert agent operating in the ALFRED Embodied Environment. Your task is to: {{task_description}}
Prior to this step, you have already taken {{step_count}} step(s). Below are the most recent {{history_length}} observations and the corresponding actions you took: {{history}}
You are now at step {{current_step}} and your current observation is: {{current_observation}}
Your admissible actions of the current situation are: [{{actions}}].
{_ASKED}"""  # noqa: E501


def _opening(goal: str, observation: str) -> str:
    """ALFWorld's own first observation: its banner, the room, the task."""
    return f"{BANNER}\n\n{observation}\n\n{TASK_PREFIX}{goal}"


def _listed(actions: Sequence[str]) -> str:
    return "\n ".join(f"'{action}'" for action in actions if action != "help")


PROMPT = VerlAgentPrompt(first=FIRST, later=LATER, read=partial(read_tagged, kept=30), opening=_opening, listed=_listed)
