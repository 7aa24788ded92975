"""Turns and input tokens of each method's training rollouts, its subgoals, and HIPIF's penalties: tables and curves.

Only for experiments with several agents, or with one that has subgoals. They are the quantities of HIPIF, section 4.4:
completion steps and input tokens of a rollout, and input tokens turn by turn.

Tokens are stored once: `prompt_ids` are those that entered the context since the last response, all of it where
`context_reset`. So the context that turn t reads is the sum of the prompts since the last reset up to t, and of the
responses before t. This holds for every agent, whether it appends, rebuilds its prompt or folds its history.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import duckdb
import numpy as np
import pandas as pd

from turncredit.config.layout import Layout, sampled_by
from turncredit.errors import UserError
from turncredit.stats.intervals import mean_of_seeds
from turncredit.views import sql_views
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid, Number
from turncredit.views.report.selection import files_of, listed
from turncredit.views.sql_views import RUN_CREDITS, quoted

#: the mean at a turn is drawn while at least this share of the rollouts has the turn
REACHED = 0.1
#: as many of the most frequent faults get a column
FAULTS = 8
#: what is summed over turns -> the agent's own columns that it needs, and the SQL of a turn over `turns_sql`
SUMS: dict[str, tuple[tuple[str, ...], str]] = {
    "context": ((), "context"),
    "prefilled": ((), "prefilled"),
    "well_formed": ((), "well_formed::INT"),
    "under": (("subgoal",), "(subgoal <> '')::INT"),
    "began": (("subgoal", "subgoal_index"), "(subgoal <> '')::INT * (subgoal_index IS DISTINCT FROM earlier)::INT"),
    "folded": (("folded_tokens",), "folded_tokens"),
    "truncated": (("truncated_tokens",), "truncated_tokens"),
}
#: what sums are divided by -> its SQL
COUNTED = {"turns": "count(*)", "rollouts": "sum((turn = 0)::INT)"}


class Quantity(NamedTuple):
    """A column of the tables. `value`: SQL of one seed's number over the rows of `_source(of)`; `sums`: those of `SUMS`
    in it."""

    column: Column
    unit: str
    value: str
    of: str
    sums: Sequence[str] = ()


def _ratio(key: str, heading: str, meaning: str, unit: str, top: str, bottom: str) -> Quantity:
    """One sum over turns divided by another: of `SUMS`, or `turns`, or `rollouts`."""
    above, below = (COUNTED.get(name) or f"sum({SUMS[name][1]})" for name in (top, bottom))
    sums = [name for name in (top, bottom) if name in SUMS]
    return Quantity(Column(key, heading, meaning), unit, f"{above} / {below}", "turns", sums)


def _charge(name: str, heading: str, meaning: str) -> Quantity:
    """The share of turns that the method's own credit charges with a penalty."""
    return Quantity(Column(name, heading, meaning), "share", f"sum(({name} < 0)::INT) / count(*)", "credits")


def _fault(name: str) -> Quantity:
    """The share of turns with a fault."""
    value = f"sum(coalesce(fault = {quoted(name)}, false)::INT) / count(*)"
    return Quantity(Column(name, name, f"turns with the fault '{name}'"), "share", value, "faults")


