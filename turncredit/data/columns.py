"""Columns of Arrow tables as arrays, and one line for what a column holds that it must not."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.errors import UserError

#: A batch of advantages with this root mean square, or less, is rounding noise: nothing to divide by.
NOISE = 1e-9


def as_table(table: Any, where: str) -> pa.Table:
    """An Arrow table from an Arrow table, a pandas or polars frame, a DuckDB relation or a mapping of columns."""
    if isinstance(table, pa.Table):
        return plain(table, where)
    if isinstance(table, str | Path):
        raise UserError(
            f"{where}: a path is not a table; read it first, as with pyarrow.parquet.read_table({str(table)!r})"
        )
    if isinstance(table, list):
        raise UserError(
            f"{where}: a list of rows is not a table of columns; give {{name: [row[name] for row in rows], ...}}, or "
            "pandas.DataFrame(rows)"
        )
    if hasattr(table, "collect") and not hasattr(table, "__arrow_c_stream__"):
        table = table.collect()  # a lazy frame of polars
    try:
        if hasattr(table, "iloc"):
            _check_names([str(name) for name in table.columns], where)
            read = pa.Table.from_pandas(table, preserve_index=False)
        elif hasattr(table, "__arrow_c_stream__"):
            read = pa.table(table)
        else:
            read = pa.table(dict(table))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: cannot be read as a table of columns: {error}") from None
    return plain(read, where)


def plain(table: pa.Table, where: str) -> pa.Table:
    """The table with columns of plain types, whoever wrote it: the one place where what is read is normalised.

    Dictionaries (pandas' categories), runs and views become their values, every kind of list a list, and extension
    types what they store: JSON text, UUIDs text of 36 characters; inside lists and structs as well. Raises UserError
    for a name that two columns have.
    """
    _check_names(table.column_names, where)
    for place, field in enumerate(table.schema):
        if not _is_plain(field.type):
            chunks = [_plain_array(chunk) for chunk in table.column(place).chunks or [pa.array([], field.type)]]
            column = pa.chunked_array(chunks)
            table = table.set_column(place, pa.field(field.name, column.type, field.nullable), column)
    return table


def _is_plain(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return all(_is_plain(field.type) for field in kind)
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return _is_plain(kind.value_type)
    others = ("dictionary", "run_end_encoded", "list_view", "large_list_view", "fixed_size_list")
    views = (pa.string_view(), pa.binary_view())
    return not (
        kind in views
        or isinstance(kind, pa.BaseExtensionType)
        or any(getattr(pa.types, f"is_{other}")(kind) for other in others)
    )


def _plain_array(array: pa.Array) -> pa.Array:
    """One chunk of a column with a plain type."""
    kind = array.type
    if _is_plain(kind):
        return array
    if kind == pa.uuid():
        return pa.array([None if one is None else str(one) for one in array.to_pylist()], pa.string())
    if isinstance(kind, pa.BaseExtensionType):
        return array.storage.cast(pa.bool_()) if kind == pa.bool8() else _plain_array(array.storage)
    if pa.types.is_dictionary(kind):
        return _plain_array(array.dictionary_decode())
    if pa.types.is_run_end_encoded(kind):
        return _plain_array(pc.run_end_decode(array))
    if kind in (pa.string_view(), pa.binary_view()):
        return array.cast(pa.string() if kind == pa.string_view() else pa.binary())
    if pa.types.is_struct(kind):
        parts = [_plain_array(part) for part in array.flatten()]  # null where the struct is
        return pa.StructArray.from_arrays(parts, [field.name for field in kind], mask=array.is_null())
    # Any kind of list. Arrow's own cast of list views loses their last elements.
    lengths = pc.fill_null(pc.list_value_length(array), 0).to_numpy(zero_copy_only=False)
    ends = np.cumsum(lengths, dtype=np.int64)
    large = str(kind).startswith("large") or bool(len(ends) and ends[-1] > np.iinfo(np.int32).max)
    starts = pa.array(np.concatenate([[0], ends]), pa.int64() if large else pa.int32())
    made = pa.LargeListArray if large else pa.ListArray
    return made.from_arrays(starts, _plain_array(array.flatten()), mask=array.is_null())


def _check_names(names: Sequence[str], where: str) -> None:
    twice = next((name for place, name in enumerate(names) if name in names[:place]), None)
    if twice is not None:
        raise UserError(f"{where}: two columns are called '{twice}'; give each a name of its own")


def lists_in(table: pa.Table, name: str, where: str) -> pa.ChunkedArray:
    """A column of lists, one per turn. Raises UserError if it holds anything else."""
    column = table.column(name)
    if not (pa.types.is_list(column.type) or pa.types.is_large_list(column.type)):
        raise UserError(f"{where}: the column '{name}' must hold a list for each turn, not {column.type}")
    return column


def sums_of(column: pa.ChunkedArray) -> np.ndarray:
    """The sum (N) of each row's list, in float64."""
    lists = column.combine_chunks()
    if isinstance(lists, pa.ChunkedArray):
        lists = pa.concat_arrays(lists.chunks)
    length_N = pc.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
    row_L = np.repeat(np.arange(len(lists)), length_N)
    sum_N: np.ndarray = np.bincount(row_L, pc.list_flatten(lists).to_numpy(zero_copy_only=False), len(lists))
    return sum_N


def only_value(table: pa.Table, name: str, where: str, what: str) -> Any:
    """The value of a column that must be constant in a table of turns, such as `temperature`; `what` needs it."""
    values = pc.unique(table.column(name)).to_pylist()
    if not values:
        raise UserError(f"{where}: the table has no rows")
    if len(values) > 1:
        few = ", ".join(str(value) for value in values[:3]) + (", ..." if len(values) > 3 else "")
        raise UserError(
            f"{where}: {what} needs rollouts that share one {name}; the column '{name}' has {len(values)} values "
            f"({few}); take the rows of one"
        )
    return values[0]


def factorise(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """Codes, and the sorted distinct values; independent of the order of the rows."""
    encoded = column.dictionary_encode(null_encoding="encode").unify_dictionaries()
    chunks = [chunk.indices.to_numpy(zero_copy_only=False) for chunk in encoded.chunks if len(chunk)]
    values = next((chunk.dictionary for chunk in encoded.chunks), pa.array([], column.type))
    order = pc.sort_indices(values).to_numpy()
    rank = np.empty(len(order), dtype=np.int64)
    rank[order] = np.arange(len(order))
    codes = np.concatenate(chunks) if chunks else np.zeros(0, dtype=np.int64)
    return rank[codes], values.take(pa.array(order))


def factorise_runs(column: pa.ChunkedArray) -> tuple[np.ndarray, pa.Array]:
    """`factorise` for ids, which usually come in runs of equal values: each run is looked up once."""
    whole = pa.concat_arrays(column.chunks)
    starts_N = np.ones(len(whole), dtype=bool)
    if len(whole) > 1:
        starts_N[1:] = pc.not_equal(whole[1:], whole[:-1]).to_numpy(zero_copy_only=False)
    if starts_N.mean() > 0.25:
        return factorise(column)
    first = np.flatnonzero(starts_N)
    codes, values = factorise(pa.chunked_array([whole.take(pa.array(first))]))
    return np.repeat(codes, np.diff(np.append(first, len(whole)))), values


def cast(column: pa.ChunkedArray, kind: pa.DataType, where: str, name: str) -> pa.ChunkedArray:
    """The column `name` as another type. Raises UserError, with what it must hold, where values cannot be cast."""
    if column.type == kind:
        return column
    try:
        return column.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        what = {pa.int64(): "whole numbers", pa.float64(): "numbers", pa.bool_(): "true or false"}.get(kind, "text")
        raise UserError(f"{where}: the column '{name}' must hold {what}: {str(error).splitlines()[0]}") from None


def to_numpy(column: pa.ChunkedArray) -> np.ndarray:
    """The column as an array; text as Python strings, a null as None."""
    if pa.types.is_string(column.type) or pa.types.is_large_string(column.type):
        return np.array(column.to_pylist(), dtype=object)
    return column.to_numpy()
