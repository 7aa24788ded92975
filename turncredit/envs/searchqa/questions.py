"""Question sets and corpora from files.

Rows are JSON lines (`.jsonl`), a JSON list (`.json`) or Parquet (`.parquet`). A row's fields say what it is:

    `paragraphs`                               MuSiQue: with `question_decomposition` and `answer_aliases`
    `context`, `supporting_facts` or `_titles` HotpotQA (distractor) and 2WikiMultihopQA
    `context` that is a text                   SQuAD, a row for each question, as dataset hubs have it
    others                                     Natural Questions as Search-R1 and FlashRAG have it: `question`, and
                                               `answer`, `golden_answers` or `reward_model.ground_truth.target`

A JSON file with `data` is SQuAD or XQuAD: articles of paragraphs, each with its questions.

A corpus has rows of `id`, `title`, `text`, or of `id` and `contents` as Search-R1 has it. Where a configuration names
none, the documents are those of the question files: the contexts of HotpotQA, 2Wiki, MuSiQue and SQuAD.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.envs.searchqa.qa import Question
from turncredit.envs.searchqa.retrieve import Document, document_of
from turncredit.errors import UserError


class Contents(NamedTuple):
    """A file's questions, and the documents that it has itself."""

    questions: tuple[Question, ...]
    documents: tuple[Document, ...]


@lru_cache(maxsize=8)
def read_questions(path: Path) -> Contents:
    """The questions and documents of a file, in its order. Raises UserError for a file that is not one of questions."""
    data = _load(path, "questions")
    return _checked(path, _squad if isinstance(data, Mapping) else _from_rows, data)


@lru_cache(maxsize=4)
def read_corpus(path: Path) -> tuple[Document, ...]:
    """The documents of a corpus; a row without `id` is called by its number. Raises UserError."""
    rows = _load(path, "documents")
    if not isinstance(rows, list):
        raise UserError(f"{path}: not a list of documents (env.searchqa.corpus)")
    out = []
    for number, row in enumerate(rows):
        try:
            document = document_of(row)
        except (KeyError, TypeError, AttributeError):
            raise UserError(f"{path}: row {number} is not a document: it needs title and text, or contents") from None
        out.append(document if document.id else document._replace(id=str(number)))
    if not out:
        raise UserError(f"{path}: no documents in this file (env.searchqa.corpus)")
    return tuple(out)


def _load(path: Path, what: str) -> Any:
    if not path.is_file():
        raise UserError(f"{path}: no such file of {what} (env.searchqa)")
    try:
        if path.suffix == ".parquet":
            return pq.read_table(path).to_pylist()
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".jsonl":
            # Not splitlines: a text may have other characters that end lines, such as U+2028.
            return [json.loads(line) for line in text.split("\n") if line.strip()]
        return json.loads(text)
    except (json.JSONDecodeError, UnicodeDecodeError, pa.ArrowInvalid) as error:
        raise UserError(f"{path}: not a file of {what}: {error}") from None


def _checked(path: Path, read: Callable[[Any], Contents], data: Any) -> Contents:
    try:
        contents = read(data)
    except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
        raise UserError(
            f"{path}: not questions in the form of HotpotQA, 2Wiki, MuSiQue, SQuAD or Natural Questions: "
            f"{type(error).__name__} {error}"
        ) from None
    if not contents.questions:
        raise UserError(f"{path}: no questions in this file (env.searchqa.questions)")
    for number, one in enumerate(contents.questions):
        if not (isinstance(one.text, str) and one.text.strip()) or not all(one.answers):
            raise UserError(f"{path}: question {number} (id {one.id}) has no text, or an answer without any")
    ids = {question.id for question in contents.questions}
    if len(ids) < len(contents.questions):
        raise UserError(f"{path}: {len(contents.questions) - len(ids)} questions have the id of another one")
    return contents


def _from_rows(rows: Sequence[Mapping[str, Any]]) -> Contents:
    """Questions that are a row each, with the documents that rows may have."""
    questions: list[Question] = []
    documents: list[tuple[str, str]] = []
    for number, row in enumerate(rows):
        if row.get("paragraphs") is not None:
            found, own = _musique(row)
        elif isinstance(row.get("context"), str):
            found, own = _squad_row(row)
        elif any(row.get(name) is not None for name in ("context", "supporting_facts", "supporting_titles")):
            found, own = _multi_hop(row)
        else:
            found, own = _open_question(number, row), []
        documents += own
        if found is not None:
            questions.append(found)
    return Contents(tuple(questions), _numbered(documents))


