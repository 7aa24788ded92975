"""`turncredit sql`: run a query over the views and print or write the result."""

from __future__ import annotations

import csv
import json
import math
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from decimal import Decimal
from pathlib import Path
from typing import Any, TextIO

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.config.layout import JUDGE_CACHE, Layout
from turncredit.data.counts import number_of
from turncredit.data.files import new_file
from turncredit.data.output_paths import output_file
from turncredit.errors import UserError, nearest
from turncredit.views import sql_views
from turncredit.views.experiments import experiment_folders, layouts_below
from turncredit.views.sql_columns import described
from turncredit.views.terminal import visible

SHOWN_ROWS = 40
#: How a query begins. DuckDB calls every statement with a PIVOT in it MULTI, a COPY as well.
READING = re.compile(r"[\s(]*(select|with|from|pivot|unpivot|values|describe|summarize)\b", re.IGNORECASE)
EXPLAIN = re.compile(r"\s*explain\b(\s*analyze\b|\s*\([^)]*\))?", re.IGNORECASE)
#: A question for the views, which exist only for the query that names them.
SHOW_TABLES = re.compile(r"\s*show\s+(all\s+)?tables\s*;?\s*", re.IGNORECASE)
#: A question for the columns of a view, which is answered with what they mean.
DESCRIBE = re.compile(r"\s*describe\s+(\w+)\s*;?\s*", re.IGNORECASE)
#: How DuckDB says that it took a name with a dot for a table of a schema
DOTTED = re.compile(r'Table with name "([^"]+)" does not exist because schema')
#: How DuckDB says that a query names no view
ABSENT = re.compile(r"Table with name (\w+) does not exist!")


def answer(
    query: str, results: Path, make_layout: Callable[[Path], Layout] = Layout, files: Sequence[Path] = ()
) -> pa.Table:
    """The query's result over `results`, or over `files`, as an Arrow table.

    `make_layout` makes the layout of an experiment's folder, which says which of its artifacts are seen. Raises
    UserError with DuckDB's own message on one line.
    """
    return _answer(query, results, _layouts(results, make_layout, files), files)


def _layouts(results: Path, make_layout: Callable[[Path], Layout], files: Sequence[Path]) -> list[Layout]:
    """The experiments in `results`, of which there may be none if the judge's cache is there; none beside `files`."""
    return [] if files else layouts_below(results, make_layout, or_cache=True)


def _answer(query: str, results: Path, layouts: Sequence[Layout], files: Sequence[Path]) -> pa.Table:
    if SHOW_TABLES.fullmatch(query) and not files:
        return pa.table({"view": list(sql_views.ROW_OF), "one row per": list(sql_views.ROW_OF.values())})
    if (asked := DESCRIBE.fullmatch(query)) and not files and asked[1].lower() in sql_views.VIEWS:
        view = asked[1].lower()
        return pa.Table.from_pylist(described(view, _asked(f"DESCRIBE {view}", results, layouts, files).to_pylist()))
    return _asked(query, results, layouts, files)


def _asked(query: str, results: Path, layouts: Sequence[Layout], files: Sequence[Path]) -> pa.Table:
    # Files of a kind usually have the same columns; checking that costs more than most queries.
    if not sql_views.asks_for_all_columns(query):
        with suppress(duckdb.Error):
            return _ask(query, results, layouts, files, alike=True)
    try:
        return _ask(query, results, layouts, files, alike=False)
    except duckdb.Error as error:
        absent = ABSENT.search(str(error))
        if absent and absent[1].lower() in sql_views.VIEWS and not layouts and not files:
            raise UserError(
                f"{results}: no experiment here, only the judge's cache, and the view {absent[1]} needs one; run one, "
                "or give the folder that has one"
            ) from None
        raise UserError(f"sql: {one_line(str(error), [path.stem for path in files] or sql_views.VIEWS)}") from None


def _ask(query: str, results: Path, layouts: Sequence[Layout], files: Sequence[Path], *, alike: bool) -> pa.Table:
    opened = (
        sql_views.connect_to_files(files) if files else sql_views.connect(layouts, query, alike=alike, results=results)
    )
    with opened as connection:
        statements = connection.extract_statements(query)
        for statement in statements:
            if (kind := writes(statement)) is not None:
                raise UserError(
                    f"sql: this command answers queries and changes nothing, so it runs no {kind}; "
                    "write an answer to a file with --out"
                )
        if not statements:
            raise UserError("sql: the query is empty; write one, such as 'show tables'")
        if len(statements) > 1:
            raise UserError(
                f"sql: {len(statements)} statements, of which only the last is answered; run them one by one"
            )
        relation = connection.sql(query)
        table = pa.table({}) if relation is None else relation.to_arrow_table()
        return table.rename_columns(distinct(table.column_names))


def distinct(names: Sequence[str]) -> list[str]:
    """Names of columns, each its own, as JSON and readers of files need them: a second `turn` becomes `turn_2`."""
    out: list[str] = []
    for name in names:
        own, number = name, 2
        while own in out or (own != name and own in names):
            own, number = f"{name}_{number}", number + 1
        out.append(own)
    return out


