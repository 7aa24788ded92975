"""The window agent: a fresh prompt each turn with the task, the last turns and the admissible actions.

The form that the ALFWorld reinforcement-learning literature uses (GiGPO and its descendants): the model thinks
inside `<think>` tags and acts inside `<action>` tags; the wording is ours.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from turncredit.agents import Encoder, Parsed, Prompt
from turncredit.words import Words

_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)


class Window:
    """A context made anew each turn from the goal and the last `history` turns."""

    def __init__(self, encoder: Encoder, words: Words, history: int, show_admissible: bool):
        self._encoder, self._words, self._history, self._show = encoder, words, history, show_admissible
        self._goal, self._seen = "", ""
        self._turns: list[tuple[str, str]] = []

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The first prompt of a rollout."""
        self._goal, self._seen, self._turns = goal, observation, []
        return self._prompt(admissible)

    def follow(self, _response_ids: Sequence[int], action: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The whole prompt again, one turn later."""
        self._turns.append((self._seen, action))
        self._seen = observation
        return self._prompt(admissible)

    def parse(self, text: str) -> Parsed:
        """The text inside the last `<action>` tags. Without tags the last line stands in, marked as malformed."""
        found = _ACTION.findall(text)
        well_formed = len(found) == 1 and ("<think>" in text) == ("</think>" in text)
        if found:
            return Parsed(" ".join(found[-1].split()), well_formed)
        lines = text.strip().splitlines()
        return Parsed(lines[-1].strip() if lines else "", well_formed=False)

    def target(self, action: str) -> str:
        """Demonstrations act without thinking aloud."""
        return f"<action>{action}</action>"

    def fork(self) -> Window:
        """Another window on the same goal and the same turns so far."""
        other = Window(self._encoder, self._words, self._history, self._show)
        other._goal, other._seen, other._turns = self._goal, self._seen, list(self._turns)
        return other

    def _prompt(self, admissible: Sequence[str]) -> Prompt:
        # What stays the same comes first: an engine reads a prompt from where it begins to differ from the last one.
        lines = [
            f"You play {self._words.game}. Your task is to {self._goal}",
            "Think inside <think> </think>, then give one action inside <action> </action>.",
        ]
        shown = self._turns[-self._history :] if self._history else []
        if shown:
            lines.append("Your last steps, oldest first:")
            first = len(self._turns) - len(shown)
            for number, (seen, action) in enumerate(shown, start=first + 1):
                lines.append(f"[Step {number}] observation: {seen} action: {action}")
        lines.append(f"[Step {len(self._turns) + 1}] observation: {self._seen}")
        if self._turns:
            lines.append(f"You have taken {len(self._turns)} steps so far.")
        if self._show:
            lines.append(f"Admissible actions: {', '.join(admissible)}.")
        text = "\n".join(lines)
        if self._encoder.has_chat_template:
            text = self._encoder.chat([{"role": "user", "content": text}])
        else:
            text += "\n"
        return Prompt(self._encoder.encode(text), reset=True)


def factory(encoder: Encoder, words: Words, *, history: int, show_admissible: bool) -> Callable[[], Window]:
    """Window agents for this tokenizer that show the last `history` turns."""
    return lambda: Window(encoder, words, history, show_admissible)
