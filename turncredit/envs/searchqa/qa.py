"""One rollout of Search-QA: searches, and one answer that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from turncredit.envs.protocol import Step
from turncredit.envs.searchqa import answers
from turncredit.envs.searchqa.actions import parse, write
from turncredit.envs.searchqa.retrieve import Document, Remote, Retriever
from turncredit.envs.searchqa.settings import Settings

START = "No documents yet."
NOTHING = "<information>No document has a word of the query.</information>"
REFUSED = "Neither a search nor an answer."
RIGHT, WRONG = "The answer is right.", "The answer is wrong."


class Question(NamedTuple):
    """A question. `supports` are the titles of the documents that it takes, in the order of the hops.

    Without them (datasets that do not say) one document with a gold answer in it is all that it takes.
    """

    id: str
    text: str
    answers: tuple[str, ...]
    supports: tuple[str, ...]
    family: str


class State(NamedTuple):
    """A rollout's state: how much was played, which supports were found, what the last search showed, the answer."""

    turns: int
    found_supports: frozenset[str]
    shown: tuple[Document, ...]
    answer: str | None


_START = State(0, frozenset(), (), None)


class SearchQA:
    """One rollout. `step` takes a search or an answer (`turncredit.envs.searchqa.actions`)."""

    def __init__(self, retriever: Retriever, question: Question, settings: Settings):
        self.retriever, self.question, self.settings = retriever, question, settings
        self._state = _START

    def reset(self) -> str:
        """Start again."""
        self._state = _START
        return START

    def step(self, action: str) -> Step:
        """Carry out one action. Anything but a search or an answer is refused: it costs a turn, `valid` is false."""
        if self._ended:
            raise RuntimeError("the rollout has ended; call reset or restore")
        kind, text = parse(action)
        turns = self._state.turns + 1
        if not kind or not text:
            self._state = self._state._replace(turns=turns)
            return Step(REFUSED, 0.0, self._ended, False, False)
        if kind == "answer":
            self._state = self._state._replace(turns=turns, answer=text)
            won = self.won
            return Step(RIGHT if won else WRONG, self._reward(text), True, won, True)
        shown = self.retriever.search(text)
        self._state = State(turns, self._state.found_supports | self._supporting(shown), shown, None)
        return Step(show(shown), 0.0, self._ended, False, True)

    def close(self) -> None:
        """Nothing to release."""

    @property
    def shown(self) -> tuple[Document, ...]:
        """What the last search showed."""
        return self._state.shown

    @property
    def won(self) -> bool:
        """Whether the answer was given and matches exactly."""
        return self._state.answer is not None and answers.exact_match(self._state.answer, self.question.answers)

    def progress(self) -> float:
        """The share of the supporting documents that were found, the right answer as one more; 1 exactly if won."""
        return 1.0 if self.won else len(self._state.found_supports) / (self._needed + 1)

    def distance(self) -> int:
        """Documents that are still to be found, and the answer: the hops left. -1 after a wrong answer or too late.

        That is the shortest way for whoever answers from what was found. A guess takes one action, and one search can
        find two documents by luck.
        """
        if self._state.answer is not None:
            return 0 if self.won else -1
        left = self._needed - len(self._state.found_supports) + 1
        return left if left <= self.settings.horizon - self._state.turns else -1

    def oracle(self) -> list[str]:
        """Searches for the titles of the documents that are still to be found, then a gold answer."""
        if self.distance() <= 0:
            return []
        missing: Sequence[str] = [title for title in self.question.supports if title not in self._state.found_supports]
        if not self.question.supports and not self._state.found_supports:
            missing = [self.question.text]
        form = self.settings.actions
        return [*(write("search", title, form) for title in missing), write("answer", self.question.answers[0], form)]

    def snapshot(self) -> State:
        """The state, which is immutable."""
        return self._state

    def restore(self, state: State) -> None:
        """Continue from a snapshot of this task."""
        self._state = state

    @property
    def _ended(self) -> bool:
        return self._state.answer is not None or self._state.turns >= self.settings.horizon

    @property
    def _needed(self) -> int:
        return len(self.question.supports) or 1

    def _supporting(self, shown: Sequence[Document]) -> frozenset[str]:
        """The supports among documents; of a question without any, the question itself once its answer is there."""
        if self.question.supports:
            return frozenset(self.question.supports).intersection(document.title for document in shown)
        has_answer = any(answers.contains(f"{one.title} {one.text}", self.question.answers) for one in shown)
        return frozenset({self.question.id} if has_answer else ())

    def _reward(self, answer: str) -> float:
        exact = float(answers.exact_match(answer, self.question.answers))
        share = exact if self.settings.reward == "em" else answers.f1(answer, self.question.answers)
        return share * self.settings.success_reward


def search_together(runs: Sequence[SearchQA], actions: Sequence[str]) -> None:
    """Ask a remote retriever once for all searches of rollouts that step together; their steps then find the replies.

    Raises UserError, as a step does.
    """
    parsed = [(run.retriever, parse(action)) for run, action in zip(runs, actions, strict=True)]
    queries: dict[Remote, list[str]] = {}
    for retriever, (kind, text) in parsed:
        if isinstance(retriever, Remote) and kind == "search" and text:
            queries.setdefault(retriever, []).append(text)
    for retriever, texts in queries.items():
        retriever.search_all(texts)


def show(documents: Sequence[Document]) -> str:
    """What a search prints, as Search-R1 does: numbered documents with titles, one a line, in one tag."""
    if not documents:
        return NOTHING
    lines = "\n".join(f"Doc {number}(Title: {one.title}) {one.text}" for number, one in enumerate(documents, start=1))
    return f"<information>{lines}</information>"
