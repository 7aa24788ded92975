"""The cache of language models' answers: a folder in `results/`, keyed by content and shared by all jobs.

    answers.sqlite       new answers, committed as they arrive
    answers-*.parquet    the others (the table "judge_cache"), for anyone to query

A job that closes the cache moves the new answers to Parquet. A killed job loses the requests in flight and what arrived
during the last commit.

Several jobs may use the cache at once, also on several nodes. SQLite uses its rollback journal, which works on a
network file system with POSIX locks; its other mode (WAL) works on one machine only. Jobs do not wait for each other's
answers. A job sees the others' when it commits its own, and it asks in a random order. So two jobs with the same
questions pay for a few of them twice; the later answer is stored.
"""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.judges.text import as_utf8

DATABASE = "answers.sqlite"
#: New answers as earlier versions stored them, one JSON object a line.
OLD_JOURNAL = "journal.jsonl"
#: Seconds to wait while other jobs commit.
_BUSY = 600.0
#: Parquet files below this size are merged into the next one, so that their number stays small.
_SMALL = 8 << 20


class Answer(NamedTuple):
    """A server's answer and its cost."""

    answer: str
    finish_reason: str | None
    tokens_in: int | None
    tokens_out: int | None
    seconds: float

    @classmethod
    def of(cls, answer: str, finish_reason: Any, tokens_in: Any, tokens_out: Any, seconds: float) -> Answer:
        """What a server sent, as the cache's table can hold it.

        Half of a surrogate pair, which has no UTF-8, becomes `?`. A finish reason that is not text becomes None. So
        does a number of tokens that is not an integer from 0 to 2^31 - 1.
        """
        reason = as_utf8(finish_reason) if isinstance(finish_reason, str) else None
        return cls(as_utf8(answer), reason, _count(tokens_in), _count(tokens_out), float(seconds))


class Question(NamedTuple):
    """Everything that an answer depends on; this includes the model's name, but not the server's address."""

    model: str
    ask: str
    prompt_version: str
    prompt: str
    decoding: str

    def key(self) -> str:
        """SHA-256 of all of it, in hexadecimal digits."""
        return hashlib.sha256(json.dumps(self, ensure_ascii=False).encode()).hexdigest()


_COLUMNS = ("key", *Question._fields, *Answer._fields)
_INSERT = f"INSERT OR REPLACE INTO answers ({', '.join(_COLUMNS)}) VALUES ({', '.join('?' * len(_COLUMNS))})"


