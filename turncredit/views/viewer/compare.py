"""Where two methods differ most on the same turns, and two rounds of runs on the same tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb

from turncredit.config.layout import Layout
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.pages.data import FULL_COLOUR, scale_of
from turncredit.views.pages.formats import one_line
from turncredit.views.show.find import Files
from turncredit.views.viewer.round_views import MEMORY, opened

#: Lines of each list.
MOST = 40


class TurnDifference(NamedTuple):
    """A turn, what was done in it, and both methods' credit in units of their own full colour."""

    group: str
    rollout: str
    turn: int
    action: str
    success: bool
    a: float
    b: float
    true: float | None


@dataclass(frozen=True)
class Methods:
    """Two methods on the rollouts of a round.

    turns         those where they differ most, by |credit| in units of each method's full colour
    correlation   of both over all turns; None where one is constant
    opposite      the share of turns to which they give opposite signs
    scales        the size of each method's credit in full colour
    """

    turns: list[TurnDifference]
    count: int
    correlation: float | None
    opposite: float
    scales: tuple[float, float]
    problems: list[str]


class TaskDifference(NamedTuple):
    """A task, and the successes and rollouts on it of each side."""

    task: str
    family: str
    goal: str
    group_a: str
    group_b: str
    won_a: int
    of_a: int
    won_b: int
    of_b: int


def methods(files: Files, first: str, second: str) -> Methods:
    """Where two methods differ most on a round's turns. Raises UserError for one without credit there."""
    problems: list[str] = []
    with opened(files, problems) as (connection, columns):
        try:
            found = {name for (name,) in connection.execute("SELECT DISTINCT method FROM credits").fetchall()}
        except duckdb.CatalogException:
            found = set()
        for name in (first, second):
            if name not in found:
                raise UserError(f"{name} has no credit here; those that have: {', '.join(sorted(found)) or 'none'}")
        scales = _scale(connection, first), _scale(connection, second)
        there = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
        true = "t.advantage_true" if "branches" in there else "NULL"
        joined = "LEFT JOIN branches AS t USING (group_id, rollout_id, turn)" if "branches" in there else ""
        action = next((name for name in ("action", "response_text") if name in columns), None)
        both = (
            "SELECT group_id, rollout_id, turn, a.advantage / ? AS a, b.advantage / ? AS b "
            "FROM (FROM credits WHERE method = ?) AS a JOIN (FROM credits WHERE method = ?) AS b "
            "USING (group_id, rollout_id, turn)"
        )
        values = [*scales, first, second]
        count, correlation, opposite = connection.execute(
            f"SELECT count(*), corr(a, b), avg((a * b < 0)::INT) FROM ({both})", values
        ).fetchone()
        acted = f"x.{action}" if action else "NULL"
        rows = connection.execute(
            f"SELECT group_id::VARCHAR, rollout_id::VARCHAR, turn, {acted}, r.success, a, b, {true} "
            f"FROM ({both}) AS d JOIN turns AS x USING (group_id, rollout_id, turn) "
            "JOIN rollouts AS r ON r.group_id = d.group_id::VARCHAR AND r.rollout_id = d.rollout_id::VARCHAR "
            f"{joined} ORDER BY abs(a - b) DESC, 1, 2, 3 LIMIT {MOST}",
            values,
        ).fetchall()
    turns = [
        TurnDifference(group, rollout, turn, one_line(action), success, a, b, true)
        for group, rollout, turn, action, success, a, b, true in rows
    ]
    known = correlation if correlation is not None and math.isfinite(correlation) else None
    return Methods(turns, count, known, float(opposite or 0.0), scales, problems)


def _scale(connection: duckdb.DuckDBPyConnection, method: str) -> float:
    """The size of a method's credit that is drawn in full colour."""
    quantile, largest = connection.execute(
        f"SELECT quantile_cont(abs(advantage), {FULL_COLOUR}), max(abs(advantage)) FROM credits WHERE method = ?",
        [method],
    ).fetchone()
    return scale_of(float(quantile or 0.0), float(largest or 0.0))


def rounds(a: Files, b: Files) -> tuple[list[TaskDifference], int]:
    """The tasks that both rounds have, those on which success differs most first; and how many there are. UserError."""
    with sql_views.open_connection(MEMORY) as connection:
        for name, files in (("a", a), ("b", b)):
            _asked(
                connection,
                f"CREATE VIEW {name} AS SELECT task_id, min(group_id::VARCHAR) AS group_id, "
                "any_value(family) AS family, any_value(goal) AS goal, "
                "count(DISTINCT (group_id, rollout_id)) AS rollouts, "
                "count(DISTINCT (group_id, rollout_id)) FILTER (success) AS won "
                f"FROM read_parquet({sql_views.quoted_path(files.turns)}) GROUP BY task_id",
            )
        rows = _asked(
            connection,
            "SELECT task_id, a.family, a.goal, a.group_id, b.group_id, a.won, a.rollouts, b.won, b.rollouts "
            "FROM a JOIN b USING (task_id) ORDER BY abs(a.won / a.rollouts - b.won / b.rollouts) DESC, task_id",
        )
    found = [TaskDifference(row[0], row[1] or "", one_line(row[2]), *row[3:]) for row in rows]
    return found[:MOST], len(found)


@dataclass(frozen=True)
class Games:
    """Held-out games that two policies have both played: (game, family, a won, b won) of those that one solved more
    often, and the number of all.
    """

    differ: list[tuple[str, str, int, int]]
    common: int


def evaluated(layout: Layout, a: tuple[str, int, int], b: tuple[str, int, int], mode: str) -> Games | None:
    """Two policies, each (method, seed, round), on held-out games sampled in this mode of evaluation; None where one of
    them has not been evaluated."""
    paths = [Path(layout.path("evals", dict(zip(("method", "seed", "round"), one, strict=True)))) for one in (a, b)]
    if not all(path.exists() for path in paths):
        return None
    parts = [f"read_parquet({sql_views.quoted_path(path)})" for path in paths]
    each = (
        "SELECT task_id, any_value(family) AS family, sum(success::INT)::INT AS won FROM {} "
        f"WHERE mode = {sql_views.quoted(mode)} GROUP BY task_id"
    )
    with sql_views.open_connection(MEMORY) as connection:
        rows = _asked(
            connection,
            f"SELECT task_id, a.family, a.won, b.won FROM ({each.format(parts[0])}) AS a "
            f"JOIN ({each.format(parts[1])}) AS b USING (task_id) ORDER BY abs(a.won - b.won) DESC, task_id",
        )
    return Games([row for row in rows if row[2] != row[3]], len(rows))


def _asked(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple]:
    try:
        return connection.execute(query).fetchall()
    except duckdb.Error as error:
        raise UserError(f"these rounds cannot be compared ({str(error).splitlines()[0]})") from None
