"""A stand-in for an agent that folds its context: task, folded records, current subgoal, the turns inside it.

Its contexts have the shape of HIPIF's (equation 2 of arXiv 2606.10507): a response is a reflection and an action,
now and then with a new subgoal, upon which the turns of the last one become one short record. A new subgoal comes every
`SUBGOAL_TURNS` turns, and its words are the action's: what is measured is the reading of contexts, not what a good
subgoal is. Only benchmarks use it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, Prompt
from turncredit.agents.transcript import Transcript
from turncredit.agents.transcript import make as make_transcript
from turncredit.data.env_wording import Words

SUBGOAL_TURNS = 4
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_SUBGOAL = re.compile(r"<subgoal>(.*?)</subgoal>", re.DOTALL)


def act(action: str) -> str:
    """An action in its tags."""
    return f"<action> {action}</action>"


def short(action: str, number: int) -> str:
    """The response of turn `number`: the action, after a subgoal if it is time for one."""
    return f"<subgoal> {action}</subgoal>{act(action)}" if number % SUBGOAL_TURNS == 0 else act(action)


def long(action: str, observation: str, number: int) -> str:
    """The same after a reflection on what was seen."""
    seen = " ".join(observation.split()[-12:])
    return f"<reflection> You see: {seen} Nothing else.</reflection>{short(action, number)}"


def parse(text: str) -> Parsed:
    """The action inside the last tags."""
    matches = _ACTION.findall(text)
    return Parsed(" ".join(matches[-1].split()) if matches else "", well_formed=len(matches) == 1)


class TaggedTranscript(Transcript):
    """The append-only agent with responses in tags, so that all agents can give the same ones."""

    def parse(self, text: str) -> Parsed:
        """The action inside its tags."""
        return parse(text)

    def target(self, turn: Mapping[str, Any]) -> str:
        """The demonstrated action."""
        return act(turn["action"])


class Folding:
    """Within a subgoal a turn adds an action and an observation; a new subgoal replaces those by a record."""

    def __init__(self, encoder: Encoder):
        self._encoder = encoder
        self._task, self._subgoal, self._folded = "", "", ""
        self._inside: list[str] = []
        self._seen, self._number = "", 0

    def open(self, goal: str, observation: str, _admissible: Sequence[str]) -> Prompt:
        """The task and the first observation."""
        self._task = f"<|task|> {goal}\n{observation}\n"
        self._seen = observation
        return self._prompt()

    def parse(self, text: str) -> Parsed:
        """The action inside the last tags, and the new subgoal if there is one."""
        subgoal = _SUBGOAL.findall(text)
        parsed = parse(text)
        return Parsed(parsed.action, parsed.well_formed, {"subgoal": subgoal[-1].strip() if subgoal else None})

    def follow(
        self, _response_ids: Sequence[int], parsed: Parsed, observation: str, _admissible: Sequence[str]
    ) -> Prompt:
        """The context with this turn in it, and with the turns of the last subgoal folded if there is a new one."""
        if parsed.columns["subgoal"]:
            if self._subgoal:
                self._folded += f"[{self._subgoal}. {self._seen}]\n"
            self._subgoal, self._inside = parsed.columns["subgoal"], []
        self._inside.append(f"({parsed.action}. {observation})\n")
        self._seen, self._number = observation, self._number + 1
        return self._prompt()

    def target(self, turn: Mapping[str, Any]) -> str:
        """A long response with the demonstrated action."""
        return long(turn["action"], self._seen, self._number)

    def fork(self) -> Folding:
        """Another one that has seen the same."""
        other = Folding(self._encoder)
        other.__dict__.update(self.__dict__, _inside=list(self._inside))
        return other

    def _prompt(self) -> Prompt:
        text = f"{self._task}{self._folded}<subgoal>{self._subgoal}</subgoal>\n{''.join(self._inside)}<|act|>"
        return Prompt(self._encoder.encode(text), reset=True)


def make(encoder: Encoder, _settings: AgentSettings, _words: Words) -> Callable[[], Folding]:
    """Folding agents for this tokenizer."""
    return lambda: Folding(encoder)


def make_tagged(encoder: Encoder, settings: AgentSettings, words: Words) -> Callable[[], Transcript]:
    """Append-only agents with responses in tags."""
    plain = make_transcript(encoder, settings, words)()
    return lambda: TaggedTranscript(plain._encoder, plain._first, plain._later)


def _columns() -> dict[str, Any]:
    import pyarrow as pa

    return {"subgoal": pa.string()}


TAGS = ("<reflection>", "</reflection>", "<subgoal>", "</subgoal>", "<action>", "</action>")
AGENT = AgentSpec("folding", make, turn_columns=_columns(), vocabulary=TAGS)
TRANSCRIPT = AgentSpec("tagged_transcript", make_tagged, vocabulary=TAGS)
