"""Reflexion (Shinn et al. 2023, arXiv 2303.11366): after a failed trial the model writes a lesson, and tries again.

`reflexion` wraps any agent, the actor, which plays every trial from the start with the lessons so far in its goal. The
environment says when a trial has failed and starts again after the next response (`turncredit.envs.trials`), so a
lesson is a turn of the rollout like any other: its prompt is the failed trial, its action the lesson.

Departures from the paper: the same policy acts and reflects; a trial fails when the environment ends it without
success, and no heuristic stops one earlier for loops or too many steps; our own wording stands in place of worked
examples.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic import Field, create_model

from turncredit.agents import Agent, AgentSettings, AgentSpec, Encoder, Parsed, Prompt, react, transcript, window
from turncredit.data.env_wording import Words
from turncredit.data.transcript_markers import ACTION, FAILED, OBSERVATION, TASK
from turncredit.errors import UserError

#: Where a prompt without a chat template shows a lesson, or asks for one.
LESSON = "<lesson>"
#: Characters of a lesson; the rest is cut off, so that no lesson drives the task out of the context.
LONGEST = 1000

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_TAG = re.compile(r"<[^<>]{0,40}>|[<>]")
_ITS_OWN = {"trial": pa.int32(), "lesson": pa.string(), "lesson_cut": pa.bool_()}
_PLACE = "\x01place\x01"


class Settings(AgentSettings):
    """Trials and memory, beside the actor's own settings."""

    trials: int = Field(3, ge=1, description="trials of a rollout at most, the first one included")
    memory: int = Field(3, ge=1, description="lessons that the actor is shown, the latest ones")


class Lesson(NamedTuple):
    """A lesson as it is kept: one line of plain text; whether it was cut; whether the response held nothing else."""

    text: str
    cut: bool
    well_formed: bool


def read_lesson(text: str) -> Lesson:
    """The lesson in a response: all of it as one line of printable text without tags, at most `LONGEST` characters.

    Tags are taken out because the lesson becomes part of prompts, where they would be read as the prompt's own; what is
    thought before it, inside `<think>` tags, is not part of it. It is malformed if it is empty, too long, or had tags.
    """
    answer = _THOUGHT.sub(" ", text)
    plain = _TAG.sub(" ", answer)
    line = " ".join("".join(c if c.isprintable() else " " for c in plain).split())
    cut = len(line) > LONGEST
    return Lesson(line[:LONGEST].rstrip(), cut, bool(line) and not cut and plain == answer)


