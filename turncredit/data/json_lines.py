"""JSON lines, one at a time, of any length up to a bound; and Parquet rows likewise."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Protocol

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic_core import from_json

from turncredit.data.columns import plain
from turncredit.errors import UserError

#: A longer line is skipped, unread: one is in memory as bytes, as text and as objects, ten times its size.
LONGEST = 32 * 2**20
#: Rows of a Parquet file that are in memory at once.
ROWS = 64


class Skip(Exception):
    """A record that is not imported; the message is the reason, `detail` what differs between records of a kind."""

    def __init__(self, reason: str, detail: str = "") -> None:
        super().__init__(reason)
        self.detail = detail


class Report(Protocol):
    """What counts the records of a file: an importer's report."""

    records: int

    def skip(self, where: str, reason: str, detail: str = "", *, unattributed: bool = False) -> None:
        """Count a record that is not imported."""


def json_lines(path: Path, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """`file:line` and object of each line; a line that is no JSON object is skipped by name, an empty one ignored."""
    for where, record in _records(path):
        if isinstance(record, Skip):
            report.records += 1
            report.skip(where, str(record), record.detail, unattributed=True)
        else:
            yield where, record


def too_long() -> str:
    """Why a line is skipped that is longer than `LONGEST`, and what to do."""
    return f"a line longer than {LONGEST // 2**20} MiB (write it without images and other large fields, or as Parquet)"


def _records(path: Path) -> Iterator[tuple[str, dict[str, Any] | Skip]]:
    """`file:line` and object of each line that is not empty, or why it is none."""
    with opened(path) as handle:
        number = 0
        while line := handle.readline(LONGEST + 1):  # with its end
            number += 1
            where = f"{path}:{number}"
            whole = line.endswith(b"\n")
            if not whole and len(line) > LONGEST:
                skip_rest(handle)
                yield where, Skip(too_long())
            elif line.strip():
                try:
                    yield where, parsed(line, cut=not whole)
                except Skip as skip:
                    yield where, skip


def json_table(path: Path) -> pa.Table:
    """A file of JSON lines, a row each, with the types of their values. A field that a line lacks is null.

    Raises UserError for a line that is not a JSON object, a field with values of two types, and a file without a line.
    """
    rows = []
    for where, record in _records(path):
        if isinstance(record, Skip):
            place = f"{where}: {record.detail}" if record.detail else where
            raise UserError(f"{path}: cannot be read as one JSON object per line: {record} ({place})")
        rows.append(record)
    if not rows:
        raise UserError(f"{path}: there is no line in this file; it needs one JSON object per line")
    columns = {}
    for name in dict.fromkeys(name for row in rows for name in row):
        try:
            columns[name] = pa.array([row.get(name) for row in rows])
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError) as error:
            raise UserError(f"{path}: the values of '{name}' have no common type: {error}") from None
    return pa.table(columns)


def parsed(line: bytes, *, cut: bool, anything: bool = False) -> Any:
    """The JSON object in `line`, or any value; `cut`: the line has no end. Raises Skip."""
    try:
        value = from_json(line, cache_strings="keys")
    except ValueError:
        value = _by_json(line, cut)
    if not anything and not isinstance(value, dict):
        raise Skip("not a JSON object", type(value).__name__)
    return value


def _by_json(line: bytes, cut: bool) -> Any:
    """The value by the standard library: slower, but it says what is wrong, and reads values nested deeper."""
    try:
        text = line.decode()
    except UnicodeDecodeError as error:
        raise Skip("not UTF-8", f"byte {error.start}") from None
    try:
        value = json.loads(text)
        if "\\u" in text:  # half of a pair of escapes is valid JSON and no text
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Skip("text with half of a surrogate pair") from None
    except RecursionError:
        raise Skip("JSON nested too deeply") from None
    except ValueError as error:
        ends = cut and text.lstrip()[:1] in ("{", "[")
        raise Skip("JSON that ends in the middle" if ends else "not JSON", str(error)[:80]) from None
    return value


def parquet_rows(path: Path, name: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """`file:row` and values of each row, a few at a time. Raises UserError for what is no Parquet file.

    name   what the file is called; its path by default
    """
    number, name = 0, name or str(path)
    try:
        with pq.ParquetFile(path) as file:
            for batch in file.iter_batches(batch_size=ROWS, use_threads=False):
                for row in plain(pa.Table.from_batches([batch]), name).to_pylist():
                    yield f"{name}:{number}", row
                    number += 1
    except (pa.ArrowInvalid, OSError) as error:
        raise UserError(f"{name}: not a readable Parquet file ({str(error).splitlines()[0]})") from None


def opened(path: Path) -> BinaryIO:
    """The file, to read. Raises UserError where it cannot be."""
    try:
        return path.open("rb")
    except OSError as error:
        raise UserError(f"{path}: {error.strerror}; give a file that can be read") from None


def skip_rest(handle: BinaryIO) -> None:
    """Go to the end of a line, however long it is."""
    while (part := handle.readline(LONGEST)) and not part.endswith(b"\n"):
        pass
