"""The tables of a round as a `Book` of the credit pages, the last few kept; and credit that is computed on demand."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from threading import Lock

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from turncredit.config import Experiment
from turncredit.config.layout import measures_beside
from turncredit.credit import METHODS, Method, resolve
from turncredit.credit.parts.compose import compute
from turncredit.data import tables
from turncredit.data.credits import credit_names, credit_of
from turncredit.data.turns import Turns
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.pages.data import Book, Credit, read_book
from turncredit.views.show.find import Files
from turncredit.views.viewer.round_views import MEMORY

#: A table with more turns is read by group: then a full colour is that of the group's credit, not of the round's.
WHOLE = 20_000
#: Books that are kept.
KEPT = 3


@dataclass(frozen=True)
class Opened:
    """A book, what could not be read or is special about it in lines, and whether it is one group of a larger table."""

    book: Book
    problems: list[str]
    part: bool


class Shelf:
    """The books of the last few rounds, each read again once one of its files has changed."""

    def __init__(self) -> None:
        self._books: OrderedDict[tuple, Opened] = OrderedDict()
        self._lock = Lock()

    def open(self, files: Files, group: str) -> Opened:
        """The book that has `group`. Raises UserError if the turns cannot be read."""
        tables.metadata(files.turns)
        part = pq.read_metadata(files.turns).num_rows > WHOLE
        measures = measures_beside(files.turns)
        paths = [files.turns, *files.credits, *files.labels, *files.values]
        paths += [path for path in (files.branches, measures) if path is not None]
        key = (*((str(path), *_stamp(path)) for path in paths), group if part else None)
        with self._lock:
            if key not in self._books:
                self._books[key] = _read(files, measures, group if part else None)
                while len(self._books) > KEPT:
                    self._books.popitem(last=False)
            self._books.move_to_end(key)
            return self._books[key]


def _stamp(path: Path) -> tuple[int, int]:
    try:
        found = os.stat(path)
    except OSError:
        return 0, 0
    return found.st_mtime_ns, found.st_size


def _read(files: Files, measures: Path | None, group: str | None) -> Opened:
    problems: list[str] = []
    book = read_book(
        turns=files.turns,
        measures=measures,
        credits=credit_names(files.credits),
        branches=files.branches,
        labels={path.stem: path for path in files.labels},
        values={path.stem: path for path in files.values},
        read=partial(_table, group=group, turns=files.turns, problems=problems),
        problems=problems,
    )
    return Opened(book, problems, group is not None)


def _table(path: str | Path, *, group: str | None, turns: Path, problems: list[str]) -> pa.Table:
    table = tables.read(path) if group is None else _of_group(Path(path), group)
    if Path(path) != turns or "reward" not in table.column_names or not table.column("reward").null_count:
        return table
    problems.append(f"{path}: {table.column('reward').null_count} turns have no reward; here they count as 0")
    at = table.column_names.index("reward")
    return table.set_column(at, "reward", pc.fill_null(table.column("reward").cast(pa.float64()), 0.0))


def _of_group(path: Path, group: str) -> pa.Table:
    """The rows of one group. Raises UserError for a table that cannot be read."""
    tables.metadata(path)
    names = pq.read_schema(path)
    if "group_id" not in names.names:
        raise UserError(f"{path}: the column 'group_id' is missing")
    column = "group_id" if pa.types.is_string(names.field("group_id").type) else "group_id::VARCHAR"
    with sql_views.open_connection(MEMORY) as connection:
        query = f"SELECT * FROM read_parquet({sql_views.quoted_path(path)}) WHERE {column} = ?"
        return connection.sql(query, params=[group]).to_arrow_table()


def methods_of(book: Book, experiment: Experiment | None) -> dict[str, Method]:
    """The methods whose credit the book has, as the experiment defines them."""
    found = {}
    for name in book.credits:
        with suppress(UserError):  # a method of one's own whose file is gone
            found[name] = resolve(experiment.definition(name) if experiment else name, name)
    return found


def computable(book: Book) -> list[str]:
    """The built-in methods that the book has no credit of and that can be computed from it, without a learned model."""
    return [
        name
        for name, method in METHODS.items()
        if name not in book.credits
        and set(method.needs) <= {"labels"}
        and all(book.turns.has(column) for column in method.reads)
        and ("labels" not in method.needs or _labels_for(book, method) is not None)
    ]


def with_credit(book: Book, names: Sequence[str]) -> tuple[Book, list[str]]:
    """The book with the credit of these methods, and a line for each that could not be computed."""
    credits: dict[str, Credit] = {}
    problems = []
    for name in names:
        if name in book.credits:
            continue
        try:
            credits[name] = _computed(book, name)
        except UserError as error:
            problems.append(f"{name}: {error}")
    return (replace(book, credits={**book.credits, **credits}) if credits else book), problems


def _computed(book: Book, name: str) -> Credit:
    if name not in computable(book):
        raise UserError("its credit cannot be computed from these tables")
    method = METHODS[name]
    side: Mapping[str, pa.Table] = {}
    if "labels" in method.needs:
        labels = _labels_for(book, method)
        assert labels is not None
        side = {"labels": labels}
    table = compute(Turns(book.turns.table, side, where=book.turns.where), method, seed=0)
    return Credit(name, *credit_of(book.turns, table, name, "a credit page"))


def _labels_for(book: Book, method: Method) -> pa.Table | None:
    """The labels that answer the method's question, if there are any."""
    return next(
        (side.table for name, side in book.labels.items() if name.rpartition("-")[2] in (method.asks, name)), None
    )
