"""The tables of a round as DuckDB views, which read nothing else."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

import duckdb
import pyarrow.parquet as pq

from turncredit.data import tables
from turncredit.data.credits import credit_names, only_method
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.show.find import Files
from turncredit.views.sql import one_line

#: Memory that queries may use, and the seconds that those of a page may take.
MEMORY, PATIENCE = "192MB", 10.0
#: The seconds where nobody waits for the page; None: `PATIENCE`.
_given: ContextVar[float | None] = ContextVar("seconds for a page's queries", default=None)
VIEWS = ("rollouts", "turns", "credits", "branches", "labels")


@contextmanager
def patient(seconds: float) -> Iterator[None]:
    """Within it, the queries of a page may take so many seconds."""
    token = _given.set(seconds)
    try:
        yield
    finally:
        _given.reset(token)


@contextmanager
def opened(files: Files, problems: list[str]) -> Iterator[tuple[duckdb.DuckDBPyConnection, set[str]]]:
    """A connection with the views `VIEWS` of a round, that reads these files and nothing else; the turns' columns.

    Raises UserError if the turns cannot be read. Any other file that cannot be read adds a line to `problems`.
    """
    connection = sql_views.open_connection(MEMORY)
    patience = PATIENCE if (given := _given.get()) is None else given
    timer = threading.Timer(patience, connection.interrupt)
    timer.daemon = True
    timer.start()
    try:
        columns = _columns(files.turns)
        absent = [name for name in (*tables.KEYS, "reward") if name not in columns]
        if absent:
            raise UserError(f"{files.turns}: a table of turns needs the column '{absent[0]}', which is missing")
        about = {
            "credits": [(path, name) for name, path in credit_names(files.credits).items()],
            "branches": [(files.branches, "")] if files.branches else [],
            "labels": [(path, path.stem) for path in files.labels],
        }
        reads = [files.turns]
        connection.execute(
            f"CREATE VIEW turns AS SELECT * FROM read_parquet({sql_views.quoted_path(files.turns)}, "
            "file_row_number = true)"
        )
        for view, given in about.items():
            parts = []
            for path, name in given:
                try:
                    parts.append(_part(path, view, name))
                    reads.append(path)
                except (UserError, OSError) as error:
                    problems.append(str(error))
            if parts:
                connection.execute(f"CREATE VIEW {view} AS {' UNION ALL BY NAME '.join(parts)}")
        connection.execute(f"CREATE VIEW rollouts AS {_rollouts(columns)}")
        sql_views.restrict(connection, [], reads)
        yield connection, columns
    except duckdb.InterruptException:
        raise UserError(f"the query took longer than {patience:.0f} seconds and was stopped; ask for less") from None
    except duckdb.Error as error:
        raise UserError(f"{files.turns}: {one_line(str(error), VIEWS)}") from None
    finally:
        timer.cancel()
        connection.close()


def _columns(path: Path) -> set[str]:
    tables.metadata(path)  # says what is wrong with a file that cannot be read
    return set(pq.read_schema(path).names)


def _part(path: Path, view: str, name: str) -> str:
    columns = _columns(path)
    wanted = {"credits": "advantage", "branches": "advantage_true", "labels": "group_id"}[view]
    if wanted not in columns:
        raise UserError(f"{path}: no column '{wanted}', so it is not a table of {view}; it is left out")
    named = {"credits": "method", "labels": "judge"}.get(view)
    called = f"{sql_views.quoted(name)} AS {named}"
    chosen = f"{called}, *" if named and named not in columns else "*"
    if view == "credits" and only_method(path) not in (None, name):  # another table has that method as well
        chosen = f"* REPLACE ({called})"
    return f"SELECT {chosen} FROM read_parquet({sql_views.quoted_path(path)})"


def _rollouts(columns: set[str]) -> str:
    """The view `rollouts`: one row for each, from its turns."""
    success = "coalesce(bool_or(success), false)" if "success" in columns else "coalesce(sum(reward), 0) > 0"
    parts = {
        "success": success,
        "turns": "count(*)",
        '"return"': "sum(reward)",
        "invalid": "avg((NOT valid)::INT)" if "valid" in columns else "NULL::DOUBLE",
        "family": "any_value(family)" if "family" in columns else "NULL::VARCHAR",
        "goal": "arg_min(goal, turn)" if "goal" in columns else "NULL::VARCHAR",
        '"order"': "min(file_row_number)",
    }
    text = ", ".join(f"{sql} AS {name}" for name, sql in parts.items())
    ids = "group_id::VARCHAR AS group_id, rollout_id::VARCHAR AS rollout_id"
    return f"SELECT {ids}, {text} FROM turns GROUP BY group_id, rollout_id"
