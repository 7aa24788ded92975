"""Collect an experiment's results: evaluations, training success, metrics, and what is still missing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import duckdb
import pandas as pd

from turncredit.config import Experiment
from turncredit.config.layout import Layout, Located
from turncredit.config.stages import stages_in
from turncredit.config.warm_starts import is_start
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.agent_contexts import Contexts, read_contexts
from turncredit.views.experiments import read_config

#: The measures of the rounds' turns, by view.
ANALYSES = tuple(
    kind.schema for one in stages_in("audit") if one.policy != "samples" for kind in one.makes.values() if kind.schema
)


@dataclass(frozen=True)
class Results:
    """One experiment's results. Frames: `evals` (schema "evals"), `training` (one row per method, seed and round:
    rollouts, successes, turns, invalid, path), `metrics` (`views.METRICS_SCHEMA`), `runs` (one row per method and seed:
    evaluated and wanted rounds, `finished`, `configured`). `analysis` has the tables "fidelity", "gradients", "leaks"
    and "invariants" with the keys of their files, if they exist; `pages` the credit pages' indexes; `labels` the number
    of files of role labels; `contexts` what was read turn by turn, None with a single agent that has no subgoals;
    `layout` the artifacts that were looked at."""

    experiment: Experiment
    layout: Layout
    folder: Path
    evals: pd.DataFrame
    training: pd.DataFrame
    metrics: pd.DataFrame
    runs: pd.DataFrame
    analysis: dict[str, pd.DataFrame]
    pages: list[Located]
    labels: int
    contexts: Contexts | None

    @property
    def methods(self) -> list[str]:
        """Methods in the order of the configuration, then those that are only on disk."""
        return list(dict.fromkeys(self.runs["method"]))

    @cached_property
    def branched_rollouts(self) -> Counter[tuple[str, int]]:
        """Rollouts with ground truth, of all seeds, by the policy that sampled them and the round."""
        count: Counter[tuple[str, int]] = Counter()
        for located in self.layout.find("branches"):
            ids = tables.read(located.path, "branches", ["group_id", "rollout_id"]).to_pylist()
            count[str(located.keys["policy"]), int(located.keys["round"])] += len({tuple(row.values()) for row in ids})
        return count

    def finished_seeds(self, method: str) -> list[int]:
        """The seeds of `method` whose last three rounds are all evaluated."""
        rows = self.runs[(self.runs["method"] == method) & self.runs["finished"]]
        return rows["seed"].tolist()


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
    evals = _evals(layout)
    if evals.empty:
        raise UserError(f"{results}: no evaluation yet (no evals.parquet); run Snakemake until the first one is there")
    return Results(
        experiment,
        layout,
        folder,
        evals,
        _training(layout),
        sql_views.metrics_table([layout]).to_pandas(),
        _runs(experiment, evals),
        analysis={name: frame for name in ANALYSES if len(frame := _analysis(layout, name))},
        pages=list(layout.find("pages")),
        labels=len(list(layout.find("labels", ask="role"))),
        contexts=read_contexts(layout),
    )


def _analysis(layout: Layout, view: str) -> pd.DataFrame:
    """All tables of one view, with the keys of their files."""
    parts = [
        tables.read(located.path, view).to_pandas().assign(**located.keys)
        for name in sql_views.TABLES[view]
        for located in layout.find(name)
    ]
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _evals(layout: Layout) -> pd.DataFrame:
    parts = []
    for located in layout.find("evals"):
        frame = tables.read(located.path, "evals").to_pandas()
        # The folder determines which run this is; the columns must agree with it.
        for name, value in located.keys.items():
            if len(frame) and set(frame[name]) != {value}:
                raise UserError(f"{located.path}: its column '{name}' is {frame[name].iloc[0]!r}; was the file moved?")
        parts.append(frame)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()


def _runs(experiment: Experiment, evals: pd.DataFrame) -> pd.DataFrame:
    """One row per run that is configured or has an evaluation."""
    wanted = experiment.eval_rounds()
    primary = evals[(evals["mode"] == experiment.eval.primary) & ~evals["method"].map(is_start).astype(bool)]
    have = {key: sorted(set(rows)) for key, rows in primary.groupby(["method", "seed"])["round"]}
    configured = experiment.runs()
    rows = []
    for method, seed in [*configured, *sorted(set(have) - set(configured))]:
        evaluated = have.get((method, seed), [])
        rows.append(
            {
                "method": method,
                "seed": seed,
                "evaluated": evaluated,
                "wanted": wanted,
                "finished": set(wanted[-3:]) <= set(evaluated),
                "configured": (method, seed) in configured,
            }
        )
    names = ["method", "seed", "evaluated", "wanted", "finished", "configured"]
    return pd.DataFrame(rows, columns=names).astype({"finished": bool, "configured": bool})


def _training(layout: Layout) -> pd.DataFrame:
    """Training rollouts of each run and round: numbers of rollouts, successes, turns and invalid turns.

    Runs with the same sampling settings share the SFT policy's rollouts of round 1.
    """
    query = """
        SELECT method, seed, round, rollouts, successes, turns, invalid, path
        FROM runs JOIN (
            SELECT policy, seed, round, path, count(*)::BIGINT AS rollouts, sum(success::INT)::BIGINT AS successes,
                   sum(turns)::BIGINT AS turns, sum(invalid)::BIGINT AS invalid
            FROM (SELECT policy, seed, round, path, bool_or(success) AS success, count(*) AS turns,
                         sum((NOT valid)::INT) AS invalid
                  FROM turns GROUP BY policy, seed, round, path, group_id, rollout_id)
            GROUP BY policy, seed, round, path) USING (policy, seed, round)
        ORDER BY method, seed, round"""
    try:
        with sql_views.connect([layout], query) as connection:
            return connection.execute(query).df()
    except duckdb.Error as error:
        raise UserError(f"{layout.root}: the turns cannot be read ({str(error).splitlines()[0]})") from None
