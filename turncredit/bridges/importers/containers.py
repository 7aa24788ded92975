"""Records in any container: JSON lines, a JSON array, one or several objects over many lines, Parquet, a ZIP archive.

The first bytes decide the container, never the ending: files may be compressed (gzip, bzip2, xz, Zstandard), begin with
a byte order mark, or be UTF-16. Records are read one at a time, and each has a bound (`LONGEST`); what is damaged, too
long or no object is a skip of the report. An array or a file whose objects are the messages of one conversation is one
record.
"""

from __future__ import annotations

import bz2
import codecs
import gzip
import io
import json
import lzma
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa

from turncredit.bridges.importers.base import Record, Report
from turncredit.bridges.importers.message import is_message
from turncredit.data import json_lines
from turncredit.data.json_lines import Skip, opened, parquet_rows, parsed, skip_rest
from turncredit.errors import UserError

#: A document of one object, and a member of an archive, may be longer than a line.
LONGEST_DOCUMENT = 4 * json_lines.LONGEST
#: What all members of an archive may have together, once they are decompressed, and how many times its own size.
MOST_IN_ARCHIVE = 16 * 2**30
MOST_TIMES = 1000
#: Names of files that a folder may hold beside rollouts: read if they end so.
ENDINGS = (".jsonl", ".ndjson", ".json", ".parquet", ".traj", ".eval", ".zip", ".gz", ".bz2", ".xz", ".zst")
CHUNK = 2**20
#: the number of this compression in ZIP archives
ZSTANDARD = 93


def _zstandard(stream: Any) -> Any:
    """A stream of Zstandard, which the standard library of Python 3.13 does not know: Arrow does."""
    return pa.CompressedInputStream(pa.PythonFile(stream, "r"), "zstd")


_COMPRESSED: dict[bytes, Any] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\x00": lzma.open,
    b"\x28\xb5\x2f\xfd": _zstandard,
}
#: what stands in every tar archive, and where
TAR, TAR_AT = b"ustar", 257
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_DAMAGED = (EOFError, OSError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, NotImplementedError, RuntimeError)


def records(path: Path, report: Report, name: str = "") -> Iterator[Record]:
    """`file:place` and record of each object in a file, which is called `name`, or its path."""
    name = name or str(path)
    with opened(path) as handle:
        start = handle.peek(8)[:8] if isinstance(handle, io.BufferedReader) else b""
        if start.startswith(b"PAR1"):
            for where, row in parquet_rows(path, name):
                yield where, {column: without_nulls(value) for column, value in row.items()}
        elif start.startswith(b"PK\x03\x04") or start.startswith(b"PK\x05\x06"):
            yield from _members(path, report, name)
        else:
            unpack = next((open_ for magic, open_ in _COMPRESSED.items() if start.startswith(magic)), None)
            stream: Any = unpack(handle) if unpack else handle
            try:
                yield from _objects(stream, name, report, LONGEST_DOCUMENT)
            except _DAMAGED as error:
                if unpack is None:
                    raise
                _lost(report, name, "compressed data that end in the middle or are damaged", str(error))


def without_nulls(value: Any) -> Any:
    """A value of Parquet without the fields that other rows alone have: in a column of objects, they are null here."""
    if isinstance(value, dict):
        return {name: without_nulls(inner) for name, inner in value.items() if inner is not None}
    if isinstance(value, list):
        return [without_nulls(inner) for inner in value]
    return value


def _lost(report: Report, where: str, reason: str, detail: str) -> None:
    """Count one record of which nothing is left."""
    report.records += 1
    report.skip(where, reason, " ".join(detail.split())[:80], unattributed=True)


def _members(path: Path, report: Report, name: str) -> Iterator[Record]:
    """The records of a ZIP archive's members; of a log of Inspect, of its samples alone."""
    try:
        archive = zipfile.ZipFile(path)
    except _DAMAGED as error:
        _lost(report, name, "a ZIP archive that ends in the middle or is damaged", str(error))
        return
    with archive:
        members = [member for member in archive.infolist() if not member.is_dir()]
        total = sum(member.file_size for member in members)
        if total > MOST_IN_ARCHIVE or total > MOST_TIMES * max(path.stat().st_size, 2**20):
            raise UserError(
                f"{name}: a ZIP archive of {total // 2**20} MiB once it is unpacked, {path.stat().st_size} bytes "
                f"before; the limits are {MOST_IN_ARCHIVE // 2**30} GiB and {MOST_TIMES} times. Unpack it yourself if "
                "you trust it"
            )
        samples = [member for member in members if member.filename.startswith("samples/")]
        if not samples and any(member.filename in ("header.json", "_journal/start.json") for member in members):
            raise UserError(
                f"{name}: a log of Inspect without samples: none had ended, or they were not logged; give another log"
            )
        known = [member for member in members if Path(member.filename).suffix in ENDINGS]
        for member in samples or known:
            yield from _member(archive, member, f"{name}!{member.filename}", report)


