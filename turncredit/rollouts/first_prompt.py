"""The first prompt of a task as text, without a model: what an agent shows, and how it asks for an action."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from turncredit import agents
from turncredit.config import AgentSlice
from turncredit.rollouts.tasks import Games


class TextEncoder:
    """Stands in for a tokenizer: a tag, a marker, a word or a sign is one token, and `decode` gives the text back.

    A chat is shown as each message under its role in square brackets. Without `chat`, tags and markers are tokens, as
    in a tokenizer built from scratch.
    """

    eos_id, eos_text = 0, "\0"
    special_tokens: tuple[str, ...] = ()

    def __init__(self, *, chat: bool):
        self.has_chat_template = chat
        self._ids = {self.eos_text: self.eos_id}

    def encode(self, text: str) -> list[int]:
        """Token ids, numbered in the order in which texts are met."""
        return [self._ids.setdefault(part, len(self._ids)) for part in re.findall(r"</?\w+>|<\|\w+\|>|\w+|\W", text)]

    def decode(self, ids: Sequence[int]) -> str:
        """The text of token ids."""
        texts = list(self._ids)
        return "".join(texts[number] for number in ids)

    def chat(self, messages: list[dict[str, Any]], *, tools: list[dict[str, Any]] | None = None) -> str:  # noqa: ARG002
        """Each message under its role, and the assistant's for the reply; as a template that does not tell of tools."""
        said = "".join(f"[{message['role']}]\n{message['content']}\n" for message in messages)
        return f"{said}[assistant]\n"


def first_prompt(games: Games, agent: AgentSlice, number: int, *, chat: bool) -> str:
    """The prompt of the first turn of game `number`: messages for a chat model (`chat`), or a plain text.

    Raises UserError for an agent that has no prompt for the environment.
    """
    spec, row = agents.load(agent.name), games.rows[number]
    encoder = TextEncoder(chat=chat)
    new_agent = agents.agent_factory(spec, encoder, agent.settings, games.env.words)
    running = games.with_trials(spec.trials_of(agent.settings)).open(row)
    try:
        (observation,) = games.each([running], "reset")
        admissible = games.admissible(running) if spec.shows_admissible else ()
        return encoder.decode(spec.opened(new_agent(), row["goal"], observation, admissible).ids)
    finally:
        games.close_each([running])