_CONTEXT = "tokens of the context, summed over the turns of a rollout: what a model without a cache reads"
_NEW = (
    "tokens that enter the context, summed over the turns of a rollout: what is left to read with a cache that is "
    "emptied at each reset"
)
_MISSING = "tokens that did not fit into the context at one turn"
_FOLDED = "tokens of folded subgoals in the context at one turn"
READ = (
    _ratio("turns", "turns", "turns of a rollout, successful or not", "number", "turns", "rollouts"),
    _ratio("context", "context tokens", _CONTEXT, "count", "context", "rollouts"),
    _ratio("context_turn", "context tokens a turn", "tokens of the context at one turn", "count", "context", "turns"),
    _ratio("prefilled", "new tokens", _NEW, "count", "prefilled", "rollouts"),
    _ratio("well_formed", "well-formed", "share of responses in the agent's format", "share", "well_formed", "turns"),
    _ratio("truncated", "missing tokens a turn", _MISSING, "number", "truncated", "turns"),
)
PLANNED = (
    _ratio("subgoals", "subgoals", "subgoals that a rollout starts", "number", "began", "rollouts"),
    _ratio("turns_per_subgoal", "turns per subgoal", "turns under a subgoal, by subgoals", "number", "under", "began"),
    _ratio("folded", "folded tokens a turn", _FOLDED, "number", "folded", "turns"),
)
#: HIPIF's penalties, in the paper's order (credit/hipif.py)
CHARGED = (
    _charge("r_grounding", "ungrounded", "turns that start a subgoal without an object or place seen"),
    _charge("r_termination", "ended in failure", "last turns of finished subgoals whose action failed, in successes"),
    _charge("r_execution", "repeated", "the same action and observation, the third time in a subgoal on"),
    _charge("r_format", "malformed", "turns without the required tags"),
)


@dataclass(frozen=True)
class Measured:
    """Quantities and their values: one row per method and seed, a column for each quantity, `n_turns`, `n_rollouts`."""

    quantities: Sequence[Quantity]
    by_seed: pd.DataFrame


@dataclass(frozen=True)
class Contexts:
    """Quantities of each run's training rollouts, all of its rounds pooled.

    read, planned, charged, faults   the tables' columns, without those that no agent has
    turns     one row per method, seed and number of a turn: `agent`, the `rollouts` that have this turn, and the sum of
              their `context`
    faulty    one row per method, seed and `fault`: the `turns` with it
    """

    read: Measured
    planned: Measured
    charged: Measured
    faults: Measured
    turns: pd.DataFrame
    faulty: pd.DataFrame


def read_contexts(layout: Layout) -> Contexts | None:
    """The contexts of an experiment with several agents, or with one that has subgoals; None for any other.

    Raises UserError for turns that cannot be read.
    """
    try:
        with sql_views.connect([layout], f"SELECT FROM turns, runs, {RUN_CREDITS}") as connection:
            columns = connection.table("turns").columns
            agents = connection.execute("SELECT count(DISTINCT agent) FROM turns").fetchall()[0][0]
            return _read(connection, layout.root.name) if "subgoal" in columns or agents > 1 else None
    except duckdb.Error as error:
        raise UserError(f"{layout.root}: the turns cannot be read ({str(error).splitlines()[0]})") from None


def _read(connection: duckdb.DuckDBPyConnection, experiment: str) -> Contexts:
    """One query gives all methods' numbers of a table. The one printed under a number chooses its method and seeds."""
    columns, credited = (set(connection.table(view).columns) for view in ("turns", RUN_CREDITS))
    there = [name for name, (needs, _) in SUMS.items() if set(needs) <= columns]
    by_turn = (
        "SELECT method, seed, turn, string_agg(DISTINCT agent, ', ' ORDER BY agent) AS agent, count(*) AS rollouts, "
        f"sum(context)::BIGINT AS context FROM {_source(experiment, 'turns', there)} GROUP BY ALL ORDER BY ALL"
    )
    faults = pd.DataFrame(columns=["method", "seed", "fault", "turns"])
    if "fault" in columns:
        found = f"SELECT method, seed, fault, count(*) AS turns FROM {_source(experiment, 'faults')} WHERE fault <> ''"
        faults = connection.execute(f"{found} GROUP BY ALL ORDER BY ALL").df()
    often = faults.groupby("fault")["turns"].sum().sort_values(ascending=False, kind="stable").index[:FAULTS]

    def measured(of: str, quantities: Iterable[Quantity]) -> Measured:
        kept = [one for one in quantities if set(one.sums) <= set(there)]
        values = [
            *((one.column.key, one.value) for one in kept),
            *((f"n_{name}", sql) for name, sql in COUNTED.items()),
        ]
        listed = ", ".join(f'{sql} AS "{key}"' for key, sql in values)
        query = (
            f"SELECT method, seed, {listed} FROM {_source(experiment, of, there)} GROUP BY ALL ORDER BY method, seed"
        )
        return Measured(kept, connection.execute(query).df())

    return Contexts(
        read=measured("turns", READ),
        planned=measured("turns", PLANNED),
        charged=measured("credits", CHARGED if {one.column.key for one in CHARGED} <= credited else ()),
        faults=measured("faults", [_fault(str(fault)) for fault in often]),
        turns=connection.execute(by_turn).df(),
        faulty=faults,
    )