def _multi_hop(row: Mapping[str, Any]) -> tuple[Question, list[tuple[str, str]]]:
    """HotpotQA and 2WikiMultihopQA, whose contexts are [title, sentences]; titles may also stand by themselves.

    HotpotQA's sentences have the space between them, those of 2WikiMultihopQA do not.
    """
    contexts = _pairs(row.get("context") or (), "title", "sentences")
    ends = [one[-1:] + other[:1] for _, sentences in contexts for one, other in pairwise(sentences)]
    between = " " if all(end == end.strip() for end in ends) else ""
    documents = [(title, between.join(sentences).strip()) for title, sentences in contexts]
    facts = row.get("supporting_titles") or [
        title for title, _ in _pairs(row.get("supporting_facts") or (), "title", "sent_id")
    ]
    number = str(row["_id"] if "_id" in row else row["id"])
    kind = str(row.get("type", "question"))
    return Question(number, row["question"], (_text(row["answer"]),), _unique(facts), kind), documents


def _pairs(given: Any, one: str, other: str) -> list[tuple[Any, Any]]:
    """Pairs, which Parquet files have as two lists with names."""
    return (
        list(zip(given[one], given[other], strict=True)) if isinstance(given, Mapping) else [(a, b) for a, b in given]
    )


def _musique(row: Mapping[str, Any]) -> tuple[Question | None, list[tuple[str, str]]]:
    """MuSiQue: supports in the order of the hops, and the answer's aliases. None: a question that has no answer.

    Source: the data's own description, https://github.com/StonyBrookNLP/musique.
    """
    documents = [(one["title"], one["paragraph_text"].strip()) for one in row["paragraphs"]]
    if not row.get("answerable", True):
        return None, documents
    title_of = {one.get("idx", number): one["title"] for number, one in enumerate(row["paragraphs"])}
    hops = [hop["paragraph_support_idx"] for hop in row.get("question_decomposition") or ()]
    marked = [one["title"] for one in row["paragraphs"] if one.get("is_supporting")]
    supports = _unique([title_of[at] for at in hops if at is not None] or marked)
    gold = _unique(map(_text, (row["answer"], *(row.get("answer_aliases") or ()))))
    return Question(str(row["id"]), row["question"], gold, supports, f"{len(hops) or len(supports)} hops"), documents


def _squad_row(row: Mapping[str, Any]) -> tuple[Question | None, list[tuple[str, str]]]:
    """A question of SQuAD as dataset hubs have it. Paragraphs of an article share its title, so they are not told
    apart as supports, and a paragraph with the answer counts instead."""
    gold = _unique(map(_text, row["answers"]["text"]))
    document = (str(row.get("title", "")).replace("_", " "), row["context"])
    return (Question(str(row["id"]), row["question"], gold, (), "paragraph") if gold else None), [document]


def _squad(data: Mapping[str, Any]) -> Contents:
    """SQuAD and XQuAD. A paragraph is a document; its title is the article's, with its number there."""
    questions, documents = [], []
    for at, article in enumerate(data["data"]):
        name = str(article.get("title", f"Article {at + 1}")).replace("_", " ")
        for number, paragraph in enumerate(article["paragraphs"], start=1):
            title = f"{name}, paragraph {number}"
            documents.append((title, paragraph["context"]))
            for row in paragraph["qas"]:
                gold = _unique(_text(answer["text"]) for answer in row["answers"])
                if gold:  # SQuAD 2 has questions that cannot be answered
                    questions.append(Question(str(row["id"]), row["question"], gold, (title,), "paragraph"))
    return Contents(tuple(questions), _numbered(documents))


def _open_question(number: int, row: Mapping[str, Any]) -> Question:
    """A question without documents, in the form of Natural Questions as search agents train on it."""
    given = row.get("golden_answers")
    if given is None:
        given = row["answer"] if "reward_model" not in row else row["reward_model"]["ground_truth"]["target"]
    gold = _unique(_text(one) for one in ([given] if isinstance(given, str) else given))
    if not gold:
        raise ValueError(f"row {number} has no answer")
    name = str(row.get("id", f"question-{number}"))
    return Question(name, row["question"], gold, (), str(row.get("data_source", "open")))


def _text(answer: Any) -> str:
    if not isinstance(answer, str):
        raise ValueError(f"an answer is {answer!r}, not a text")
    return " ".join(answer.split())


def _unique(texts: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(text for text in texts if text))


def _numbered(documents: Iterable[tuple[str, str]]) -> tuple[Document, ...]:
    """Documents with ids; the same one of several questions once."""
    return tuple(Document(str(n), title, text) for n, (title, text) in enumerate(dict.fromkeys(documents)))
