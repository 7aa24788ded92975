"""The rollouts of a round as a list that is filtered, sorted and cut into pages by DuckDB, over the Parquet files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import duckdb
import numpy as np

from turncredit.data.credits import credit_names
from turncredit.errors import UserError
from turncredit.views.pages.data import FULL_COLOUR, scale_of
from turncredit.views.show.find import Files
from turncredit.views.sql import one_line, writes
from turncredit.views.viewer.round_views import VIEWS, opened

#: Rollouts on a page; and on one that has all of them.
PAGE, ALL = 50, 10**9
#: Texts of turns in which a filter looks.
TEXTS = ("goal", "observation", "action", "response_text", "next_observation")
#: The columns of the list by which it can be sorted, and whether the largest come first.
SORTS = {
    "order": False,
    "rollout": False,
    "success": True,
    "turns": True,
    "return": True,
    "invalid": True,
    "family": False,
    "credit": True,
    "truth": True,
}


@dataclass(frozen=True)
class Filter:
    """Which rollouts are listed, and in which order; empty texts restrict nothing.

    text      found in a goal, observation, action or response, without regard to case
    outcome   `won` or `lost`
    shortest, longest   numbers of turns
    invalid   the smallest share of invalid actions, in percent
    where     a condition in SQL on the view `rollouts`
    sort      one of `SORTS`, with a `-` before it for the opposite order; empty: rollouts with ground truth first
    """

    text: str = ""
    outcome: str = ""
    family: str = ""
    shortest: str = ""
    longest: str = ""
    invalid: str = ""
    where: str = ""
    sort: str = ""

    @classmethod
    def of(cls, query: Mapping[str, str]) -> Filter:
        """The filter in an address; what it does not know is left out."""
        given = {name: query[name].strip() for name in cls.__dataclass_fields__ if query.get(name, "").strip()}
        if given.get("sort", "").lstrip("-") not in SORTS:
            given.pop("sort", None)
        return cls(**given)

    @property
    def query(self) -> dict[str, str]:
        """Its part of an address: the settings that differ from the default."""
        default = Filter()
        mine = {name: str(getattr(self, name)) for name in self.__dataclass_fields__}
        return {name: value for name, value in mine.items() if value != getattr(default, name)}


class Listed(NamedTuple):
    """A rollout in the list; `order` is its place in the table, `credit` and `truth` its turns' advantages, if any."""

    group: str
    rollout: str
    success: bool
    turns: int
    result: float | None
    invalid: float | None
    family: str
    goal: str
    order: int
    credit: np.ndarray | None = None
    truth: np.ndarray | None = None


@dataclass(frozen=True)
class Page:
    """A page of the list.

    total, won, of_all   rollouts that the filter lets through, the successes among them, and all there are
    sort, usual          what it is sorted by, and what without a choice
    branched             rollouts with ground truth
    scales               the size of credit, and of the truth, in full colour
    problems             a line for each file or condition that could not be used
    """

    rows: list[Listed]
    total: int
    won: int
    of_all: int
    families: list[str]
    methods: list[str]
    columns: set[str]
    sort: str
    usual: str
    branched: int
    scales: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Neighbours(NamedTuple):
    """The rollouts before and after one, by group and name; how many there are, and its place among them from 1 on."""

    before: tuple[str, str] | None
    after: tuple[str, str] | None
    place: int
    total: int


def listed(files: Files, wanted: Filter, *, page: int = 0, method: str | None = None, size: int = PAGE) -> Page:
    """A page of the rollouts that the filter lets through, with the credit of `method` (by default the first there is).

    Raises UserError if the turns cannot be read.
    """
    problems: list[str] = []
    with opened(files, problems) as (connection, columns):
        there = _there(connection)
        methods = _methods(connection, files)
        method = method if method in methods else next(iter(methods), None)
        text, values = _selected(connection, wanted, columns, there, method, problems)
        total, won = connection.execute(f"SELECT count(*), count(*) FILTER (success) FROM ({text})", values).fetchone()
        rows = connection.execute(
            f'SELECT group_id, rollout_id, success, turns, "return", invalid, family, goal, "order" FROM ({text}) '
            f"ORDER BY place LIMIT {size} OFFSET {page * size}",
            values,
        ).fetchall()
        of_all = connection.execute("SELECT count(*) FROM rollouts").fetchone()[0]
        families = connection.execute(
            "SELECT DISTINCT family FROM rollouts WHERE family IS NOT NULL ORDER BY 1 LIMIT 60"
        ).fetchall()
        branched = 0
        if "branches" in there:
            branched = connection.execute("SELECT count(DISTINCT (group_id, rollout_id)) FROM branches").fetchone()[0]
        drawn, scales = {}, {}
        for name, column, view in (("credit", "advantage", "credits"), ("truth", "advantage_true", "branches")):
            if view in there and (name == "truth" or method is not None):
                drawn[name], scales[name] = _strips(
                    connection, view, column, rows, method if name == "credit" else None
                )
    none: dict[tuple[str, str], dict[int, float]] = {}
    return Page(
        rows=[
            Listed(*row, *(_in_order(drawn.get(name, none).get(row[:2]), row[3]) for name in ("credit", "truth")))
            for row in ((*row[:6], row[6] or "", row[7] or "", row[8]) for row in rows)
        ],
        total=total,
        won=won,
        of_all=of_all,
        families=[name for (name,) in families],
        methods=methods,
        columns=columns,
        sort=_sort(wanted, there),
        usual=_sort(Filter(), there),
        branched=branched,
        scales=scales,
        problems=problems,
    )