def _source(experiment: str, of: str, sums: Sequence[str] = ()) -> str:
    """The rows that a quantity is computed from, as SQL: `turns` with what `sums` need, as they are for `faults`, or
    the `credits` of the runs."""
    if of == "credits":
        return f"(SELECT * FROM {RUN_CREDITS} WHERE experiment = {quoted(experiment)})"
    rows = (
        turns_sql(experiment, sums) if of == "turns" else f"SELECT * FROM turns WHERE experiment = {quoted(experiment)}"
    )
    return f"({rows}) JOIN runs USING (experiment, policy, seed, round)"


def turns_sql(experiment: str, sums: Sequence[str]) -> str:
    """The turns of an experiment with what some of `SUMS` need, as SQL.

    context    all tokens of the context at the turn: what a model without a cache reads
    prefilled  the tokens that entered the context since the last response; after a reset all of them
    """
    rollout = "PARTITION BY policy, seed, round, group_id, rollout_id"
    own = list(dict.fromkeys(column for name in sums for column in SUMS[name][0]))
    columns = [
        *("experiment", "policy", "seed", "round", "group_id", "rollout_id", "turn", "agent", "well_formed"),
        "len(prompt_ids) AS prefilled",
        "len(response_ids) AS written",
        f"sum(context_reset::INT) OVER ({rollout} ORDER BY turn) AS part",
        *own,
    ]
    if "subgoal_index" in own:
        # Turns before the first subgoal have none, and its number.
        index = "CASE WHEN subgoal <> '' THEN subgoal_index END"
        columns.append(f"lag({index}) OVER ({rollout} ORDER BY turn) AS earlier")
    return (
        f"SELECT *, sum(prefilled + written) OVER ({rollout}, part ORDER BY turn) - written AS context "
        f"FROM (SELECT {', '.join(columns)} FROM turns WHERE experiment = {quoted(experiment)})"
    )


def context_grids(results: Results, names: Sequence[str], contexts: Contexts) -> list[Grid]:
    """The tables of contexts, of subgoals with their penalties, and of faults."""
    which = (
        f"Training rollouts of rounds 1 to {results.experiment.rounds} of finished seeds; round 1 is sampled by the "
        "SFT policy. Means over rollouts, then over seeds, with 95% intervals over seeds (none with one seed)."
    )
    read = Grid(
        name="contexts",
        title="Turns and input tokens of a rollout",
        caption=(
            f"{which} Two counts of input tokens: context tokens count at every turn all that is in the context (the "
            "input tokens of HIPIF's paper); new tokens count a token when it enters a context, and again after a "
            "reset. An engine that keeps the common beginning of two contexts reads fewer than the new tokens."
        ),
        columns=[
            Column("agent", "agent", "the agent that played the turns"),
            *(one.column for one in contexts.read.quantities),
        ],
    )
    planned = Grid(
        name="subgoals",
        title="Subgoals and penalties",
        caption="The same rollouts. Penalties: shares of all turns that the method's own credit charges.",
        columns=[*(one.column for one in (*contexts.planned.quantities, *contexts.charged.quantities))],
    )
    faults = Grid(
        name="faults",
        title="Malformed responses by fault",
        caption="The same rollouts: shares of all turns.",
        columns=[one.column for one in contexts.faults.quantities],
        closed=True,
    )
    for method in names:
        turns = _of(contexts.turns, results, method)
        if turns.empty:
            continue
        agents = sorted({name for row in turns["agent"] for name in row.split(", ")})
        read.rows[method] = {"agent": ", ".join(agents), **_cells(results, method, contexts.read)}
        if cells := _cells(results, method, contexts.planned) | _cells(results, method, contexts.charged):
            planned.rows[method] = cells
        if len(_of(contexts.faulty, results, method)):
            faults.rows[method] = _cells(results, method, contexts.faults)
    return [read, planned, faults]


