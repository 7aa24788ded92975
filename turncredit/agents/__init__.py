"""Agents: what the model sees of an episode, and how its text becomes an action.

An agent is made once per rollout. `open` gives the first prompt, `follow` the next one after a turn, `parse` the
action in a response. A prompt either extends the context (the model keeps what it has read) or replaces it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Protocol

from turncredit.errors import UserError, nearest
from turncredit.words import Words

AGENTS = {"transcript": "turncredit.agents.transcript", "window": "turncredit.agents.window"}


@dataclass(frozen=True, slots=True)
class Prompt:
    """Tokens for the model to read: all of its context (`reset`), or what follows its last response."""

    ids: list[int]
    reset: bool


@dataclass(frozen=True, slots=True)
class Parsed:
    """The action found in a response; `well_formed` is false where the agent's own format was broken."""

    action: str
    well_formed: bool


class Encoder(Protocol):
    """The part of a tokenizer that an agent uses."""

    eos_id: int
    has_chat_template: bool

    def encode(self, text: str) -> list[int]:
        """Token ids of a text, special tokens recognised, none added."""

    def chat(self, messages: list[dict[str, str]]) -> str:
        """Messages rendered by the model's chat template, ready for the assistant's reply."""


class Agent(Protocol):
    """One rollout's view of an episode."""

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The first prompt."""

    def follow(self, response_ids: Sequence[int], action: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The prompt after a turn: what the model wrote, what was done, what was seen."""

    def parse(self, text: str) -> Parsed:
        """The action in a response's text."""

    def target(self, action: str) -> str:
        """The response text that stands for `action` in a demonstration."""

    def fork(self) -> Agent:
        """An agent that has seen the same so far and goes on by itself."""


def agent_factory(
    name: str, encoder: Encoder, words: Words, *, history: int, show_admissible: bool
) -> Callable[[], Agent]:
    """A function that makes a fresh agent for each rollout; `words` are the environment's. Raises UserError for an
    unknown name.
    """
    if name not in AGENTS:
        raise UserError(f"unknown agent '{name}'{nearest(name, AGENTS)}; there are: {', '.join(AGENTS)}")
    return import_module(AGENTS[name]).factory(encoder, words, history=history, show_admissible=show_admissible)