def writes(statement: duckdb.Statement) -> str | None:
    """The kind of a statement that may do more than read, by its first word; None for one that only reads.

    DuckDB may write to the folders that it may read. EXPLAIN ANALYZE runs what it explains.
    """
    kind, text = statement.type.name, statement.query
    explained = EXPLAIN.match(text)
    text = text[explained.end() :] if explained else text
    if kind == "SELECT" or (kind in ("EXPLAIN", "MULTI") and READING.match(text)):
        return None
    return (text.split() or [kind])[0].upper()


def one_line(message: str, names: Sequence[str]) -> str:
    """DuckDB's message without the copy of the query at its end; for a missing table, the nearest of the views."""
    text = " ".join(message.split("\n\nLINE ", maxsplit=1)[0].split())
    if match := ABSENT.search(text):
        return f"there is no view '{match[1]}'{nearest(match[1], names)}; the views are {', '.join(names)}"
    if (match := DOTTED.search(text)) and match[1] in names:
        return f'{match[1]}: put this name in double quotes, as in from "{match[1]}"'
    if match := re.search(r'Cannot access (?:file|directory) "([^"]+)"', text):
        return (
            f"{match[1]}: a query reads the results only, or what --file gives; give this Parquet file so, and query "
            "it by its name (turns.parquet is the view turns)"
        )
    if match := re.search(r"'(\w+)\(BOOLEAN\)'", text):
        return f"{match[1]} needs numbers, not booleans: write {match[1]}(success::INT), say, for a rate of success"
    return text


def run(
    query: str,
    *,
    results: Path,
    format: str,
    out: Path | None,
    make_layout: Callable[[Path], Layout] = Layout,
    files: Sequence[Path] = (),
) -> None:
    """Run `query` over results or `files` and print the result in `format`, or write it to `out` (.parquet or .csv).

    `make_layout` as for `answer`; lines on stderr say how many artifacts it leaves
    out, and whether the query mixes experiments.
    """
    if out is not None:
        output_file(
            out,
            (".parquet", ".csv"),
            reads=files or [*experiment_folders(results, or_cache=True), results / JUDGE_CACHE],
        )
    layouts = _layouts(results, make_layout, files)
    table = _answer(query, results, layouts, files)
    if (together := _together(query, table, layouts)) is not None:
        print(together, file=sys.stderr)
    for one in layouts:
        if left_out := len(one.unplanned()):
            print(
                f"{one.root.name}: left out {left_out} artifact{'s' if left_out > 1 else ''} that its configuration "
                f"would not make (listed by `turncredit clean --stale {results}`; --all includes them)",
                file=sys.stderr,
            )
    if out is not None:
        _write(table, out)
        print(f"{out}: {table.num_rows} rows")
    elif format == "csv":
        write_csv(table, sys.stdout)
    elif format == "json":
        print(json.dumps(_finite(table.to_pylist()), indent=2, default=str, allow_nan=False))
    else:
        _print(table)


def _together(query: str, answered: pa.Table, layouts: Sequence[Layout]) -> str | None:
    """A line where a query reads several experiments, and neither it nor its answer tells them apart."""
    if len(layouts) < 2 or "experiment" in answered.column_names or re.search(r"\bexperiment\b", query, re.IGNORECASE):
        return None
    roots = [one.root for one in sql_views.read_by(layouts, query)]
    if len(roots) < 2:
        return None
    names = ", ".join([*(root.name for root in roots[:5]), *(["..."] if len(roots) > 5 else [])])
    where = Path(os.path.relpath(roots[0]))
    return f"{len(roots)} experiments: {names}; add experiment to the query or --results {where}"


def _finite(value: Any) -> Any:
    """The value for JSON, which has no NaN and no infinity: null stands for them, in lists and structs as well.

    DuckDB's sum of whole numbers is a decimal, which would be a text.
    """
    if isinstance(value, Decimal):
        return int(value) if value == value.to_integral_value() else float(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(part) for key, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list) else value


def _write(table: pa.Table, out: Path) -> None:
    with new_file(out) as part:
        if out.suffix.lower() == ".parquet":
            try:
                pq.write_table(table, part, compression="zstd")
            except pa.ArrowNotImplementedError as error:  # an interval of time
                kind = str(error).rpartition(": ")[2]
                raise UserError(f"{out}: Parquet has no type for {kind}; cast that column, or write .csv") from None
        else:
            with part.open("w", encoding="utf-8", newline="") as handle:
                write_csv(table, handle)


def write_csv(table: pa.Table, handle: TextIO) -> None:
    """Write a table as CSV; nulls are empty fields."""
    writer = csv.writer(handle, lineterminator="\n")
    writer.writerow(table.column_names)
    for batch in table.to_batches():
        columns = [column.to_pylist() for column in batch.columns]
        writer.writerows(zip(*columns, strict=True))


def _print(table: pa.Table) -> None:
    from turncredit.views.terminal import console, plain_table, print_table

    grid = plain_table(table.column_names, numeric=[_is_number(field.type) for field in table.schema])
    for row in table.slice(0, SHOWN_ROWS).to_pylist():
        grid.add_row(*(_text(value) for value in row.values()))
    print_table(grid, console())
    if table.num_rows > SHOWN_ROWS:
        print(f"first {SHOWN_ROWS} of {table.num_rows} rows; --format csv prints all")
    else:
        print(number_of(table.num_rows, "row"))


def _is_number(kind: pa.DataType) -> bool:
    return pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind)


def _text(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.6g}"
    text = visible(str(value).replace("\n", "⏎"))
    return text if len(text) <= 80 else text[:79] + "…"