def context_curves(contexts: Contexts, seeds: Mapping[str, Sequence[int]]) -> pd.DataFrame:
    """Mean context tokens turn by turn: method, turn, tokens; the mean is over the rollouts that have the turn.

    `seeds`: the seeds of each method. Turns that fewer than one rollout in ten has are left out.
    """
    parts = []
    for method, which in seeds.items():
        rows = contexts.turns[(contexts.turns["method"] == method) & contexts.turns["seed"].isin(which)]
        sums = rows.groupby("turn")[["rollouts", "context"]].sum()
        if len(sums):
            sums = sums[sums["rollouts"] >= REACHED * sums["rollouts"].iloc[0]]
            tokens = (sums["context"] / sums["rollouts"]).to_numpy()
            parts.append(pd.DataFrame({"method": method, "turn": sums.index, "tokens": tokens}))
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame(columns=["method", "turn", "tokens"])


def _of(frame: pd.DataFrame, results: Results, method: str) -> pd.DataFrame:
    """A method's rows of its finished seeds."""
    return frame[(frame["method"] == method) & frame["seed"].isin(results.finished_seeds(method))]


def _cells(results: Results, method: str, measured: Measured) -> dict[str, Cell]:
    """The mean over seeds of each quantity that the method's turns have the columns for."""
    rows = _of(measured.by_seed, results, method).set_index("seed")
    found = [(one, rows[one.column.key].dropna()) for one in measured.quantities]
    return {one.column.key: _mean(results, method, one, value_S, rows) for one, value_S in found if len(value_S)}


def _mean(results: Results, method: str, one: Quantity, value_S: pd.Series, rows: pd.DataFrame) -> Number:
    """The mean over seeds as a number, with the SQL that computes it."""
    seeds = [int(seed) for seed in value_S.index]
    counted = "rollouts" if one.of == "turns" else "turns"
    n = int(rows.loc[value_S.index, f"n_{counted}"].sum())
    mean = mean_of_seeds(value_S.to_numpy(dtype=np.float64), n, 0)
    top = 1.0 if one.unit == "share" else np.inf
    low, high = (None if np.isnan(end) else float(np.clip(end, 0.0, top)) for end in (mean.low, mean.high))
    sql = (
        f"SELECT avg(value) FROM (SELECT seed, {one.value} AS value FROM "
        f"{_source(results.folder.name, one.of, one.sums)} WHERE method = {quoted(method)} "
        f"AND seed IN ({listed(seeds)}) GROUP BY seed)"
    )
    rounds: dict[str, list[str | int]] = {}
    for round_ in range(1, results.experiment.rounds + 1):
        rounds.setdefault(sampled_by(results.experiment, method, round_), []).append(round_)
    artifact, keys = ("credits", {"method": [method]}) if one.of == "credits" else ("turns", {})
    path = " ".join(
        files_of(artifact, policy=[policy], round=which, seed=seeds, **keys) for policy, which in rounds.items()
    )
    note = f"n: {n} {counted}, {mean.seeds} seed{'s' if mean.seeds > 1 else ''}; interval over {mean.covers}"
    return Number(mean.value, one.unit, sql, path, low, high, n, note)
