"""Where two methods differ most on the same turns, and two rounds of runs on the same tasks."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import duckdb
import numpy as np

from turncredit.config.layout import Layout
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.pages.data import FULL_COLOUR, known_signs_N, scale_of
from turncredit.views.pages.formats import one_line
from turncredit.views.show.find import Files
from turncredit.views.viewer.round_views import MEMORY, opened

#: Lines of each list, and of that of held-out games.
MOST, MOST_GAMES = 40, 100


class TurnDifference(NamedTuple):
    """A turn, what was done in it, and both methods' credit in units of their own full colour.

    true    A*, None where it was not measured; se: its standard error, if the table has one
    known   whether the sign of A* is known: `pages.data.known_signs_N`
    """

    group: str
    rollout: str
    turn: int
    action: str
    success: bool
    a: float
    b: float
    true: float | None
    se: float | None
    known: bool = False

    def agrees(self, credit: float) -> bool:
        """Whether a credit has the sign of A*."""
        return credit * (self.true or 0.0) > 0

    def clashes(self, credit: float) -> bool:
        """Whether a credit has the opposite sign of an A* whose sign is known."""
        return self.known and self.agrees(-credit)


@dataclass(frozen=True)
class Judged:
    """Two methods on the turns whose A* was measured.

    turns     the first of them: those with a known sign, then the others, each with the largest differences first
    count     how many there are; known: those with a known sign
    right     on how many of the known signs each method is right
    scale     the size of A* in full colour
    """

    turns: list[TurnDifference]
    count: int
    known: int
    right: tuple[int, int]
    scale: float


@dataclass(frozen=True)
class Methods:
    """Two methods on the rollouts of a round.

    turns         those where they differ most, by |credit| in units of each method's full colour
    judged        None where no A* was measured
    correlation   Pearson's, of both over all turns; None where one is constant
    opposite      the share of turns to which they give opposite signs
    scales        the size of each method's credit in full colour
    """

    turns: list[TurnDifference]
    count: int
    judged: Judged | None
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


@dataclass(frozen=True)
class Tasks:
    """The tasks that two rounds have in common.

    differ      those on which success differs most
    count       how many there are
    won, of     successes and rollouts of each side on all of them
    """

    differ: list[TaskDifference]
    count: int
    won: tuple[int, int]
    of: tuple[int, int]


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
        (scale_a, largest_a), (scale_b, largest_b) = (_sizes(connection, name) for name in (first, second))
        # Credit that is rounding alone is 0, as on the credit pages.
        credit = "coalesce(round({0}.advantage / nullif(?, 0), 12), 0) * ? AS {0}"
        both = (
            f"SELECT group_id, rollout_id, turn, {credit.format('a')}, {credit.format('b')} "
            "FROM (FROM credits WHERE method = ?) AS a JOIN (FROM credits WHERE method = ?) AS b "
            "USING (group_id, rollout_id, turn)"
        )
        values = [largest_a, largest_a / scale_a, largest_b, largest_b / scale_b, first, second]
        count, correlation, opposite = connection.execute(
            f"SELECT count(*), corr(a, b), avg((a * b < 0)::INT) FROM ({both})", values
        ).fetchone()
        there = {name for (name,) in connection.execute("SELECT view_name FROM duckdb_views()").fetchall()}
        asked = _turns(connection, both, columns, "branches" in there)
        order = "ORDER BY abs(a - b) DESC, 1, 2, 3"
        turns = _read(connection, f"{asked} {order} LIMIT {MOST}", values)
        branched = []
        if "branches" in there:
            branched = _known(_read(connection, f"{asked} WHERE isfinite(t.advantage_true) {order}", values))
    known = {(one.group, one.rollout, one.turn) for one in branched if one.known}
    return Methods(
        turns=[one._replace(known=(one.group, one.rollout, one.turn) in known) for one in turns],
        count=count,
        judged=_judged(branched) if branched else None,
        correlation=correlation if correlation is not None and math.isfinite(correlation) else None,
        opposite=float(opposite or 0.0),
        scales=(scale_a, scale_b),
        problems=problems,
    )


def _known(branched: list[TurnDifference]) -> list[TurnDifference]:
    """Turns with A*, and whether its sign is known."""
    true_N = np.array([one.true for one in branched], float)
    se_N = np.array([one.se for one in branched], float)  # NaN where the table has none, so that nothing is known
    known = known_signs_N(true_N, se_N).tolist()
    return [one._replace(known=sure) for one, sure in zip(branched, known, strict=True)]


def _judged(branched: list[TurnDifference]) -> Judged:
    sure = [one for one in branched if one.known]
    sizes = [abs(one.true or 0.0) for one in branched]
    return Judged(
        turns=sorted(branched, key=lambda one: not one.known)[:MOST],
        count=len(branched),
        known=len(sure),
        right=(sum(one.agrees(one.a) for one in sure), sum(one.agrees(one.b) for one in sure)),
        scale=scale_of(float(np.quantile(sizes, FULL_COLOUR)), max(sizes)),
    )


def _turns(connection: duckdb.DuckDBPyConnection, both: str, columns: set[str], branches: bool) -> str:
    """The turns that both methods credit as SQL, with A* where there is some: the columns of `TurnDifference`."""
    action = next((f"x.{name}" for name in ("action", "response_text") if name in columns), "NULL")
    true = se = "NULL"
    joined = ""
    if branches:
        named = {row[0] for row in connection.execute("DESCRIBE branches").fetchall()}
        true, se = "t.advantage_true", "t.advantage_true_se" if "advantage_true_se" in named else "NULL"
        joined = "LEFT JOIN branches AS t USING (group_id, rollout_id, turn)"
    return (
        f"SELECT group_id::VARCHAR, rollout_id::VARCHAR, turn, {action}, r.success, a, b, {true}, {se} "
        f"FROM ({both}) AS d JOIN turns AS x USING (group_id, rollout_id, turn) "
        f"JOIN rollouts AS r ON r.group_id = d.group_id::VARCHAR AND r.rollout_id = d.rollout_id::VARCHAR {joined}"
    )


def _read(connection: duckdb.DuckDBPyConnection, query: str, values: list) -> list[TurnDifference]:
    rows = connection.execute(query, values).fetchall()
    return [
        TurnDifference(group, rollout, turn, one_line(action), success, a, b, true, se)
        for group, rollout, turn, action, success, a, b, true, se in rows
    ]


def _sizes(connection: duckdb.DuckDBPyConnection, method: str) -> tuple[float, float]:
    """The size of a method's credit that is drawn in full colour, and the largest size."""
    quantile, largest = connection.execute(
        f"SELECT quantile_cont(abs(advantage), {FULL_COLOUR}), max(abs(advantage)) FROM credits WHERE method = ?",
        [method],
    ).fetchone()
    return scale_of(float(quantile or 0.0), float(largest or 0.0)), float(largest or 0.0)