class Reflexion:
    """One rollout: the actor of the current trial, the lessons of those before it, and what happened in this one."""

    def __init__(
        self, actor: AgentSpec, new_actor: Callable[[], Agent], encoder: Encoder, settings: Settings, words: Words
    ):
        self._spec, self._new_actor = actor, new_actor
        self._encoder, self._settings, self._words = encoder, settings, words
        self._actor = new_actor()
        self._goal, self._trial, self._asked = "", 1, False
        self._lessons: tuple[str, ...] = ()
        self._happened: tuple[int, ...] = ()

    def open(self, goal: str, observation: str, admissible: Sequence[str]) -> Prompt:
        """The actor's first prompt."""
        self._goal, self._trial, self._asked, self._lessons = goal, 1, False, ()
        return self._begin(observation, admissible)

    def parse(self, text: str) -> Parsed:
        """The actor's action; after a failed trial the lesson, in whose turn the actor's columns are null."""
        if not self._asked:
            parsed = self._actor.parse(text)
            return replace(parsed, columns={**parsed.columns, "trial": self._trial, "lesson": None, "lesson_cut": None})
        lesson = read_lesson(text)
        its_own = {"trial": self._trial, "lesson": lesson.text or None, "lesson_cut": lesson.cut}
        return Parsed(lesson.text, lesson.well_formed, {**dict.fromkeys(self._spec.turn_columns), **its_own})

    def follow(
        self, response_ids: Sequence[int], parsed: Parsed, observation: str, admissible: Sequence[str]
    ) -> Prompt:
        """The actor's next prompt; after a failed trial the question, and after a lesson the next trial's first prompt.

        An empty lesson is dropped: the next trial sees only the earlier ones.
        """
        if self._asked:
            lesson = parsed.columns["lesson"]
            self._lessons = (*self._lessons, *([lesson] if lesson else []))[-self._settings.memory :]
            self._trial, self._asked = self._trial + 1, False
            return self._begin(observation, admissible)
        self._happened += tuple(self._reply_ids(response_ids))
        if observation.endswith(FAILED):
            self._asked = True
            return self._question(observation)
        self._happened += tuple(self._observation_ids(observation))
        return self._actor.follow(response_ids, parsed, observation, admissible)

    def target(self, turn: Mapping[str, Any]) -> str:
        """The actor's: demonstrations have one trial and no lesson."""
        return self._actor.target(turn)

    def fork(self) -> Reflexion:
        """A copy with a copy of the actor."""
        other = copy(self)
        other._actor = self._actor.fork()
        return other

    def _begin(self, observation: str, admissible: Sequence[str]) -> Prompt:
        self._actor = self._new_actor()
        opening = "" if self._encoder.has_chat_template else f"{TASK} {self._task()}"
        self._happened = tuple(self._encoder.encode(f"{opening}{self._showing(observation)}"))
        return self._spec.opened(self._actor, self._task(), observation, admissible)

    def _task(self) -> str:
        """The goal and the lessons, as the actor is given them."""
        if not self._lessons:
            return self._goal
        if not self._encoder.has_chat_template:
            return self._goal + "".join(f"{LESSON} {lesson}" for lesson in self._lessons)
        listed = "".join(f"\n- {lesson}" for lesson in self._lessons)
        return f"{self._goal}\nYou have tried this before and failed. Lessons from then:{listed}"

    def _showing(self, observation: str) -> str:
        """An observation, up to where the response to it begins."""
        chat = self._encoder.has_chat_template
        return f"Observation: {observation}\nYou: " if chat else f"{OBSERVATION} {observation}{ACTION}"

    def _observation_ids(self, observation: str) -> list[int]:
        return self._encoder.encode(self._showing(observation))

    def _reply_ids(self, response_ids: Sequence[int]) -> list[int]:
        """A response as the question shows it: in a chat message without its end-of-turn token."""
        ids = [token for token in response_ids if token != self._encoder.eos_id]
        return [*ids, *(self._encoder.encode("\n") if self._encoder.has_chat_template else [self._encoder.eos_id])]

    def _question(self, observation: str) -> Prompt:
        """The failed trial from its start, and the request for a lesson."""
        encode = self._encoder.encode
        if not self._encoder.has_chat_template:
            # The context of an append-only actor, of which an engine then reads only the end.
            return Prompt([*self._happened, *encode(f"{OBSERVATION} {observation}{LESSON}")], reset=True)
        message = (
            f"{self._words.setting} This was your attempt at the task below, and it failed.\nTask: {self._task()}\n\n"
            f"{_PLACE}Observation: {observation}\n\nWhy did it fail, and what will you do differently? Reply with one "
            "lesson for your next attempt, in one or two sentences and nothing else."
        )
        before, after = self._encoder.chat([{"role": "user", "content": message}]).split(_PLACE)
        return Prompt([*encode(before), *self._happened, *encode(after)], reset=True)


def reflexion(actor: AgentSpec, name: str) -> AgentSpec:
    """The agent `name`: `actor`, with lessons from failed trials. Its settings are `Settings` and the actor's own.

    Raises UserError for an actor that has several trials of its own, or settings or columns of the same name.
    """
    ours = {*Settings.model_fields, *_ITS_OWN}
    taken = sorted(ours & {*actor.Settings.model_fields, *actor.turn_columns})
    if actor.trials is not None or taken:
        why = f"'{taken[0]}' is a setting or column of Reflexion" if taken else "it has several trials itself"
        raise UserError(f"agent '{name}': '{actor.name}' can't be its actor: {why}")

    def make(encoder: Encoder, settings: Any, words: Words) -> Callable[[], Reflexion]:
        new_actor = actor.make(encoder, settings, words)
        return lambda: Reflexion(actor, new_actor, encoder, settings, words)

    return replace(
        actor,
        name=name,
        make=make,
        Settings=create_model("Settings", __base__=(Settings, actor.Settings)),
        turn_columns={**actor.turn_columns, **_ITS_OWN},
        vocabulary=lambda words: (*actor.vocabulary_in(words), LESSON),
        trials=lambda settings: settings.trials,
    )


AGENT = reflexion(react.AGENT, "reflexion")
WINDOW = reflexion(window.AGENT, "reflexion_window")
TRANSCRIPT = reflexion(transcript.AGENT, "reflexion_transcript")
