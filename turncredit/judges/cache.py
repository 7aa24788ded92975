"""The cache of language models' answers: a table in `results/`, keyed by content and shared by all jobs.

The folder holds `answers-*.parquet` (the table "judge_cache", for anyone to query) and `journal.jsonl`, to which each
answer is appended when it arrives, so that a killed job loses no answer that was paid for. The last job to close the
cache moves the journal into Parquet.

Concurrent jobs are coordinated by byte-range locks on the journal, one for each window that has been requested: a job
that needs a window which another job has requested waits for that answer. The kernel drops a dead job's locks, so none
is ever left behind. SQLite is not used because label jobs run on several nodes: its fast mode (WAL) works on one
machine only, and in its other mode each answer would wait for a lock on the whole file.

On a network file system whose clients see each other's writes late, two nodes may request the same window; it is then
paid for twice and stored once.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import struct
from collections.abc import Iterable
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.judges.text import as_utf8

JOURNAL = "journal.jsonl"
#: Range of bytes in the journal that serve as locks, whatever is written there.
_IN_USE, _APPEND, _FIRST_KEY = 0, 1, 16
#: Parquet files below this size are merged into the next one, so that their number stays small.
_SMALL = 8 << 20
_NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}


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

        Half of a surrogate pair, which has no UTF-8, becomes `?`. A finish reason that is no text, and a count of
        tokens that is no whole number from 0 to 2^31 - 1, become None.
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


class Cache:
    """An open cache; a `with` block closes it. `folder` is created if it does not exist."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        self._answers: dict[str, Answer] = {}
        self._read_to = 0
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.folder / JOURNAL, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UserError(f"{folder}: the judge's cache cannot be opened there ({error.strerror})") from None
        self._lock(fcntl.F_RDLCK, _IN_USE, wait=True)

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def load(self, keys: Iterable[str]) -> None:
        """Read the answers to `keys` from the tables, and the whole journal."""
        wanted = pa.array(list(keys), pa.string())
        for path in self._parts():
            is_wanted = pc.is_in(tables.read(path, "judge_cache", columns=["key"]).column("key"), value_set=wanted)
            if pc.any(is_wanted).as_py():
                part = tables.read(path, "judge_cache", columns=["key", *Answer._fields]).filter(is_wanted)
                rows = zip(*(column.to_pylist() for column in part.columns), strict=True)
                self._answers.update((key, Answer(*rest)) for key, *rest in rows)
        self.refresh()

    def get(self, key: str) -> Answer | None:
        """The answer, if it was loaded, put here, or seen in the journal."""
        return self._answers.get(key)

    def forget(self, key: str) -> None:
        """Answer `key` no more from what was read so far: a later answer replaces the one that is stored."""
        self._answers.pop(key, None)

    def claim(self, key: str) -> bool:
        """Try to get the lock on `key`, over all processes. On success the caller must `release` it."""
        return self._lock(fcntl.F_WRLCK, _place(key), wait=False)

    def release(self, key: str) -> None:
        """Release the lock on `key`."""
        self._lock(fcntl.F_UNLCK, _place(key), wait=False)

    def refresh(self) -> None:
        """Read what any process has appended to the journal since the last time."""
        size = os.fstat(self._file).st_size
        if size > self._read_to:
            new = self._read(self._read_to, size)
            whole = new[: new.rfind(b"\n") + 1]
            self._read_to += len(whole)
            for row in _rows(whole):
                self._answers[row["key"]] = Answer(*(row[name] for name in Answer._fields))

    def put(self, key: str, question: Question, answer: Answer) -> None:
        """Store an answer permanently; it is in the file system when this returns."""
        line = json.dumps({"key": key, **question._asdict(), **answer._asdict()}, ensure_ascii=False).encode() + b"\n"
        self._lock(fcntl.F_WRLCK, _APPEND, wait=True)
        try:
            self.refresh()
            size = os.fstat(self._file).st_size
            if size > self._read_to:  # an incomplete line of a job that died while writing it
                line = b"\n" + line
            written = 0
            while written < len(line):
                written += os.write(self._file, line[written:])
            self._read_to = size + len(line)
        except OSError as error:
            raise UserError(f"{self.folder / JOURNAL}: cannot be written ({error.strerror})") from None
        finally:
            self._lock(fcntl.F_UNLCK, _APPEND, wait=False)
        self._answers[key] = answer

    def close(self) -> None:
        """Close the cache; the last process to do so turns the journal into a table."""
        try:
            if self._lock(fcntl.F_WRLCK, _IN_USE, wait=False):
                self._compact()
        finally:
            os.close(self._file)

    def _compact(self) -> None:
        rows = {row["key"]: row for row in _rows(self._read(0, os.fstat(self._file).st_size))}
        if not rows:
            return
        fields = tables.schema("judge_cache")
        fresh = pa.Table.from_pylist(list(rows.values()), schema=fields)
        small = [path for path in self._parts() if path.stat().st_size < _SMALL]
        old = [tables.read(path, "judge_cache", columns=fields.names).cast(fields) for path in small]
        kept = pa.concat_tables([fields.empty_table(), *old])
        table = pa.concat_tables([kept.filter(pc.invert(pc.is_in(kept["key"], value_set=fresh["key"]))), fresh])
        name = hashlib.sha256("".join(sorted(table.column("key").to_pylist())).encode()).hexdigest()[:16]
        path = self.folder / f"answers-{name}.parquet"
        tables.write(table, path, "judge_cache", provenance.record("judge_cache"))
        os.ftruncate(self._file, 0)
        for part in small:
            if part != path:
                part.unlink()

    def _read(self, start: int, end: int) -> bytes:
        """The journal's bytes from `start` to `end`. One call of Linux reads 2 GiB at most."""
        parts = []
        while start < end and (part := os.pread(self._file, end - start, start)):
            parts.append(part)
            start += len(part)
        return b"".join(parts)

    def _parts(self) -> list[Path]:
        return sorted(self.folder.glob("answers-*.parquet"))

    def _lock(self, kind: int, place: int, *, wait: bool) -> bool:
        """Set or drop (F_UNLCK) a lock on one byte. False: another process holds it."""
        try:
            if hasattr(fcntl, "F_OFD_SETLK"):
                # Linux: locks belong to the open file, not to the process, so two caches in one process are kept apart.
                how = fcntl.F_OFD_SETLKW if wait else fcntl.F_OFD_SETLK
                fcntl.fcntl(self._file, how, struct.pack("hhqqi4x", kind, os.SEEK_SET, place, 1, 0))
            else:
                how = {fcntl.F_RDLCK: fcntl.LOCK_SH, fcntl.F_WRLCK: fcntl.LOCK_EX, fcntl.F_UNLCK: fcntl.LOCK_UN}[kind]
                fcntl.lockf(self._file, how if wait or kind == fcntl.F_UNLCK else how | fcntl.LOCK_NB, 1, place)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            if error.errno in _NO_LOCKS:
                raise UserError(
                    f"{self.folder}: this file system has no locks ({error.strerror}); keep the judge's cache elsewhere"
                ) from None
            raise
        return True


def _place(key: str) -> int:
    return _FIRST_KEY + int(key[:15], 16)


def _rows(lines: bytes) -> list[dict[str, Any]]:
    """The complete answers among the lines, each as `Answer.of` has it; any other line is skipped.

    Other lines are those of a job that died while it wrote one.
    """
    rows = []
    for line in lines.splitlines():
        try:
            row = json.loads(line)
            texts = {name: row[name] for name in ("key", *Question._fields)}
            answer = Answer.of(*(row[name] for name in Answer._fields))
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
            continue
        if all(isinstance(text, str) for text in texts.values()):
            rows.append({**texts, **answer._asdict()})
    return rows


def _count(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 2**31 else None
