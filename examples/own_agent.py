"""An example of your own agent: it writes a note with every action, and keeps only its notes of the past.

Run it:   snakemake --cores all --configfile config/own_agent.yaml
"""

from __future__ import annotations

from copy import copy

import pyarrow as pa

from turncredit.agents import AgentSettings, AgentSpec, Parsed, Prompt


class Settings(AgentSettings):
    """`agent.notes` of the configuration. `remember`: how many notes a prompt shows."""

    remember: int = 4


class Notes:
    """A response is `<note> what to remember<do> action`; a prompt is the task, the last notes and what is seen now."""

    def __init__(self, encoder, settings, words):
        self.encoder, self.settings, self.words, self.goal, self.notes = encoder, settings, words, "", ()

    def open(self, goal, observation, _admissible):
        """The first prompt."""
        self.goal = goal
        return self._prompt(observation)

    def parse(self, text):
        """The action after `<do>`. The note becomes a column of the turns: null where the format was broken."""
        note, do, action = text.partition("<do>")
        kept = bool(do) and note.strip().startswith("<note>")
        note = note.strip().removeprefix("<note>").strip() if kept else None
        return Parsed((action if do else text).strip(), well_formed=kept, columns={"note": note})

    def follow(self, _response_ids, parsed, observation, _admissible):
        """Everything again, with one note more: `reset` replaces the context, an engine reads only what differs."""
        self.notes = (*self.notes, parsed.columns["note"] or "")
        return self._prompt(observation)

    def target(self, turn):
        """What a demonstrated turn teaches: to note the thing or place that its action ends with, such as shelf 1."""
        return f"<note> {' '.join(turn['action'].split()[-2:])}<do> {turn['action']}"

    def fork(self):
        """A copy that goes on by itself; nothing in it is changed in place."""
        return copy(self)

    def _prompt(self, observation):
        shown = "".join(f"<note> {note}" for note in self.notes[-self.settings.remember :])
        text = f"{self.words.setting} {self.goal}{shown}\n {observation}\n"
        chat = self.encoder.has_chat_template
        text = self.encoder.chat([{"role": "user", "content": text}]) if chat else text
        return Prompt(self.encoder.encode(text), reset=True)


AGENT = AgentSpec(
    name="notes",
    make=lambda encoder, settings, words: lambda: Notes(encoder, settings, words),
    Settings=Settings,
    turn_columns={"note": pa.string()},
    vocabulary=("<note>", "<do>"),
)