def _member(archive: zipfile.ZipFile, member: zipfile.ZipInfo, where: str, report: Report) -> Iterator[Record]:
    if member.file_size > LONGEST_DOCUMENT and not member.filename.endswith((".jsonl", ".ndjson")):
        _lost(report, where, f"a member larger than {LONGEST_DOCUMENT // 2**20} MiB", str(member.file_size))
        return
    try:
        with _unpacked(archive, member) as handle:
            yield from _objects(handle, where, report, LONGEST_DOCUMENT)
    except _DAMAGED as error:
        _lost(report, where, "a member of a ZIP archive that is damaged or cannot be decompressed", str(error))


def _unpacked(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> Any:
    """A member to read; Inspect compresses with Zstandard."""
    if member.compress_type != ZSTANDARD or archive.filename is None:
        return io.BufferedReader(archive.open(member))
    with Path(archive.filename).open("rb") as file:
        file.seek(member.header_offset + 26)
        lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
        file.seek(lengths, io.SEEK_CUR)  # its name and the extra field
        packed = file.read(min(member.compress_size, LONGEST_DOCUMENT))
    return io.BufferedReader(_zstandard(io.BytesIO(packed)))


def _objects(stream: Any, where: str, report: Report, longest: int) -> Iterator[Record]:
    """The records of an open file of JSON, whatever its layout."""
    stream = stream if hasattr(stream, "peek") else io.BufferedReader(stream)
    start = stream.peek(TAR_AT + len(TAR))
    if start[TAR_AT:].startswith(TAR):
        raise UserError(f"{where}: a tar archive; unpack it, and give the folder")
    if where.lower().endswith((".csv", ".tsv")):
        raise UserError(f"{where}: a table as text; write it as Parquet or JSON lines, a record for each turn")
    mark = next((mark for mark in _MARKS if start.startswith(mark)), b"")
    stream.read(len(mark))
    if _MARKS.get(mark, "utf-8") != "utf-8":
        stream = io.BufferedReader(_Recoded(stream, _MARKS[mark]))
    first = _first_line(stream)
    if not first.strip():
        return
    if _is_one_document(first, stream):
        yield from _document(_Rest(first, stream), where, report, longest)
    else:
        yield from _lines(first, stream, where, report)


def _first_line(stream: BinaryIO) -> bytes:
    """The first line that is not empty, with the empty ones before it."""
    before = b""
    while line := stream.readline(json_lines.LONGEST + 1):
        before += line
        if line.strip() or len(before) > json_lines.LONGEST:
            break
    return before


def _is_one_document(first: bytes, stream: Any) -> bool:
    """Whether the file is an array, or objects over several lines, and not one value a line."""
    text = first.strip()
    if text[:1] not in (b"[", b"{") or (text[:1] == b"{" and len(first) > json_lines.LONGEST):
        return False
    following = stream.peek(CHUNK).strip()
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        # A value that goes on in the lines below, or one that is cut off before others?
        return text[:1] == b"[" or text == b"{" or not following.startswith(b"{")
    return isinstance(value, list) and not following


class _Recoded(io.RawIOBase):
    """A stream in UTF-16 as one in UTF-8."""

    def __init__(self, stream: Any, encoding: str) -> None:
        self._stream, self._left = stream, b""
        self._decoder = codecs.getincrementaldecoder(encoding)(errors="replace")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = self._stream.read(CHUNK)
            self._left = self._decoder.decode(chunk, final=not chunk).encode()
            if not chunk:
                break
        part, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(part)] = part
        return len(part)


class _Rest:
    """A stream of text whose first line was read already."""

    def __init__(self, first: bytes, stream: Any) -> None:
        self._first, self._stream = first, stream
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self.is_array = False

    def read(self, size: int) -> str:
        """The next characters; empty at the end."""
        while True:
            chunk = self._first or self._stream.read(size)
            self._first = b""
            text = self._decoder.decode(chunk, final=not chunk)
            if text or not chunk:
                return text


def _lines(first: bytes, stream: Any, where: str, report: Report) -> Iterator[Record]:
    number = first.count(b"\n") or 1
    line = first
    while line:
        whole = line.endswith(b"\n")
        if not whole and len(line) > json_lines.LONGEST:
            skip_rest(stream)
            _lost(report, f"{where}:{number}", json_lines.too_long(), "")
        elif line.strip():
            yield from _line(line, f"{where}:{number}", report, cut=not whole)
        line = stream.readline(json_lines.LONGEST + 1)
        number += 1


def _line(line: bytes, where: str, report: Report, *, cut: bool) -> Iterator[Record]:
    try:
        value = parsed(line.lstrip(), cut=cut, anything=True)
    except Skip as skip:
        report.records += 1
        report.skip(where, str(skip), skip.detail, unattributed=True)
        return
    record = as_record(value)
    if record is None:
        _lost(report, where, "not a JSON object", type(value).__name__)
    else:
        yield where, record