def texts(files: Files) -> dict[tuple[str, str], str]:
    """What was done in each rollout, by group and name. Raises UserError if the turns cannot be read."""
    with opened(files, []) as (connection, columns):
        named = next((name for name in ("action", "response_text") if name in columns), None)
        if named is None:
            return {}
        rows = connection.execute(
            f"SELECT group_id::VARCHAR, rollout_id::VARCHAR, string_agg({named}, ' ' ORDER BY turn) "
            "FROM turns GROUP BY ALL"
        ).fetchall()
    return {(group, rollout): text or "" for group, rollout, text in rows}


def credited(files: Files) -> list[str]:
    """The methods that have credit in a round, the run's own first."""
    with opened(files, []) as (connection, _):
        return _methods(connection, files)


def _methods(connection: duckdb.DuckDBPyConnection, files: Files) -> list[str]:
    if "credits" not in _there(connection):
        return []
    found = {name for (name,) in connection.execute("SELECT DISTINCT method FROM credits").fetchall()}
    named = credit_names(files.credits)
    return [name for name in named if name in found] + sorted(found - {*named})


def _there(connection: duckdb.DuckDBPyConnection) -> set[str]:
    """The views that there are."""
    return {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}


def neighbours(files: Files, wanted: Filter, group: str, rollout: str, method: str | None = None) -> Neighbours | None:
    """The rollouts beside one in the filtered list; None where the filter does not let it through."""
    with opened(files, []) as (connection, columns):
        there = _there(connection)
        text, values = _selected(connection, wanted, columns, there, method, [])
        row = connection.execute(
            "SELECT * FROM (SELECT group_id, rollout_id, place, count(*) OVER () AS total, "
            "lag(group_id) OVER near, lag(rollout_id) OVER near, lead(group_id) OVER near, lead(rollout_id) OVER near "
            f"FROM ({text}) WINDOW near AS (ORDER BY place)) WHERE group_id = ? AND rollout_id = ?",
            [*values, group, rollout],
        ).fetchone()
    if row is None:
        return None
    _, _, place, total, *around = row
    before, after = tuple(around[:2]), tuple(around[2:])
    return Neighbours(before if before[0] is not None else None, after if after[0] is not None else None, place, total)


def among(chosen: Sequence[tuple[str, str]], ids: tuple[str, str]) -> Neighbours | None:
    """The rollouts beside one in a list of those that have a page; None if it is not among them."""
    if ids not in chosen:
        return None
    place = list(chosen).index(ids)
    before, after = chosen[place - 1] if place else None, next(iter(chosen[place + 1 :]), None)
    return Neighbours(before, after, place + 1, len(chosen))


def _selected(
    connection: duckdb.DuckDBPyConnection,
    wanted: Filter,
    columns: set[str],
    there: set[str],
    method: str | None,
    problems: list[str],
) -> tuple[str, list[Any]]:
    """The rollouts that the filter lets through with their `place` in its order, as SQL, and the values in it."""
    conditions, values = _conditions(wanted, columns, problems)
    if wanted.where:
        try:
            connection.register("chosen", _chosen(connection, wanted.where))
            conditions.append("(group_id, rollout_id) IN (SELECT (group_id, rollout_id) FROM chosen)")
        except UserError as error:
            problems.append(str(error))
    sort = _sort(wanted, there)
    name = sort.lstrip("-")
    downward = SORTS[name] != sort.startswith("-")
    key, before = _key(name, there, method)
    values = [*before, *values]
    condition = " AND ".join(conditions) or "true"
    direction = "DESC" if downward else "ASC"
    text = (
        f'SELECT *, row_number() OVER (ORDER BY {key} {direction} NULLS LAST, "order") AS place '
        f"FROM rollouts WHERE {condition}"
    )
    return text, values


