"""Make rows of the tasks table, and open a row as a rollout."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from turncredit.envs.searchqa import generate
from turncredit.envs.searchqa.actions import write
from turncredit.envs.searchqa.qa import Question, SearchQA
from turncredit.envs.searchqa.questions import read_corpus, read_questions
from turncredit.envs.searchqa.retrieve import Bm25, Document, Remote, Retriever
from turncredit.envs.searchqa.settings import Settings
from turncredit.errors import UserError, nearest
from turncredit.seeding import derive_seed

NAME = "searchqa"


def make_tasks(split: str, count: int, seed: int, settings: Settings) -> list[dict[str, Any]]:
    """`count` different questions of a split, the same for the same seed and settings; a larger count only adds tasks.

    Raises UserError for an unknown or too small split.
    """
    if settings.source == "generated":
        questions = generate.questions(split, seed, settings.base, settings.hops)
    else:
        questions = _of_file(split, seed, settings)
    if len(questions) < count:
        more = "allow more documents or hops (env.searchqa), or " if settings.source == "generated" else ""
        raise UserError(
            f"the split '{split}' of Search-QA has {len(questions)} questions, not {count}; {more}ask for fewer"
        )
    return [_row(question, split, seed, settings.source) for question in questions[:count]]


def _of_file(split: str, seed: int, settings: Settings) -> list[Question]:
    if split not in settings.questions:
        raise UserError(
            f"unknown split '{split}'{nearest(split, settings.questions)}; env.searchqa.questions has "
            f"{', '.join(settings.questions)}"
        )
    questions = list(read_questions(Path(settings.questions[split])).questions)
    random.Random(derive_seed(seed, NAME, split)).shuffle(questions)
    return questions


def _row(question: Question, split: str, seed: int, source: str) -> dict[str, Any]:
    return {
        "task_id": f"{split}-{question.id}",
        "env": NAME,
        "split": split,
        "family": question.family,
        "goal": question.text,
        "source": source,
        "seed": seed,
        "optimal_length": (len(question.supports) or 1) + 1,
        "game": json.dumps(question._asdict(), ensure_ascii=False),
    }


def question_of(row: Mapping[str, Any]) -> Question:
    """The question of a row. Raises UserError for a damaged one."""
    try:
        kept = json.loads(row["game"])
        return Question(**{**kept, "answers": tuple(kept["answers"]), "supports": tuple(kept["supports"])})
    except (ValueError, TypeError, KeyError) as error:
        raise UserError(
            f"task '{row['task_id']}': its column 'game' is damaged: {error}; make the tasks again"
        ) from None


def gold_answer(row: Mapping[str, Any], settings: Settings) -> tuple[str, str]:
    """The action that gives a row's first gold answer, and the answer as it stands in the action."""
    answer = question_of(row).answers[0]
    action = write("answer", answer, settings.actions)
    return action, f" {answer}" if settings.actions == "brackets" else answer


def open_task(row: Mapping[str, Any], settings: Settings) -> SearchQA:
    """A fresh rollout of a task."""
    return SearchQA(open_retriever(settings), question_of(row), settings)


def open_retriever(settings: Settings) -> Retriever:
    """The retriever of these settings; rollouts share it. Raises UserError for missing or damaged files."""
    if settings.retriever == "remote":
        return _remote(settings.url or "", settings.topk, settings.timeout, settings.attempts)
    if settings.source == "generated" and settings.corpus is None:
        return _generated(settings.base, settings.topk)
    files = tuple(Path(path) for path in dict.fromkeys(settings.questions.values()))
    return _files(Path(settings.corpus) if settings.corpus else None, files, settings.topk)


@lru_cache(maxsize=4)
def _generated(base: tuple[int, int, int], topk: int) -> Bm25:
    return Bm25(generate.documents(*base), topk)


@lru_cache(maxsize=4)
def _files(corpus: Path | None, questions: tuple[Path, ...], topk: int) -> Bm25:
    if corpus is not None:
        return Bm25(read_corpus(corpus), topk)
    documents = dict.fromkeys((one.title, one.text) for path in questions for one in read_questions(path).documents)
    if not documents:
        names = ", ".join(map(str, questions))
        raise UserError(f"{names}: these questions come without documents; name a corpus (env.searchqa.corpus)")
    return Bm25([Document(str(n), title, text) for n, (title, text) in enumerate(documents)], topk)


@lru_cache(maxsize=4)
def _remote(url: str, topk: int, timeout: float, attempts: int) -> Remote:
    return Remote(url, topk, timeout, attempts)
