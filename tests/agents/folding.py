"""An agent for tests: it appends for a few turns, then replaces the context by the task and a folded history.

Its response is `<keep> note <act> action`; what it keeps is its own column of the turns, and part of later prompts.
Demonstrations give the note, in a column that the expert writes.
"""

from __future__ import annotations

from copy import copy

import pyarrow as pa

from turncredit.agents import AgentSettings, AgentSpec, Parsed, Prompt


class Settings(AgentSettings):
    every: int = 3


class Folding:
    def __init__(self, encoder, settings, words):
        self.encoder, self.every, self.words = encoder, settings.every, words
        self.task, self.notes, self.turns, self.size = "", (), 0, 0

    def open(self, goal, observation, _admissible):
        self.task = f"<|task|> {self.words.game} {goal}"
        return self._prompt(f"{self.task}<|obs|> {observation}<|act|>", reset=True)

    def parse(self, text):
        note, found, action = text.partition("<act>")
        note = note.replace("<keep>", "").strip() if found else None
        columns = {"note": note, "folds": self.turns // self.every, "prompt_tokens": self.size}
        return Parsed((action if found else text).strip(), bool(found), columns)

    def follow(self, response_ids, parsed, observation, _admissible):
        self.notes = (*self.notes, parsed.columns["note"] or parsed.action)
        self.turns += 1
        if self.turns % self.every == 0:
            history = "".join(f"<|obs|> {note}" for note in self.notes[-4:])
            return self._prompt(f"{self.task}{history}<|obs|> {observation}<|act|>", reset=True)
        closing = [] if response_ids and response_ids[-1] == self.encoder.eos_id else [self.encoder.eos_id]
        return self._prompt(f"<|obs|> {observation}<|act|>", reset=False, before=closing)

    def target(self, turn):
        return f"<keep> {turn['plan']}<act> {turn['action']}"

    def fork(self):
        return copy(self)

    def _prompt(self, text, reset, before=()):
        ids = [*before, *self.encoder.encode(text)]
        self.size = len(ids) + (0 if reset else self.size)
        return Prompt(ids, reset)


AGENT = AgentSpec(
    name="folding",
    make=lambda encoder, settings, words: lambda: Folding(encoder, settings, words),
    Settings=Settings,
    turn_columns={"note": pa.string(), "folds": pa.int32(), "prompt_tokens": pa.int32()},
    demo_columns={"plan": pa.string()},
    vocabulary=("<keep>", "<act>"),
)
