"""verl-agent's prompt for questions with a search engine.

The templates are quoted from verl-agent's agent_system/environments/prompts/search.py, only one field renamed:
Copyright 2025 Nanyang Technological University (NTU), Singapore and the verl-agent (GiGPO) team, Apache License 2.0.
How their fields are filled is a fact of its env_manager.py (SearchEnvironmentManager) and memory.py (SearchMemory), how
a reply is read one of env_package/search/projection.py. Its scripts show 4 turns.
"""

from __future__ import annotations

import re

from turncredit.data.verl_agent import VerlAgentPrompt

_ASKED = """
Now it's your turn to respond for the current step.
You should first conduct reasoning process. This process MUST be enclosed within <think> </think> tags. 
After completing your reasoning, choose only one of the following actions (do not perform both):
(1) If you find you lack some knowledge, you can call a search engine to get more external information using format: <search> your query </search>.
(2) If you have enough knowledge to answer the question confidently, provide your final answer within <answer> </answer> tags, without detailed illustrations. For example, <answer>Beijing</answer>.
"""  # noqa: E501, W291

FIRST = f"""
You are an expert agent tasked with answering the given question step-by-step.
Your question: {{task_description}}
{_ASKED}"""

LATER = f"""
You are an expert agent tasked with answering the given question step-by-step.
Your question: {{task_description}}

Prior to this step, you have already taken {{step_count}} step(s). Below is the interaction history where <search> </search> wrapped your past search queries and <information> </information> wrapped the corresponding search results returned by the external search engine. History:
{{history}}
{_ASKED}"""  # noqa: E501

_BLOCKS = tuple(re.compile(rf"<{tag}>(.*?)</{tag}>", re.IGNORECASE | re.DOTALL) for tag in ("search", "answer"))
_OPENED = tuple(re.compile(f"<{tag}>", re.IGNORECASE) for tag in ("search", "answer"))


def _read(text: str) -> tuple[str, bool]:
    """The first search, or else the first answer, of what comes before the first end of a search (or else an answer).

    Valid: there is one, and the whole reply opens one tag only. Thoughts are asked for and not checked.
    """
    end = next((tag for tag in ("</search>", "</answer>") if tag in text), None)
    cut = text if end is None else text.partition(end)[0] + end
    opened = sum(len(tag.findall(text)) for tag in _OPENED)
    for tag, block in zip(("search", "answer"), _BLOCKS, strict=True):
        if match := block.search(cut):
            return f"<{tag}>{match[1].strip()}</{tag}>", opened == 1
    return "", False


def _record(_number: int, _before: str, action: str, after: str) -> str:
    """A search and what it found, on one line, which an empty one follows."""
    return " ".join(text.replace("\n", " ") for text in (action, after)) + "\n"


PROMPT = VerlAgentPrompt(first=FIRST, later=LATER, read=_read, turns=4, lists=False, record=_record)
