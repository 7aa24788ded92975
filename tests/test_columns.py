"""What is read becomes columns of plain types with the same values, whoever wrote it."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turncredit.data import tables
from turncredit.data.columns import as_table, plain
from turncredit.data.json_lines import parquet_rows
from turncredit.errors import UserError

TEXTS = st.one_of(st.none(), st.text(max_size=3))
#: Types that need not be plain, each with values for it.
LEAVES = st.sampled_from(
    [
        (pa.string(), TEXTS),
        (pa.string_view(), TEXTS),
        (pa.large_string(), TEXTS),
        (pa.binary_view(), st.binary(max_size=3)),
        (pa.dictionary(pa.int8(), pa.string()), TEXTS),
        (pa.float32(), st.sampled_from([None, 0.5, -2.0])),
    ]
)


def _list(kind: str) -> Any:
    return lambda inner: (getattr(pa, kind)(inner[0]), st.one_of(st.none(), st.lists(inner[1], max_size=3)))


KINDS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        *(inner.map(_list(kind)) for kind in ("list_", "large_list", "list_view", "large_list_view")),
        inner.map(lambda one: (pa.list_(one[0], 2), st.one_of(st.none(), st.lists(one[1], min_size=2, max_size=2)))),
        inner.map(lambda one: (pa.struct([("x", one[0])]), st.one_of(st.none(), st.fixed_dictionaries({"x": one[1]})))),
    ),
    max_leaves=3,
)


@given(st.data(), KINDS)
def test_values_stay_whatever_the_types_they_are_stored_in(data: st.DataObject, kind: tuple[pa.DataType, Any]) -> None:
    given_type, values = kind
    rows = data.draw(st.lists(values, max_size=6))
    column = pa.array(rows, given_type)
    cut = data.draw(st.integers(0, len(rows)))
    table = plain(pa.table({"c": pa.chunked_array([column[cut:], column[:cut]], given_type)}), "here")
    assert table.column("c").to_pylist() == [*column.to_pylist()[cut:], *column.to_pylist()[:cut]]
    left = str(table.schema.field("c").type)
    assert not any(word in left for word in ("view", "dictionary", "fixed_size", "extension"))


def test_extension_types_and_runs_become_what_they_store() -> None:
    key = UUID("12345678-1234-5678-1234-567812345678")
    columns = {
        "uuid": pa.array([key.bytes], pa.uuid()),
        "json": pa.array(['{"a": 1}'], pa.json_()),
        "bool8": pa.ExtensionArray.from_storage(pa.bool8(), pa.array([1], pa.int8())),
        "runs": pa.RunEndEncodedArray.from_arrays([1], ["x"]),
    }
    read = as_table(pa.table(columns), "here")
    assert read.to_pylist() == [{"uuid": str(key), "json": '{"a": 1}', "bool8": True, "runs": "x"}]


def test_a_name_that_two_columns_have_is_one_line_for_every_reader(tmp_path) -> None:
    path, table = tmp_path / "twice.parquet", pa.Table.from_arrays([pa.array(["g"]), pa.array(["h"])], ["turn", "turn"])
    pq.write_table(table, path)
    for read in (tables.read, lambda file: list(parquet_rows(file)), lambda file: as_table(table, str(file))):
        with pytest.raises(
            UserError, match=r"twice.parquet: two columns are called 'turn'; give each a name of its own"
        ):
            read(path)
