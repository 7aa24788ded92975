"""Records near every format, for fuzzing: a record as its project writes it, with values in it replaced or gone."""

from __future__ import annotations

import json
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
from hypothesis import strategies as st

from tests.importers import files

LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**70), 2**70),
    st.floats(),
    st.text(max_size=8),
    st.sampled_from(["assistant", "user", "tool", "text", "tool_use", "tool_result", "function_call", "0", "1", "nan"]),
)
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "role",
                    "content",
                    "type",
                    "text",
                    "id",
                    "name",
                    "arguments",
                    "messages",
                    "tool_calls",
                    "reward",
                    "turn",
                    "function",
                ]
            )
            | st.text(max_size=3),
            inner,
            max_size=4,
        )
    ),
    max_leaves=6,
)


def originals() -> dict[str, dict[str, Any]]:
    """A record of each format, as `tests/importers/files.py` writes it."""
    records = {}
    for name, write in files.WRITERS.items():
        with tempfile.TemporaryDirectory() as folder:
            path = write(Path(folder))
            records[name] = _first(path)
    return records


def _first(path: Path) -> dict[str, Any]:
    if path.is_dir():
        path = sorted(path.iterdir())[0]
    if path.suffix == ".parquet":
        row: dict[str, Any] = pq.read_table(path).to_pylist()[0]
        return row
    if path.suffix == ".eval":
        with zipfile.ZipFile(path) as archive:
            sample: dict[str, Any] = json.loads(archive.read("samples/s0_epoch_1.json"))
            return sample
    text = path.read_text()
    value = json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)
    first: dict[str, Any] = value[0] if isinstance(value, list) else value
    return first


ORIGINALS = originals()


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values within a value."""
    found = [path] if path else []
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        found += places(inner, (*path, key))
    return found


@st.composite
def near_records(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A format's name, and a record of it of which up to three values are replaced, repeated or gone."""
    name = draw(st.sampled_from(sorted(ORIGINALS)))
    record = json.loads(json.dumps(ORIGINALS[name]))
    for _ in range(draw(st.integers(0, 3))):
        at = places(record)
        if not at:
            break
        *path, last = draw(st.sampled_from(at))
        inner = record
        for key in path:
            inner = inner[key]
        change = draw(st.sampled_from(["replace", "remove", "repeat"]))
        if change == "replace":
            inner[last] = draw(VALUES)
        elif change == "remove":
            del inner[last]
        elif isinstance(inner, list):
            inner.insert(last, inner[last])
    return name, record
