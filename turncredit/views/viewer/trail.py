"""From a number of the report to what it was made from: its SQL, files, rows, jobs and configuration; and back again.

A file is only ever found by its artifact's name and keys (`Layout.locate`), so no other path can be asked for.
"""

from __future__ import annotations

import itertools
import json
import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from turncredit.config.layout import Layout, Located, fill, round_name
from turncredit.config.stages import artifacts, stages
from turncredit.data import provenance, tables
from turncredit.errors import UserError
from turncredit.views import sql, sql_views
from turncredit.views.pages.formats import one_line
from turncredit.views.redact import redacted
from turncredit.views.report import grid
from turncredit.views.viewer.round_views import MEMORY
from turncredit.views.viewer.sources import Absent

#: Levels of the graph, files on each, and rows and characters of a cell that are shown.
LEVELS, FILES, ROWS, CHARACTERS = 5, 8, 30, 160
#: The settings in a provenance that say which numbers of the report are shown.
NUMBER = ("table", "row", "column")


class Number(NamedTuple):
    """A number of the report, as in its table `summary`."""

    table: str
    row: str
    column: str
    title: str
    heading: str
    value: float | None
    low: float | None
    high: float | None
    n: int | None
    unit: str
    note: str
    path: str
    sql: str

    @property
    def text(self) -> str:
        """The value as the report writes it, with its unit."""
        return self.written(self.value)

    @property
    def interval(self) -> str:
        """The interval as the report writes it; empty without one."""
        return self._of_report(self.value).interval.replace("-", "−")

    def written(self, value: float | None) -> str:
        """A value of this number's kind, as the report would write it."""
        text = self._of_report(value).text.replace("-", "−")
        return f"{text} points" if self.unit == "points" and text != "none" else text

    def _of_report(self, value: float | None) -> grid.Number:
        given = math.nan if value is None else value
        return grid.Number(given, self.unit, self.sql, self.path, low=self.low, high=self.high)


@dataclass(frozen=True)
class Made:
    """An artifact and what made it.

    path     below the experiment's folder
    rows     None where it is no table, or one that cannot be read
    turns    the name of the round whose turns it is about, or is
    more     the inputs of its job that are artifacts, by path
    """

    path: str
    artifact: str
    stage: str
    code: str
    config: str
    config_hash: str
    inputs: dict[str, str]
    turns: str | None
    rows: int | None
    more: list[str]


def numbers(layout: Layout) -> list[Number]:
    """All numbers of the report. Raises Absent where there is no report yet."""
    path = next((one.path for one in layout.find("summary")), None)
    if path is None:
        raise Absent(f"{layout.root.name}: no report yet; make it with `turncredit report {layout.root}`")
    return [Number(**row) for row in tables.read(path, "summary").to_pylist()]


def number(layout: Layout, table: str, row: str, column: str) -> Number:
    """One number of the report. Raises Absent."""
    for found in numbers(layout):
        if (found.table, found.row, found.column) == (table, row, column):
            return found
    raise Absent(f"the report has no number {row} / {column} in its table {table}")


def asked_now(layout: Layout, asked: Number) -> str:
    """What the SQL of a number gives now, in words. Raises UserError."""
    table = sql.answer(asked.sql, layout.root)
    if table.num_rows != 1:
        return f"{table.num_rows} rows"
    values = list(table.to_pylist()[0].values())
    text = ", ".join(f"{value:.6g}" if isinstance(value, float) else str(value) for value in values)
    written = asked.written(values[0]) if len(values) == 1 and isinstance(values[0], float | int) else text
    return text if written == text else f"{written} ({text})"


def files_of(layout: Layout, pattern: str) -> tuple[list[Located], str]:
    """The artifacts that a number's `path` names, those of its parts in turn, and what else it names, in words.

    The parts of a difference are its two sides, so that some files of both are among the first.
    """
    if "*" in pattern:
        return [], f"{sum(1 for _ in layout.find_metrics()):,} metrics files ({pattern})"
    parts = itertools.zip_longest(*(_expanded(part.rstrip(",")) for part in pattern.split()))
    found = [layout.locate(layout.root / path) for nth in parts for path in nth if path is not None]
    return [one for one in found if one is not None and one.path.exists()], ""