def rounds(a: Files, b: Files) -> Tasks:
    """The tasks that both rounds have, those on which success differs most first. Raises UserError."""
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
    return Tasks(
        differ=found[:MOST],
        count=len(found),
        won=(sum(one.won_a for one in found), sum(one.won_b for one in found)),
        of=(sum(one.of_a for one in found), sum(one.of_b for one in found)),
    )


class GameDifference(NamedTuple):
    """A held-out game, and how often each side solved and played it."""

    game: str
    family: str
    won_a: int
    of_a: int
    won_b: int
    of_b: int

    @property
    def apart(self) -> float:
        """The success of the first side minus that of the second."""
        return self.won_a / self.of_a - self.won_b / self.of_b


@dataclass(frozen=True)
class Games:
    """Held-out games that two policies have both played.

    differ       the first of those that one of them solved more often
    better       how many each of them solved more often
    common       the number of all
    won, of      successes and rollouts of each side on all of them
    """

    differ: list[GameDifference]
    better: tuple[int, int]
    common: int
    won: tuple[int, int]
    of: tuple[int, int]


def evaluated(layout: Layout, a: tuple[str, int, int], b: tuple[str, int, int], mode: str) -> Games | None:
    """Two policies, each (method, seed, round), on held-out games sampled in this mode of evaluation; None where one of
    them has not been evaluated."""
    paths = [Path(layout.path("evals", dict(zip(("method", "seed", "round"), one, strict=True)))) for one in (a, b)]
    if not all(path.exists() for path in paths):
        return None
    parts = [f"read_parquet({sql_views.quoted_path(path)})" for path in paths]
    each = (
        "SELECT task_id, any_value(family) AS family, sum(success::INT)::INT AS won, count(*) AS played FROM {} "
        f"WHERE mode = {sql_views.quoted(mode)} GROUP BY task_id"
    )
    with sql_views.open_connection(MEMORY) as connection:
        rows = _asked(
            connection,
            f"SELECT task_id, a.family, a.won, a.played, b.won, b.played FROM ({each.format(parts[0])}) AS a "
            f"JOIN ({each.format(parts[1])}) AS b USING (task_id) "
            "ORDER BY abs(a.won / a.played - b.won / b.played) DESC, task_id",
        )
    found = [GameDifference(*row) for row in rows]
    return Games(
        differ=[one for one in found if one.apart][:MOST_GAMES],
        better=(sum(one.apart > 0 for one in found), sum(one.apart < 0 for one in found)),
        common=len(found),
        won=(sum(one.won_a for one in found), sum(one.won_b for one in found)),
        of=(sum(one.of_a for one in found), sum(one.of_b for one in found)),
    )


def _asked(connection: duckdb.DuckDBPyConnection, query: str) -> list[tuple]:
    try:
        return connection.execute(query).fetchall()
    except duckdb.Error as error:
        raise UserError(f"these rounds cannot be compared ({str(error).splitlines()[0]})") from None
