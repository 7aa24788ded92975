"""The window agent: a fresh prompt each turn with the task, the last turns and the admissible actions or templates.

The form that the ALFWorld reinforcement-learning literature uses (GiGPO and its descendants): the model thinks
inside `<think>` tags and acts inside `<action>` tags; the wording is ours. Where an environment's actions are tags
themselves (`Words.tags`), such as search and answer, they stand without `<action>`, as in Search-R1 and verl-agent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pydantic import Field

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, Prompt, Shown, outcome_after_goal
from turncredit.agents.action_forms import action_forms
from turncredit.data.env_wording import Words

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_THINK = re.compile(r"</?think>")
_THOUGHT = ["<think>", "</think>"]


class Settings(AgentSettings):
    """What the prompt shows."""

    history: int = Field(2, ge=0, description="turns shown")
    show_admissible: bool = Field(
        True, description="whether the admissible actions are listed; if not, action templates"
    )
    think: bool = Field(
        True,
        description="whether the prompt asks for a thought, without which a response is malformed; no for a warm "
        "start, whose demonstrations have none",
    )


class Window:
    """A context that is rebuilt each turn from the goal and the last `history` turns."""

    def __init__(self, encoder: Encoder, settings: Settings, words: Words):
        self._encoder, self._settings, self._words = encoder, settings, words
        self._tagged = re.compile(rf"<({'|'.join(words.tags)})>.*?</\1>", re.DOTALL) if words.tags else None
        self._goal, self._observation = "", ""
        self._turns: list[tuple[str, str]] = []

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The first prompt of a rollout."""
        self._goal, self._observation, self._turns = goal, observation, []
        return self._prompt(admissible)

    def follow(
        self, _response_ids: Sequence[int], parsed: Parsed, observation: str, admissible: Sequence[str]
    ) -> Prompt:
        """The whole prompt again, one turn later."""
        self._turns.append((self._observation, parsed.action))
        self._observation = observation
        return self._prompt(admissible)

    def parse(self, text: str) -> Parsed:
        """The text inside the last `<action>` tags, or the last of the environment's own tags, with its text.

        Well-formed: one action, after one thought where the prompt asks for a thought, or after one or none. Text
        outside the tags does not matter. Without tags, the action is the last line, marked as malformed.
        """
        found = [(match[1], match.span()) for match in _ACTION.finditer(text)]
        if not found and self._tagged is not None:
            found = [(match[0], match.span()) for match in self._tagged.finditer(text)]
        if not found:
            lines = text.strip().splitlines()
            return Parsed(lines[-1].strip() if lines else "", well_formed=False)
        action, (start, end) = found[-1]
        allowed = [_THOUGHT] if self._settings.think else [[], _THOUGHT]
        thinks = _THINK.findall(text[:start]) in allowed and not _THINK.search(text[end:])
        return Parsed(" ".join(action.split()), well_formed=len(found) == 1 and thinks)

    def target(self, turn: Mapping[str, Any]) -> str:
        """The action alone: demonstrations have no reasoning, so a warm start goes with `think: false`."""
        tagged = self._tagged is not None and self._tagged.fullmatch(turn["action"])
        return turn["action"] if tagged else f"<action>{turn['action']}</action>"

    def fork(self) -> Window:
        """An independent copy, with the same goal and the same turns so far."""
        other = Window(self._encoder, self._settings, self._words)
        other._goal, other._observation, other._turns = self._goal, self._observation, list(self._turns)
        return other

    def _form(self) -> str:
        """How an action is written, for the prompt."""
        return f": {' or '.join(self._words.templates)}" if self._words.tags else " inside <action> </action>"

    def _prompt(self, admissible: Sequence[str]) -> Prompt:
        asked = "Think inside <think> </think>, then give" if self._settings.think else "Give"
        # Constant text comes first: an engine reads a prompt only from the first token that differs from the last one.
        lines = [
            f"You play {self._words.game}. {self._words.task} {self._goal}",
            f"{asked} one action{self._form()}.",
        ]
        if not self._settings.show_admissible and not self._words.tags:
            lines += action_forms(self._words).splitlines()
        history = self._settings.history
        shown = self._turns[-history:] if history else []
        if shown:
            lines.append("Your last steps, oldest first:")
            first = len(self._turns) - len(shown)
            for number, (observation, action) in enumerate(shown, start=first + 1):
                lines.append(f"[Step {number}] observation: {observation} action: {action}")
        lines.append(f"[Step {len(self._turns) + 1}] observation: {self._observation}")
        if self._turns:
            lines.append(f"You have taken {len(self._turns)} steps so far.")
        if self._settings.show_admissible:
            lines.append(f"Admissible actions: {', '.join(admissible)}.")
        text = "\n".join(lines)
        if self._encoder.has_chat_template:
            text = self._encoder.chat([{"role": "user", "content": text}])
        else:
            text += "\n"
        return Prompt(self._encoder.encode(text), reset=True)


def make(encoder: Encoder, settings: Settings, words: Words) -> Callable[[], Window]:
    """Window agents for this tokenizer."""
    return lambda: Window(encoder, settings, words)


def shown(settings: Settings, _words: Words) -> Shown:
    """The last turns, with their actions alone."""
    return Shown(turns=settings.history, responses=False, own=85)


AGENT = AgentSpec("window", make, Settings, hindsight=outcome_after_goal, shows_admissible=True, shown=shown)