def _expanded(pattern: str) -> Iterator[str]:
    """A path with `{1,2}` in it as all paths that it stands for."""
    parts = re.split(r"\{([^{}]*)\}", pattern)
    choices = [part.split(",") if place % 2 else [part] for place, part in enumerate(parts)]
    return ("".join(one) for one in itertools.product(*choices))


def located(layout: Layout, path: str) -> Located:
    """The artifact at a path below the experiment's folder. Raises Absent for anything else."""
    found = layout.locate(layout.root / path)
    if found is None or not found.path.exists():
        raise Absent(f"{path}: no such artifact in {layout.root.name}")
    return found


def made(layout: Layout, one: Located) -> Made:
    """What made an artifact, from its provenance and from what its job left."""
    record = provenance.made_from(one.path) or {}
    keys = one.keys
    of_turns = {"policy", "seed", "round"} <= keys.keys()
    table = artifacts()[one.artifact].schema is not None
    return Made(
        path=one.path.relative_to(layout.root).as_posix(),
        artifact=one.artifact,
        stage=str(record.get("stage", "")),
        code=str(record.get("code", "")),
        config=json.dumps(redacted(record.get("config") or {}), indent=1, sort_keys=True, ensure_ascii=False),
        config_hash=str(record.get("config_hash", "")),
        inputs={str(name): str(value) for name, value in (record.get("inputs") or {}).items()},
        turns=round_name(str(keys["policy"]), int(keys["seed"]), int(keys["round"])) if of_turns else None,
        rows=_row_count(one.path) if table else None,
        more=_inputs(layout, one, str(record.get("stage", ""))),
    )


def _row_count(path: Path) -> int | None:
    """The rows of a table; None for one that cannot be read."""
    try:
        return pq.read_metadata(path).num_rows
    except (OSError, pa.ArrowInvalid):
        return None


def _inputs(layout: Layout, one: Located, stage: str) -> list[str]:
    """The artifacts that the job of an artifact read, by path, from the description that it left."""
    if stage not in stages():
        return []
    try:
        log = fill(layout.log(stage), one.keys)
        given = json.loads(Path(log.removesuffix(".log") + ".job.json").read_text(encoding="utf-8"))["input"]
    except (OSError, ValueError, KeyError, TypeError, UserError):
        return []
    paths = itertools.chain.from_iterable([value] if isinstance(value, str) else value for value in given.values())
    base = layout.root.parent.parent
    found = (layout.locate(base / path) for path in paths if isinstance(path, str))
    return [each.path.relative_to(layout.root).as_posix() for each in found if each is not None and each.path.exists()]


def lineage(layout: Layout, first: Sequence[Located]) -> list[tuple[list[Made], int]]:
    """What artifacts were made from, level by level, each artifact once; and how many of a level are not shown."""
    seen: set[str] = set()
    levels = []
    wanted = [one.path.relative_to(layout.root).as_posix() for one in first]
    while wanted and len(levels) < LEVELS:
        fresh = [path for path in dict.fromkeys(wanted) if path not in seen]
        if not fresh:
            break
        seen |= {*fresh}
        shown = [made(layout, located(layout, path)) for path in fresh[:FILES]]
        levels.append((shown, len(fresh) - len(shown)))
        wanted = [path for one in shown for path in one.more]
    return levels


def rows_of(one: Located) -> tuple[list[str], list[list[str]]]:
    """The names of a table's columns and its first rows, as texts. Raises UserError."""
    tables.metadata(one.path)
    with sql_views.open_connection(MEMORY) as connection:
        try:
            relation = connection.execute(f"SELECT * FROM read_parquet({sql_views.quoted_path(one.path)}) LIMIT {ROWS}")
            names = [column[0] for column in relation.description]
            return names, [[_text(value) for value in row] for row in relation.fetchall()]
        except duckdb.Error as error:
            raise UserError(f"{one.path}: {str(error).splitlines()[0]}") from None


def _text(value: Any) -> str:
    text = "" if value is None else f"{value:.6g}" if isinstance(value, float) else one_line(value)
    return text if len(text) <= CHARACTERS else text[: CHARACTERS - 1] + "…"


def read_from(layout: Layout, path: str) -> list[Number]:
    """The numbers of the report that were made from this artifact; none where there is no report."""
    try:
        return [one for one in numbers(layout) if path in _paths(one.path)]
    except Absent:
        return []


@cache
def _paths(pattern: str) -> frozenset[str]:
    return frozenset(path for part in pattern.split() for path in _expanded(part.rstrip(",")) if "*" not in path)
