"""Search-QA's wording in prompts."""

from __future__ import annotations

from turncredit.data.env_wording import Words
from turncredit.envs.searchqa.tools import TOOLS
from turncredit.envs.searchqa.verl_agent import PROMPT

WORDS = Words(
    setting="You answer questions with the help of a search engine.",
    game="a question game with a search engine",
    task="Your question:",
    examples=("<search>author of Dracula</search>", "<answer>Bram Stoker</answer>"),
    templates=("<search>{query}</search>", "<answer>{short answer}</answer>"),
    tags=("search", "answer"),
    tools=TOOLS,
    verl_agent=PROMPT,
)
