"""The HIPIF agent: subgoals, reflection, and a folded history, in a context that is rebuilt each turn.

    <reflection> judgement of the current subgoal; what follows from it </reflection>
    <subgoal> a new subgoal </subgoal>      only where the current one is completed, or given up
    <action> one action </action>

A new subgoal declares the current one complete: its actions and observations are folded into the subgoal and its last
observation. Source: HIPIF (arXiv 2606.10507), sections 3.1, 3.2, appendices B, C, E; docs/agents_hipif.md has every
departure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pydantic import Field

from turncredit.agents import AgentSettings, AgentSpec, Encoder, Parsed, Prompt, Shown, outcome_after_goal
from turncredit.agents.hipif.history import History, Part
from turncredit.agents.hipif.response import TAGS, read
from turncredit.agents.hipif.wording import COMPLETED, GIVEN_UP, NOT_COMPLETED, Wording, plain, wording
from turncredit.data.env_wording import Words
from turncredit.errors import UserError

#: the least that a context must hold beside the instruction
LEAST_ROOM = 64


class Settings(AgentSettings):
    """Which parts of HIPIF are switched on, and how long its contexts may be."""

    reflection: bool = Field(True, description="whether responses begin with a reflection")
    subgoals: bool = Field(True, description="whether there are subgoals; false: a plain history, nothing is folded")
    max_prompt_tokens: int = Field(1024, ge=1, description="tokens of a context, instruction included")


class Hipif:
    """The agent in one rollout. Its state is replaced, never changed in place."""

    def __init__(self, encoder: Encoder, settings: Settings, words: Wording):
        self._encoder, self._settings, self._words = encoder, settings, words
        self._before, self._after = encoder.encode(words.before), encoder.encode(words.after)
        self._end = encoder.encode(words.end)
        self._room = settings.max_prompt_tokens - len(self._before) - len(self._after)
        self._history = History()
        self._subgoal, self._index = "", -1  # -1: before the first response
        self._observation = ""
        self._counts: dict[str, int] = {}

    def open(self, goal: str, observation: str, _admissible: Sequence[str]) -> Prompt:
        """The first prompt: the task and the first observation. There is no subgoal yet."""
        self._subgoal, self._index, self._observation = "", -1, plain(observation)
        self._history = History(
            task=self._part(self._words.task(plain(goal)), self._room // 4),
            first=self._part(self._words.first(self._observation)),
            subgoal=self._part(self._words.current("")),
        )
        return self._prompt()

    def parse(self, text: str) -> Parsed:
        """The response's action, and the columns of its turn."""
        response = read(
            text,
            reflection=self._settings.reflection,
            subgoals=self._settings.subgoals,
            has_subgoal=bool(self._subgoal),
        )
        columns = {
            "subgoal": response.subgoal or self._subgoal,
            "subgoal_index": self._index + 1 if response.subgoal else max(self._index, 0),
            "completed": bool(response.subgoal and self._subgoal),
            "reflection": response.reflection,
            "fault": response.fault,
            **self._counts,
        }
        return Parsed(response.action, not response.fault, columns)

    def follow(
        self, _response_ids: Sequence[int], parsed: Parsed, observation: str, _admissible: Sequence[str]
    ) -> Prompt:
        """The whole context again, one turn later; what came before a new subgoal is folded."""
        if parsed.columns["subgoal_index"] != self._index:
            self._start(parsed.columns["subgoal"], parsed.columns["subgoal_index"])
        self._observation = plain(observation)
        action = self._part(self._words.action(plain(parsed.action)), self._room // 8)
        # The first observation is the current one in the first turn only; then it leaves room for others.
        kept = replace(self._history, first=self._history.first.shortened(self._room // 4, self._end))
        self._history = kept.then(action + self._part(self._words.observation(self._observation)))
        return self._prompt()

    def target(self, turn: Mapping[str, Any]) -> str:
        """The plan of the demonstration as a response; a subgoal only where it is another than the current one."""
        subgoal, block = plain(turn["subgoal"] or ""), self._words.block
        starts = self._settings.subgoals and bool(subgoal) and subgoal != self._subgoal
        parts = []
        if self._settings.reflection:
            judged = COMPLETED if turn["completed"] else GIVEN_UP if starts else NOT_COMPLETED
            sentences = [judged] if self._subgoal else []
            sentences += [plain(turn["reflection"])] if turn["reflection"] else []
            parts.append(block("reflection", ". ".join(sentences) or NOT_COMPLETED))
        if starts:
            parts.append(block("subgoal", subgoal))
        return "".join([*parts, block("action", turn["action"])])

    def fork(self) -> Hipif:
        """An independent copy."""
        return copy(self)

    def _start(self, subgoal: str, index: int) -> None:
        """Make a subgoal the current one; the one before is folded into its text and its last observation."""
        current = self._part(self._words.current(plain(subgoal)), self._room // 8)
        if self._index < 0:
            self._history = replace(self._history, subgoal=current)
        else:
            finished = self._part(self._words.finished(plain(self._subgoal)), self._room // 8)
            ended_with = self._part(self._words.observation(self._observation), self._room // 4)
            self._history = self._history.fold(finished + ended_with, current)
        self._subgoal, self._index = subgoal, index

    def _prompt(self) -> Prompt:
        self._history = self._history.within(self._room, self._end)
        ids = [*self._before, *self._history.ids, *self._after]
        self._counts = {
            "folded_tokens": self._history.folded_size,
            "prompt_tokens": len(ids),
            "truncated_tokens": self._history.truncated,
        }
        return Prompt(ids, reset=True)

    def _part(self, text: str, size: int | None = None) -> Part:
        """The tokens of a text; at most `size`, if given."""
        part = Part(tuple(self._encoder.encode(text)))
        return part if size is None else part.shortened(size, self._end)


def make(encoder: Encoder, settings: Settings, words: Words) -> Callable[[], Hipif]:
    """HIPIF agents for this tokenizer. Raises UserError for contexts that hold little more than the instruction."""
    worded = wording(encoder, words, reflection=settings.reflection, subgoals=settings.subgoals)
    fixed = len(encoder.encode(worded.before)) + len(encoder.encode(worded.after))
    if settings.max_prompt_tokens < fixed + LEAST_ROOM:
        raise UserError(
            f"agent.hipif.max_prompt_tokens is {settings.max_prompt_tokens}, but the instruction alone has {fixed} "
            f"tokens; set it to {fixed + LEAST_ROOM} at least, better to four times that"
        )
    return lambda: Hipif(encoder, settings, worded)


def shown(settings: Settings, _words: Words) -> Shown:
    """Actions with their observations; of finished subgoals their text and the last observation.

    A subgoal is taken to last four turns, as in the experts' demonstrations, so that its record is 10 tokens a turn.
    """
    both = settings.reflection and settings.subgoals
    own = 95 + 30 * settings.reflection + 85 * settings.subgoals + 50 * both
    return Shown(turns=3, responses=False, folded=10, own=own) if settings.subgoals else Shown(responses=False, own=own)


AGENT = AgentSpec(
    name="hipif",
    make=make,
    Settings=Settings,
    turn_columns={
        "subgoal": pa.string(),
        "subgoal_index": pa.int32(),
        "completed": pa.bool_(),
        "reflection": pa.string(),
        "fault": pa.string(),
        "folded_tokens": pa.int32(),
        "prompt_tokens": pa.int32(),
        "truncated_tokens": pa.int32(),
    },
    demo_columns={"subgoal": pa.string(), "completed": pa.bool_(), "reflection": pa.string()},
    vocabulary=(
        *(tag for name in TAGS for tag in (f"<{name}>", f"</{name}>")),
        *(f" {judged}" for judged in (COMPLETED, NOT_COMPLETED, GIVEN_UP)),
    ),
    hindsight=outcome_after_goal,
    shown=shown,
)
