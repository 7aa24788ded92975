"""ReAct (Yao et al. 2023, arXiv 2210.03629): thoughts, actions and observations alternate in an append-only context.

A response is `Thought: ...` and, on a line of its own, `Action: ...`. As in the paper's decision-making tasks the model
decides when to think, so the thought may be left out. It stays in the context, as everything else does.

Departures from the paper: a thought and the action after it are one response, where the paper's agent spends a turn of
the environment on `think: ...` and is answered `OK.`; an instruction of our own stands in place of its worked examples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, outcome_after_goal
from turncredit.agents.action_forms import action_forms
from turncredit.agents.transcript import Transcript, markup
from turncredit.data.env_wording import Words

THOUGHT, ACTION, OBSERVATION = "Thought:", "Action:", "Observation:"

#: The column of demonstrations that is taught as the thought, where the environment's expert writes it.
DEMONSTRATED = "reflection"


def instruction(words: Words) -> str:
    """The system prompt for a chat model."""
    return (
        f"{words.setting} After every observation, think about what it means for the task, then give one action.\n"
        f"{action_forms(words)}Write two lines and nothing else:\n{THOUGHT} your reasoning\n{ACTION} the action\n"
    )


class React(Transcript):
    """A transcript whose responses hold a thought before the action."""

    def parse(self, text: str) -> Parsed:
        """The action and the thought of a response, `read`; the column `thought` is null where there is none."""
        action, thought, well_formed = read(text)
        return Parsed(action, well_formed, {"thought": thought})

    def target(self, turn: Mapping[str, Any]) -> str:
        """The action, after the expert's reflection on its turn if there is one: no thought is made up for it."""
        thought = " ".join((turn.get(DEMONSTRATED) or "").split())
        return f"{THOUGHT} {thought}\n{ACTION} {turn['action']}" if thought else f"{ACTION} {turn['action']}"


def read(text: str) -> tuple[str, str | None, bool]:
    """Action, thought and whether the response keeps the format: a thought or none, one action, nothing else.

    The action is the first line that begins with `Action:`, because what follows is what the model imagines to come
    next; without one it is the last line. The thought is what stands between `Thought:`, with which the response must
    begin, and the action; it may have several lines, but no further label.
    """
    lines = [line.strip() for line in text.strip().splitlines()]
    at = next((number for number, line in enumerate(lines) if line.startswith(ACTION)), None)
    before = lines[:at] if at is not None else lines
    labelled = bool(before) and before[0].startswith(THOUGHT)
    thought = "\n".join(before).removeprefix(THOUGHT).strip() if labelled else ""
    if at is None:
        return (lines[-1] if lines else ""), None, False
    action = " ".join(lines[at].removeprefix(ACTION).split())
    one_label = not any(line.startswith((THOUGHT, OBSERVATION)) for line in before[1:])
    in_form = (bool(thought) and one_label) if before else True
    return action, thought or None, bool(action) and in_form and at == len(lines) - 1


def make(encoder: Encoder, _settings: AgentSettings, words: Words) -> Callable[[], React]:
    """ReAct agents for this tokenizer."""
    first, later = markup(encoder, instruction(words))
    return lambda: React(encoder, first, later)


AGENT = AgentSpec(
    "react",
    make,
    turn_columns={"thought": pa.string()},
    optional_columns=(DEMONSTRATED,),
    vocabulary=(THOUGHT, ACTION),
    hindsight=outcome_after_goal,
    append_only=True,
)
