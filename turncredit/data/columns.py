"""Columns of Arrow tables as arrays, and one line for what a column holds that it must not."""

from __future__ import annotations

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
        return table
    if isinstance(table, str | Path):
        raise UserError(
            f"{where}: a path is not a table; read it first, as with pyarrow.parquet.read_table({str(table)!r})"
        )
    try:
        if hasattr(table, "iloc"):
            return pa.Table.from_pandas(table, preserve_index=False)
        if hasattr(table, "__arrow_c_stream__"):
            return _without_views(pa.table(table))
        return pa.table(dict(table))
    except (pa.ArrowInvalid, pa.ArrowTypeError, TypeError, ValueError) as error:
        raise UserError(f"{where}: cannot be read as a table of columns: {error}") from None


def _without_views(table: pa.Table) -> pa.Table:
    """The table with text as `string`: polars hands over string views, which few of Arrow's kernels know."""
    for place, field in enumerate(table.schema):
        if field.type == pa.string_view():
            table = table.set_column(place, field.name, table.column(place).cast(pa.string()))
    return table


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
