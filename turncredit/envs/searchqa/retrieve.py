"""Documents, and the two ways of finding them: BM25 in this process, or a server.

A retriever has `search(query) -> documents`, the best first. A server that fails is an error of the job, and never an
empty result: a policy must not be blamed for it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from http.client import HTTPException
from typing import Any, NamedTuple, Protocol
from urllib.error import HTTPError
from urllib.request import Request

from tenacity import Retrying, retry_if_exception, stop_after_attempt, wait_random_exponential

from turncredit.data.counts import number_of
from turncredit.data.http_calls import body_of
from turncredit.envs.bm25 import Index
from turncredit.errors import OutsideFault, UserError

_WORD = re.compile(r"[^\W_]+")
_REMEMBERED = 4096
_FIRST_WAIT, _LONGEST_WAIT = 0.2, 10.0


class Document(NamedTuple):
    """A document that can be found. `id` is unique in its corpus."""

    id: str
    title: str
    text: str


class Retriever(Protocol):
    """What the environment needs of a retriever."""

    def search(self, query: str) -> tuple[Document, ...]:
        """At most `topk` documents, the best first."""
        ...


class Bm25:
    """BM25 over titles and texts, no stop words left out. Ties are in the corpus's order."""

    def __init__(self, documents: Sequence[Document], topk: int):
        self.documents, self.topk = tuple(documents), topk
        self.search = lru_cache(_REMEMBERED)(self._search)
        """The documents with most of the query's words; none if it has no word of any."""

    @cached_property
    def _index(self) -> Index:
        return Index([f"{one.title} {one.text}" for one in self.documents], _words, self.topk)

    def _search(self, query: str) -> tuple[Document, ...]:
        return tuple(self.documents[n] for n in self._index.search(query))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.lower())


class Remote:
    """A server: POST {"queries": [...], "topk": n, "return_scores": true}, as Search-R1's retrieval servers take it.

    It answers {"result": [[{"document": {"id": ..., "contents": "\\"title\\"\\ntext"}, "score": ...}, ...], ...]}, a
    list for each query; a document may also have `title` and `text`, or come without the shell around it. The last
    `_REMEMBERED` queries are not sent again.
    """

    def __init__(self, url: str, topk: int, timeout: float, attempts: int):
        self.url, self.topk, self.timeout, self.attempts = url, topk, timeout, attempts
        self._found: dict[str, tuple[Document, ...]] = {}

    def search(self, query: str) -> tuple[Document, ...]:
        """The server's documents. Raises UserError, naming it, where it gives none after all attempts."""
        return self.search_all([query])[0]

    def search_all(self, queries: Sequence[str]) -> list[tuple[Document, ...]]:
        """`search` for several queries, of which the new ones share a request."""
        new = [query for query in dict.fromkeys(queries) if query not in self._found]
        if new:
            self._found.update(zip(new, self._read(self._ask(new), len(new)), strict=True))
        found = [self._found[query] for query in queries]
        for query in list(self._found)[: max(0, len(self._found) - _REMEMBERED)]:
            del self._found[query]
        return found

    def _ask(self, queries: Sequence[str]) -> Any:
        body = json.dumps({"queries": list(queries), "topk": self.topk, "return_scores": True}).encode()
        request = Request(self.url, body, {"Content-Type": "application/json"}, method="POST")
        retrying = Retrying(
            stop=stop_after_attempt(self.attempts),
            wait=wait_random_exponential(_FIRST_WAIT, _LONGEST_WAIT),
            retry=retry_if_exception(_may_pass),
            reraise=True,
        )
        kind: type[UserError] = OutsideFault
        try:
            return retrying(self._once, request)
        except TimeoutError:
            why = f"gave no answer within {self.timeout:g} s (env.searchqa.timeout)"
        except HTTPError as error:
            why = f"answered with status {error.code} {error.reason}"
            kind = OutsideFault if _may_pass(error) else UserError
        except (json.JSONDecodeError, UnicodeDecodeError):
            why, kind = "did not answer with JSON", UserError
        except (OSError, HTTPException) as error:
            why = f"cannot be reached ({_reason(error)})"
        tried = retrying.statistics["attempt_number"]
        raise kind(
            f"retriever {self.url}: {why}, {number_of(tried, 'attempt')}; start it or correct "
            "env.searchqa.url, and run again"
        )

    def _once(self, request: Request) -> Any:
        return json.loads(body_of(request, self.timeout))

    def _read(self, answer: Any, count: int) -> list[tuple[Document, ...]]:
        try:
            lists = [answer["result"][number] for number in range(count)]
            return [tuple(document_of(row.get("document", row)) for row in rows[: self.topk]) for rows in lists]
        except (KeyError, IndexError, TypeError, AttributeError):
            shown = json.dumps(answer)
            shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
            asked = f"a list of documents for each of {count} queries" if count > 1 else "a list of documents"
            raise UserError(
                f"retriever {self.url}: answered {shown}, not {{'result': [[{{'document': {{...}}}}, ...]]}} with "
                f"{asked}; is this the address of its /retrieve (env.searchqa.url)?"
            ) from None


def _may_pass(error: BaseException) -> bool:
    """Whether to send a request again: not where the server refuses it as wrong."""
    return not (isinstance(error, HTTPError) and error.code < 500 and error.code not in (408, 429))


def _reason(error: BaseException) -> str:
    return " ".join(str(getattr(error, "reason", error)).split()) or type(error).__name__


def document_of(row: Mapping[str, Any]) -> Document:
    """A document in one of its forms: `title` and `text`, or Search-R1's `contents`.

    Those are the title in quotes, a line break, the text. A missing id or title is empty. Raises KeyError and TypeError
    for any other row.
    """
    name = "text" if "text" in row else "contents"
    text, title = row[name], row.get("title")
    if not isinstance(text, str) or not isinstance(title, str | None):
        raise TypeError(f"{name} and title must be texts")
    if name == "contents":
        title, _, text = text.partition("\n")
        title = title.strip().strip('"')
    return Document(str(row.get("id", "")), title or "", text)
