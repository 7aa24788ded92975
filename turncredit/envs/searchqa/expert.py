"""An expert that searches for the supporting documents one by one and then answers, and plausible noise.

It is told the titles of the documents and the answer, but goes on only from what it has found: it searches for a
document once the one before it was shown, so that a policy can learn from it where a query comes from.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Protocol

from turncredit.envs.protocol import Rng
from turncredit.envs.searchqa.actions import parse, write
from turncredit.envs.searchqa.qa import Question
from turncredit.envs.searchqa.retrieve import Document
from turncredit.envs.searchqa.settings import Settings

_NAME = re.compile(r"[A-Z]\w*(?: [A-Z]\w*)*")


class Task(Protocol):
    """What the expert may know of an environment."""

    question: Question
    settings: Settings


class Run(Task, Protocol):
    """What noise may know of one."""

    @property
    def shown(self) -> tuple[Document, ...]:
        """What the last search showed."""
        ...


class Expert:
    """Searches for one question. Call `observe` with what is printed, `act` for the next action; `rng` decides nothing.

    In a generated fact base every search finds what it looks for. Elsewhere it tries the title, then the question,
    and goes on without the document if neither finds it.
    """

    def __init__(self, env: Task, _rng: Rng) -> None:
        self._question, self._form = env.question, env.settings.actions
        self._found: set[str] = set()
        """Titles of supports."""
        self._tried: set[str] = set()
        """Queries, as the environment reads them."""
        self._last = ""

    def observe(self, observation: str, action: str | None = None) -> None:
        """See what was printed; `action` is given if another action than `act`'s was carried out."""
        # A title may have any characters, brackets too, so each is looked for as it stands.
        self._found.update(title for title in self._question.supports if f"(Title: {title}) " in observation)
        kind, text = parse(self._last if action is None else action)
        if kind == "search":
            self._tried.add(text)

    def act(self) -> str:
        """The next action."""
        self._last = self._decide()
        return self._last

    def _decide(self) -> str:
        queries = [
            (title, (title, self._question.text)) for title in self._question.supports if title not in self._found
        ]
        if not self._question.supports:
            queries = [("", (self._question.text,))]
        for _, ways in queries:
            for query in ways:
                action = write("search", query, self._form)
                if parse(action)[1] not in self._tried:
                    return action
        return write("answer", self._question.answers[0], self._form)


def slip_command(env: Run, rng: Rng) -> str:
    """A search that is hardly the right one: a name in the last documents, or before that a word of the question."""
    names = _NAME.findall(" ".join(document.text for document in env.shown))
    words = _NAME.findall(env.question.text.partition(" ")[2].replace(" ", "\n"))
    return write("search", _pick(names or words or [env.question.text], rng), env.settings.actions)


def random_command(env: Run, rng: Rng) -> str:
    """A random action that is never an answer: in half the cases a search, in the others one that is refused."""
    action = slip_command(env, rng)
    if rng.random() < 0.5:
        return action
    word = _pick(env.question.text.split(), rng)
    return _pick((f"search {word}", word, "search[]", action[1:]), rng)


def _pick(options: Sequence[str], rng: Rng) -> str:
    return options[int(rng.random() * len(options))]