def as_record(value: Any) -> dict[str, Any] | None:
    """A record from a value of JSON: an object, or a list of messages as `{"messages": [...]}`; None for another."""
    if isinstance(value, dict):
        return value
    if isinstance(value, list) and value and all(isinstance(item, dict) for item in value) and belongs(value[0]):
        return {conversation_key(value[0]): value}
    return None


def belongs(item: Any) -> bool:
    """Whether an item of an array is a message or an event, and not a record of its own."""
    return isinstance(item, dict) and (is_message(item) or is_event(item)) and "messages" not in item


def is_event(item: Mapping[str, Any]) -> bool:
    """Whether an item is an event of OpenHands: an action or an observation with its source."""
    return "source" in item and ("action" in item or "observation" in item or "kind" in item) and "reward" not in item


def conversation_key(item: dict[str, Any]) -> str:
    """The field under which a bare list of items becomes a record."""
    return "history" if is_event(item) else "messages"


def _document(text: _Rest, where: str, report: Report, longest: int) -> Iterator[Record]:
    """The objects of an array, or of a file of objects over several lines; messages of one conversation as one."""
    conversation: list[Any] = []
    size = 0
    for number, (value, length) in enumerate(_values(text, where, report, longest)):
        if conversation or (number == 0 and belongs(value)):
            conversation.append(value)
            size += length
            if size > longest:
                _lost(report, where, f"a conversation longer than {longest // 2**20} MiB", "")
                return
            continue
        place = f"{where}:{number}" if number or text.is_array else where
        record = as_record(value)
        if record is None:
            _lost(report, place, "not a JSON object", type(value).__name__)
        else:
            yield place, record
    if conversation:
        yield where, {conversation_key(conversation[0]): conversation}


def _values(text: _Rest, where: str, report: Report, longest: int) -> Iterator[tuple[Any, int]]:
    """The values of an array, or those that stand one after the other, with the characters that each has."""
    scanner = _Scanner(text, longest)
    text.is_array = scanner.opens()
    number = 0
    while True:
        try:
            found = scanner.next()
        except Skip as skip:
            _lost(report, f"{where}:{number}", str(skip), skip.detail)
            if scanner.stuck:
                return
            number += 1
            continue
        if found is None:
            return
        yield found
        number += 1


class _Scanner:
    """Reads values of JSON from a stream, a buffer at a time."""

    def __init__(self, text: _Rest, longest: int) -> None:
        self._text, self._longest = text, longest
        self._buffer, self._at, self._ended = "", 0, False
        self._decoder = json.JSONDecoder()
        self._in_array = False
        #: whether a value has no end, so that what follows cannot be read
        self.stuck = False

    def opens(self) -> bool:
        """Whether the values are in an array; its bracket is read."""
        is_array = self._skip_to_value() == "["
        self._at += is_array
        self._in_array = is_array
        return is_array

    def next(self) -> tuple[Any, int] | None:
        """The next value and its length in characters; None at the end. Raises Skip where there is no value."""
        first = self._skip_to_value()
        if first == "]" and self._in_array:
            return None
        if not first:
            if self._in_array:
                self.stuck = True
                raise Skip("an array that ends in the middle")
            return None
        self.stuck = True
        while True:
            try:
                value, end = self._decoder.raw_decode(self._buffer, self._at)
            except RecursionError:
                raise Skip("JSON nested too deeply") from None
            except ValueError as error:
                if self._more():
                    continue
                reason = "JSON that ends in the middle" if self._ended else self._too_long
                place = getattr(error, "pos", 0)
                broken = self._ended and place < len(self._buffer) - 1 and "Unterminated" not in str(error)
                raise Skip("not JSON" if broken else reason, str(error)[:80]) from None
            if end < len(self._buffer) or isinstance(value, dict | list) or not self._more():
                length, self._at = end - self._at, end
                self.stuck = False
                if length > self._longest:
                    raise Skip(self._too_long)
                return value, length

    @property
    def _too_long(self) -> str:
        return f"a record longer than {self._longest // 2**20} MiB"

    def _skip_to_value(self) -> str:
        """The first character of what comes next; empty at the end."""
        while True:
            while self._at < len(self._buffer) and self._buffer[self._at] in " \t\r\n,\ufeff":
                self._at += 1
            if self._at < len(self._buffer):
                return self._buffer[self._at]
            if not self._more():
                return ""

    def _more(self) -> bool:
        """Read on, twice as much each time a value does not end; False at the end and beyond the longest value."""
        left = len(self._buffer) - self._at
        if self._ended or left > self._longest:
            return False
        part = self._text.read(max(CHUNK, left))
        self._ended = not part
        self._buffer, self._at = self._buffer[self._at :] + part, 0
        return bool(part)
