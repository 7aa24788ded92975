"""The value of a judge's roles: the true advantage of the turns with each role, by the rollout's outcome."""

from __future__ import annotations

import numpy as np
import pandas as pd

from turncredit.judges.rubric import ROLE_NAMES, ROLES
from turncredit.stats.bootstrap import FEWEST_GROUPS
from turncredit.stats.levels import student_half
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid, computed
from turncredit.views.report.selection import files_of
from turncredit.views.sql_views import quoted

_ENDS = {"success": True, "failure": False}
_FROM = (
    "FROM labels l JOIN branches b USING (turn_id) JOIN turns t USING (turn_id) "
    "WHERE l.experiment = {experiment} AND l.role IS NOT NULL"
)


def judged(results: Results) -> list[Grid]:
    """One grid: a row for each judge and role, the mean true advantage inside successes and inside failures.

    Intervals by task group (the turns of one group are not independent). No grid without role labels or ground truth.
    """
    if not any(results.layout.find("labels", question="role")):
        return []
    source = _FROM.format(experiment=quoted(results.folder.name))
    query = (
        "SELECT l.judge, l.role, t.success, b.policy, b.seed, b.round, b.group_id, sum(b.advantage_true) AS total, "
        f"count(*) AS turns {source} GROUP BY ALL ORDER BY ALL"
    )
    frame = results.rows(query)
    if frame.empty:
        return []
    grid = Grid(
        name="judged",
        title="Roles against the truth",
        caption=(
            "Mean true advantage A* of the branched turns with each role. Role credit is right if "
            "regressions inside successes are below zero and exploration inside failures is above. Intervals by group."
        ),
        columns=[
            column
            for end in _ENDS
            for column in (
                Column(end, f"A*, {end}", f"mean A* of such turns in rollouts that ended in {end}"),
                Column(f"{end}_turns", "turns", "how many branched turns"),
                Column(f"{end}_rollouts", "rollouts", "rollouts that these turns are of"),
                Column(f"{end}_groups", "groups", "task groups that these turns are of"),
            )
        ],
    )
    for judge in sorted(set(frame["judge"])):
        for role in ROLES:
            rows = frame[(frame["judge"] == judge) & (frame["role"] == role)]
            if rows.empty:
                continue
            cells: dict[str, Cell] = {}
            for end, success in _ENDS.items():
                where = f"{source} AND l.judge = {quoted(judge)} AND l.role = {quoted(role)} AND t.success = {success}"
                cells |= _cells(results, rows[rows["success"] == success], end, where)
            grid.rows[f"{judge}: {ROLE_NAMES[role]}"] = cells
    return [grid]


def _distinct(columns: str, where: str) -> str:
    return f"SELECT count(*) FROM (SELECT DISTINCT {columns} {where})"


def _cells(results: Results, rows: pd.DataFrame, end: str, where: str) -> dict[str, Cell]:
    """The mean over turns with its interval by group, and the numbers of turns, rollouts and groups."""
    if rows.empty:
        return {end: None, **dict.fromkeys((f"{end}_turns", f"{end}_rollouts", f"{end}_groups"))}
    mean = f"SELECT avg(b.advantage_true) {where}"
    counted = {
        "turns": f"SELECT count(*) {where}",
        "rollouts": _distinct("b.policy, b.seed, b.round, b.rollout_id", where),
        "groups": _distinct("b.policy, b.seed, b.round, b.group_id", where),
    }
    files, turns = files_of("branches"), int(rows["turns"].sum())
    low, high = interval(rows, results.value(mean))
    return {
        end: computed(results, mean, "correlation", files, low=low, high=high, n=turns),
        **{f"{end}_{name}": computed(results, sql, "count", files) for name, sql in counted.items()},
    }


def interval(rows: pd.DataFrame, mean: float) -> tuple[float, float] | tuple[None, None]:
    """Student's t interval of a mean over turns, from each group's `total` and `turns`; none from too few groups.

    The mean is a ratio of two sums over groups, linearised: each group's total minus the mean times its turns.
    """
    if len(rows) < FEWEST_GROUPS:
        return None, None
    rest_G = (rows["total"] - mean * rows["turns"]).to_numpy()
    error = float(np.sqrt(len(rows) / (len(rows) - 1) * (rest_G**2).sum()) / rows["turns"].sum())
    half = student_half(error, len(rows) - 1)
    return mean - half, mean + half