class Cache:
    """An open cache; a `with` block closes it. `folder` is created if it does not exist.

    uncommitted     rows that were put and are not yet stored
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._answers: dict[str, Answer] = {}
        self._last_read = 0
        self.uncommitted: list[tuple[Any, ...]] = []
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._database = sqlite3.connect(
                self.folder / DATABASE, timeout=_BUSY, isolation_level=None, check_same_thread=False
            )
            self._database.execute("PRAGMA auto_vacuum = FULL")  # the file shrinks when its rows are moved
        except (OSError, sqlite3.Error) as error:
            raise UserError(f"{folder}: the judge's cache cannot be opened there ({error})") from None
        with self._transaction():
            self._database.execute(
                "CREATE TABLE IF NOT EXISTS answers "
                f"(number INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT UNIQUE, {', '.join(_COLUMNS[1:])})"
            )
        self._import_old_journal()

    def __enter__(self) -> Cache:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, keys: Iterable[str]) -> None:
        """Read the answers to `keys` from the Parquet files, and all new answers."""
        wanted = pa.array(list(keys), pa.string())
        with self._transaction():  # so that no job moves answers in the meantime
            for path in self._parts():
                is_wanted = pc.is_in(tables.read(path, "judge_cache", columns=["key"]).column("key"), value_set=wanted)
                if pc.any(is_wanted).as_py():
                    part = tables.read(path, "judge_cache", columns=["key", *Answer._fields]).filter(is_wanted)
                    rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
                    self._answers.update((key, Answer(*rest)) for key, *rest in rows)
            self._read_new()

    def get(self, key: str) -> Answer | None:
        """The answer, if it was loaded, put here, or there at the last commit."""
        return self._answers.get(key)

    def forget(self, key: str) -> None:
        """Do not answer `key` from what was read so far: a later answer replaces the stored one."""
        self._answers.pop(key, None)

    def put(self, key: str, question: Question, answer: Answer) -> None:
        """Add an answer, which `commit` and `close` store."""
        self._answers[key] = answer
        self.uncommitted.append((key, *question, *answer))

    def commit(self) -> None:
        """Store what was put; more may be put meanwhile, by another thread."""
        rows = self.uncommitted[:]
        with self._transaction():
            self._database.executemany(_INSERT, rows)
            self._read_new()
        del self.uncommitted[: len(rows)]

    def close(self) -> None:
        """Commit, and move the new answers of all jobs to Parquet."""
        try:
            self.commit()
            with self._transaction():
                self._move_to_parquet()
        finally:
            self._database.close()

    def _read_new(self) -> None:
        """Read what any job has committed since the last time."""
        query = f"SELECT number, key, {', '.join(Answer._fields)} FROM answers WHERE number > ? ORDER BY number"
        for number, key, *rest in self._database.execute(query, (self._last_read,)):
            self._answers[key], self._last_read = Answer(*rest), number

    def _move_to_parquet(self) -> None:
        rows = self._database.execute(f"SELECT {', '.join(_COLUMNS)} FROM answers ORDER BY number").fetchall()
        if not rows:
            return
        fields = tables.schema("judge_cache")
        fresh = pa.table(dict(zip(_COLUMNS, zip(*rows, strict=True), strict=True)), schema=fields)
        small = [path for path in self._parts() if path.stat().st_size < _SMALL]
        old = [tables.read(path, "judge_cache", columns=fields.names).cast(fields) for path in small]
        table = pa.concat_tables([*old, fresh])
        _, last = np.unique(table.column("key").to_numpy()[::-1], return_index=True)
        table = table.take(np.sort(table.num_rows - 1 - last))
        name = hashlib.sha256("".join(sorted(table.column("key").to_pylist())).encode()).hexdigest()[:16]
        path = self.folder / f"answers-{name}.parquet"
        tables.write(table, path, "judge_cache", provenance.record("judge_cache"))
        for part in small:
            if part != path:
                part.unlink()
        self._database.execute("DELETE FROM answers")

    def _import_old_journal(self) -> None:
        journal = self.folder / OLD_JOURNAL
        if journal.exists():
            with self._transaction():
                self._database.executemany(_INSERT, _rows(journal.read_bytes()))
            journal.unlink(missing_ok=True)

    def _parts(self) -> list[Path]:
        """The Parquet files, the oldest first: of two answers to a question the later one counts."""
        return sorted(self.folder.glob("answers-*.parquet"), key=lambda path: path.stat().st_mtime_ns)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """A transaction during which no other job has one."""
        try:
            with self._database:
                self._database.execute("BEGIN IMMEDIATE")
                yield
        except sqlite3.Error as error:
            raise UserError(
                f"{self.folder / DATABASE}: the judge's answers cannot be stored there ({error}); if the file is "
                "damaged, move it away: older answers are in the Parquet files beside it"
            ) from None


def _rows(lines: bytes) -> Iterator[tuple[Any, ...]]:
    """The complete answers of an old journal. A job that was killed left a part of a line, which is skipped."""
    for line in lines.splitlines():
        try:
            row = json.loads(line)
            texts = [row[name] for name in ("key", *Question._fields)]
            answer = Answer.of(*(row[name] for name in Answer._fields))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
        if all(isinstance(text, str) for text in texts):
            yield (*texts, *answer)


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
