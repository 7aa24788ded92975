"""Collect an experiment's results: evaluations, training success, metrics, and what is still missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import duckdb
import pandas as pd
import pyarrow as pa

from turncredit.config import Experiment
from turncredit.config.layout import Layout, Located
from turncredit.config.stages import stages_in
from turncredit.config.warm_starts import is_start
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.experiments import read_config

#: The measures of the rounds' turns, by view.
ANALYSES = tuple(
    kind.schema for one in stages_in("audit") if one.policy != "samples" for kind in one.makes.values() if kind.schema
)
#: The columns that the report reads of tables with a row per turn, by view.
_COLUMNS = {
    "turns": "turn_id, experiment, policy, seed, round, group_id, rollout_id, success, valid",
    "labels": "turn_id, experiment, judge, role",
    "branches": "turn_id, experiment, policy, seed, round, group_id, rollout_id, advantage_true",
}


@dataclass(frozen=True)
class Results:
    """One experiment's results.

    connection  the views of `turncredit sql` as tables in memory: those of `_COLUMNS`, `evals`, `ANALYSES`, `runs` and
                `metrics`. Every number of the report is what the query printed under it gives here
    evals, metrics   these tables as frames
    training    one row per method, seed and round: policy, rollouts, successes, turns, invalid
    runs        one row per method and seed: evaluated and wanted rounds, `finished`, `configured`
    analysis    those of `ANALYSES` that exist, as frames
    pages       the credit pages' indexes
    layout      the artifacts that were looked at
    """

    experiment: Experiment
    layout: Layout
    folder: Path
    connection: duckdb.DuckDBPyConnection
    evals: pd.DataFrame
    training: pd.DataFrame
    metrics: pd.DataFrame
    runs: pd.DataFrame
    analysis: dict[str, pd.DataFrame]
    pages: list[Located]

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the configuration, then those that are only on disk."""
        return list(dict.fromkeys(self.runs["method"]))

    def finished_seeds(self, method: str) -> list[int]:
        """The seeds of `method` whose last three rounds are all evaluated."""
        rows = self.runs[(self.runs["method"] == method) & self.runs["finished"]]
        return rows["seed"].tolist()

    def rows(self, sql: str) -> pd.DataFrame:
        """What a query gives."""
        return self.connection.execute(sql).df()

    def value(self, sql: str) -> float:
        """The number that a query gives; NaN for none, and for a ratio with denominator 0."""
        found = self.connection.execute(sql).fetchone()
        value = float("nan") if found is None or found[0] is None else float(found[0])
        return value if math.isfinite(value) else float("nan")


def collect(
    results: str | Path, experiment: Experiment | None = None, make_layout: Callable[[Path], Layout] = Layout
) -> Results:
    """Read the experiment in the folder `results` (`experiment`: its configuration, read from there if not given).

    `make_layout` makes the folder's layout, which says which artifacts are looked at.

    Raises UserError for a folder without evaluations, and TableError for a damaged or foreign table.
    """
    folder = Path(results).resolve()
    experiment = experiment or read_config(folder)
    layout = make_layout(folder)
    small = {"metrics": sql_views.metrics_table([layout]), "runs": sql_views.runs_table([layout])}
    small |= {view: found for view in ("evals", *ANALYSES) if (found := _checked(layout, view)) is not None}
    if "evals" not in small:
        raise UserError(f"{results}: no evaluation yet (no evals.parquet); run Snakemake until the first one is there")
    connection = in_memory(small | _narrowed(layout))
    evals = small["evals"].to_pandas()
    return Results(
        experiment,
        layout,
        folder,
        connection,
        evals,
        connection.execute(_TRAINING).df(),
        small["metrics"].to_pandas(),
        _runs(experiment, evals),
        analysis={view: small[view].to_pandas() for view in ANALYSES if view in small},
        pages=list(layout.find("pages")),
    )


def _checked(layout: Layout, view: str) -> pa.Table | None:
    """All tables of one view, with the experiment and the keys of their files; None if there is no row.

    Raises UserError for evaluations whose columns contradict their folder, which determines the run.
    """
    parts = []
    for located in (located for name in sql_views.TABLES[view] for located in layout.find(name)):
        table = tables.read(located.path, view)
        for key, value in {"experiment": layout.root.name, **located.keys}.items():
            if key in table.column_names:
                if view == "evals" and len(table) and table.column(key).unique().to_pylist() != [value]:
                    said = table.column(key)[0].as_py()
                    raise UserError(f"{located.path}: its column '{key}' is {said!r}; move the file back to its place")
                table = table.drop_columns(key)
            table = table.append_column(key, pa.array([value] * len(table)))
        parts.append(table)
    whole = pa.concat_tables(parts, promote_options="permissive") if parts else None
    return whole if whole is not None and len(whole) else None


def _narrowed(layout: Layout) -> dict[str, pa.Table]:
    """The tables of `_COLUMNS`."""
    try:
        with sql_views.connect([layout], f"SELECT {', '.join([*_COLUMNS, *_COLUMNS.values()])}", alike=True) as views:
            return {
                view: views.sql(f"SELECT {columns} FROM {view}").to_arrow_table() for view, columns in _COLUMNS.items()
            }
    except duckdb.Error as error:
        raise UserError(f"{layout.root}: the turns cannot be read ({str(error).splitlines()[0]})") from None


def in_memory(given: dict[str, pa.Table]) -> duckdb.DuckDBPyConnection:
    """A connection with these tables. It has one thread, so that a sum is always added up in the same order."""
    connection = duckdb.connect(config={"threads": 1})
    for name, table in given.items():
        connection.register("given", table)
        connection.execute(f"CREATE TABLE {name} AS FROM given")
        connection.unregister("given")
    return connection


#: Training rollouts of each run and round. Runs with the same sampling settings share the SFT policy's of round 1.
_TRAINING = """
    SELECT method, seed, round, policy, rollouts, successes, turns, invalid
    FROM runs JOIN (
        SELECT policy, seed, round, count(*)::BIGINT AS rollouts, sum(success::INT)::BIGINT AS successes,
               sum(turns)::BIGINT AS turns, sum(invalid)::BIGINT AS invalid
        FROM (SELECT policy, seed, round, bool_or(success) AS success, count(*) AS turns,
                     sum((NOT valid)::INT) AS invalid
              FROM turns GROUP BY policy, seed, round, group_id, rollout_id)
        GROUP BY policy, seed, round) USING (policy, seed, round)
    ORDER BY method, seed, round"""


def _runs(experiment: Experiment, evals: pd.DataFrame) -> pd.DataFrame:
    """One row per run that is configured or has an evaluation."""
    wanted = experiment.eval_rounds()
    primary = evals[(evals["mode"] == experiment.eval.primary) & ~evals["method"].map(is_start).astype(bool)]
    have = {key: sorted(set(rows)) for key, rows in primary.groupby(["method", "seed"])["round"]}
    configured = experiment.runs()
    rows = []
    for method, seed in [*configured, *sorted(set(have) - set(configured))]:
        evaluated = have.get((method, seed), [])
        finished = set(wanted[-3:]) <= set(evaluated)
        rows.append((method, seed, evaluated, wanted, finished, (method, seed) in configured))
    names = ["method", "seed", "evaluated", "wanted", "finished", "configured"]
    return pd.DataFrame(rows, columns=names).astype({"finished": bool, "configured": bool})