def _sort(wanted: Filter, there: set[str]) -> str:
    """What the list is sorted by: without a choice those with ground truth come first."""
    return wanted.sort or ("truth" if "branches" in there else "order")


def _key(name: str, there: set[str], method: str | None) -> tuple[str, list[Any]]:
    """What the list is sorted by, as SQL, and the values in it: the largest size of a rollout's credit, or a column."""
    of_rollout = "t.group_id::VARCHAR = rollouts.group_id AND t.rollout_id::VARCHAR = rollouts.rollout_id"
    if name == "credit":
        known = "credits" in there and method is not None
        largest = f"(SELECT max(abs(t.advantage)) FROM credits AS t WHERE t.method = ? AND {of_rollout})"
        return (largest, [method]) if known else ('"order"', [])
    if name == "truth":
        largest = f"(SELECT max(abs(t.advantage_true)) FROM branches AS t WHERE {of_rollout})"
        return (largest if "branches" in there else '"order"'), []
    return ("(group_id, rollout_id)" if name == "rollout" else f'"{name}"'), []


def _conditions(wanted: Filter, columns: set[str], problems: list[str]) -> tuple[list[str], list[Any]]:
    conditions: list[str] = []
    values: list[Any] = []
    texts = [name for name in TEXTS if name in columns]
    if wanted.text and texts:
        of_turn = f"lower(concat_ws(' ', {', '.join(texts)}))"
        conditions.append(
            "(group_id, rollout_id) IN (SELECT (group_id::VARCHAR, rollout_id::VARCHAR) FROM turns "
            f"WHERE contains({of_turn}, lower(?)))"
        )
        values.append(wanted.text)
    if wanted.outcome in ("won", "lost"):
        conditions.append("success" if wanted.outcome == "won" else "NOT success")
    if wanted.family:
        conditions.append("family = ?")
        values.append(wanted.family)
    for name, sql, share in (
        ("shortest", "turns >= ?", 1),
        ("longest", "turns <= ?", 1),
        ("invalid", "invalid >= ?", 100),
    ):
        if given := getattr(wanted, name):
            try:
                values.append(float(given) / share)
                conditions.append(sql)
            except ValueError:
                problems.append(f"{name}: '{given}' is not a number")
    return conditions, values


def _chosen(connection: duckdb.DuckDBPyConnection, where: str) -> Any:
    """The ids of the rollouts for which the user's condition holds. Raises UserError with one line."""
    try:
        statements = connection.extract_statements(f"SELECT group_id, rollout_id FROM rollouts WHERE (\n{where}\n)")
        if len(statements) != 1 or writes(statements[0]) is not None:
            raise UserError("where: give one condition, such as turns > 5 AND NOT success")
        return connection.sql(statements[0].query).to_arrow_table()
    except duckdb.InterruptException:
        raise
    except duckdb.Error as error:
        refused = "Cannot access" in str(error)
        line = "a condition reads the tables of its round only" if refused else one_line(str(error), VIEWS)
        raise UserError(f"where: {line}") from None


def _strips(
    connection: duckdb.DuckDBPyConnection, view: str, column: str, rows: Sequence[tuple], method: str | None
) -> tuple[dict[tuple[str, str], dict[int, float]], float]:
    """Each listed rollout's numbers by turn, and the size in full colour over the whole round."""
    of_method, values = ("WHERE method = ?", [method]) if method is not None else ("", [])
    found = connection.execute(
        f"SELECT quantile_cont(abs({column}), {FULL_COLOUR}), max(abs({column})) FROM {view} {of_method}", values
    ).fetchone()
    ids = [row[1] for row in rows]
    both = "WHERE" if not of_method else f"{of_method} AND"
    numbers: dict[tuple[str, str], dict[int, float]] = {}
    for group, rollout, turn, value in connection.execute(
        f"SELECT group_id::VARCHAR, rollout_id::VARCHAR, turn, {column} FROM {view} "
        f"{both} rollout_id::VARCHAR IN (SELECT unnest(?::VARCHAR[]))",
        [*values, ids],
    ).fetchall():
        numbers.setdefault((group, rollout), {})[turn] = value
    return numbers, scale_of(*(float(size or 0.0) for size in found))


def _in_order(numbers: dict[int, float] | None, turns: int) -> np.ndarray | None:
    """Numbers by turn as an array over all turns of a rollout, NaN where there is none."""
    if numbers is None:
        return None
    given = (numbers.get(turn) for turn in range(turns))
    return np.array([np.nan if value is None else float(value) for value in given])
