"""The append-only agent: one growing transcript per rollout, so that no token is read or trained on twice.

A tokenizer built from scratch has one token for each marker (`<|task|>`, `<|obs|>`, `<|act|>`); a pretrained chat
model sees a conversation instead, observations as the user's messages and actions as the assistant's replies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, Prompt, outcome_after_goal
from turncredit.agents.action_forms import action_forms
from turncredit.data.env_wording import Words
from turncredit.data.transcript_markers import ACTION, OBSERVATION, TASK


def instruction(words: Words) -> str:
    """The system prompt for a chat model."""
    return f"{words.setting} Reply to every observation with one action and nothing else.\n{action_forms(words)}"


class Transcript:
    """An append-only context: the goal and the first observation, then observations as they come."""

    def __init__(self, encoder: Encoder, first: Callable[[str, str], str], later: Callable[[str], str]):
        self._encoder, self._first, self._later = encoder, first, later

    def open(self, goal: str, observation: str, _admissible: Sequence[str]) -> Prompt:
        """The goal and the first observation, as the whole context."""
        return Prompt(self._encoder.encode(self._first(goal, observation)), reset=True)

    def follow(
        self, response_ids: Sequence[int], _parsed: Parsed, observation: str, _admissible: Sequence[str]
    ) -> Prompt:
        """The observation. A response that was cut off before its end-of-turn token is closed first."""
        closing = [] if response_ids and response_ids[-1] == self._encoder.eos_id else [self._encoder.eos_id]
        return Prompt(closing + self._encoder.encode(self._later(observation)), reset=False)

    def parse(self, text: str) -> Parsed:
        """The whole response is the action."""
        action = text.strip()
        return Parsed(action, well_formed=bool(action) and "\n" not in action)

    def target(self, turn: Mapping[str, Any]) -> str:
        """A leading space keeps entity tokens the same in actions and in observations."""
        return turn["action"] if self._encoder.has_chat_template else f" {turn['action']}"

    def fork(self) -> Transcript:
        """Returns itself: the history is in the model's context, not here."""
        return self


def make(encoder: Encoder, _settings: AgentSettings, words: Words) -> Callable[[], Transcript]:
    """Transcript agents for this tokenizer."""
    first, later = markup(encoder, instruction(words))
    return lambda: Transcript(encoder, first, later)


def markup(encoder: Encoder, preamble: str) -> tuple[Callable[[str, str], str], Callable[[str], str]]:
    """Functions that write the first prompt (of goal and observation) and the later ones (of the observation).

    A chat model is given the `preamble` first; a tokenizer built from scratch gets the markers alone.
    """
    return _chat_markup(encoder, preamble) if encoder.has_chat_template else (_marker_first, _marker_later)


def _marker_first(goal: str, observation: str) -> str:
    return f"{TASK} {goal}{OBSERVATION} {observation}{ACTION}"


def _marker_later(observation: str) -> str:
    return f"{OBSERVATION} {observation}{ACTION}"


def _chat_markup(encoder: Encoder, preamble: str) -> tuple[Callable[[str, str], str], Callable[[str], str]]:
    """The chat template's text around the first message, and between a reply and the next message."""
    user, reply, then = "\x01user\x01", "\x01reply\x01", "\x01then\x01"
    opening = encoder.chat([{"role": "user", "content": user}])
    before, after = opening.split(user)
    turn = {"role": "user", "content": then}
    whole = encoder.chat([{"role": "user", "content": user}, {"role": "assistant", "content": reply}, turn])
    between, end = whole.split(reply)[1].split(then)
    eos = encoder.eos_text  # type: ignore[attr-defined]
    between = between.split(eos, 1)[1] if eos in between else between

    def first(goal: str, observation: str) -> str:
        return f"{before}{preamble}Task: {goal}\n{observation}{after}"

    def later(observation: str) -> str:
        return f"{between}{observation}{end}"

    return first, later


AGENT = AgentSpec("transcript", make, hindsight=outcome_after_goal, append_only=True)
