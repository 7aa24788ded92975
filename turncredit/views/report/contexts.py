"""Turns and input tokens of each method's training rollouts, its subgoals, and HIPIF's penalties: tables and curves.

Only for experiments with several agents, or with one that has subgoals. They are the quantities of HIPIF, section 4.4:
completion steps and input tokens of a rollout, and input tokens turn by turn.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pandas as pd

from turncredit.config.layout import sampled_by
from turncredit.stats.intervals import mean_of_seeds
from turncredit.views.agent_contexts import PENALTIES, SUMS, Contexts, turns_sql
from turncredit.views.collect import Results
from turncredit.views.report.grid import Cell, Column, Grid, Number
from turncredit.views.report.selection import files_of, listed
from turncredit.views.sql_views import RUN_CREDITS, quoted

#: the mean at a turn is drawn while at least this share of the rollouts has the turn
REACHED = 0.1
#: as many of the most frequent faults get a column
FAULTS = 8


class Ratio(NamedTuple):
    """A column: a sum over turns (`contexts.SUMS`, or `turns`) by another one, by `turns` or by `rollouts`."""

    heading: str
    meaning: str
    unit: str
    top: str
    bottom: str

    def computable(self, names: Sequence[str]) -> bool:
        """Whether both sums are among `names`."""
        return {self.top, self.bottom} <= {"turns", "rollouts", *names}

    @property
    def sql(self) -> str:
        """The ratio over the rows of `turns_sql`."""
        counted = {"turns": "count(*)", "rollouts": "sum((turn = 0)::INT)"}
        top, bottom = (counted.get(name) or f"sum({SUMS[name][1]})" for name in (self.top, self.bottom))
        return f"{top} / {bottom}"

    @property
    def sums(self) -> list[str]:
        """Which of the two are among `contexts.SUMS`."""
        return [name for name in (self.top, self.bottom) if name in SUMS]


READ = {
    "turns": Ratio("turns", "turns of a rollout, successful or not", "number", "turns", "rollouts"),
    "context": Ratio(
        "context tokens",
        "tokens of the context, summed over the turns of a rollout: what a model without a cache reads",
        "count",
        "context",
        "rollouts",
    ),
    "context_turn": Ratio("context tokens a turn", "tokens of the context at one turn", "count", "context", "turns"),
    "prefilled": Ratio(
        "new tokens",
        "tokens that enter the context, summed over the turns of a rollout: what is left to read with a cache that is "
        "emptied at each reset",
        "count",
        "prefilled",
        "rollouts",
    ),
    "well_formed": Ratio("well-formed", "share of responses in the agent's format", "share", "well_formed", "turns"),
    "truncated": Ratio(
        "missing tokens a turn", "tokens that did not fit into the context at one turn", "number", "truncated", "turns"
    ),
}
PLANNED = {
    "subgoals": Ratio("subgoals", "subgoals that a rollout starts", "number", "began", "rollouts"),
    "turns_per_subgoal": Ratio("turns per subgoal", "turns under a subgoal, by subgoals", "number", "under", "began"),
    "folded": Ratio(
        "folded tokens a turn", "tokens of folded subgoals in the context at one turn", "number", "folded", "turns"
    ),
}
CHARGED = {
    "r_grounding": Column("r_grounding", "ungrounded", "turns that start a subgoal without an object or place seen"),
    "r_termination": Column(
        "r_termination", "ended in failure", "last turns of finished subgoals whose action failed, in successes"
    ),
    "r_execution": Column("r_execution", "repeated", "the same action and observation, the third time in a subgoal on"),
    "r_format": Column("r_format", "malformed", "turns without the required tags"),
}


def context_grids(results: Results, names: Sequence[str]) -> list[Grid]:
    """The tables of contexts, of subgoals with their penalties, and of faults; none where there are no contexts."""
    contexts = results.contexts
    if contexts is None:
        return []
    which = (
        f"Training rollouts of rounds 1 to {results.experiment.rounds} of finished seeds; round 1 is sampled by the "
        "SFT policy. Means over rollouts, then over seeds, with 95% intervals over seeds (none with one seed)."
    )
    columns = list(contexts.turns.columns)
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
            *(Column(key, ratio.heading, ratio.meaning) for key, ratio in READ.items() if ratio.computable(columns)),
        ],
    )
    planned = Grid(
        name="subgoals",
        title="Subgoals and penalties",
        caption="The same rollouts. Penalties: shares of all turns that the method's own credit charges.",
        columns=[
            *(Column(key, ratio.heading, ratio.meaning) for key, ratio in PLANNED.items() if ratio.computable(columns)),
            *(CHARGED[name] for name in PENALTIES if len(contexts.penalties)),
        ],
    )
    for method in names:
        turns = _of(contexts.turns, results, method)
        if len(turns):
            agents = sorted({name for row in turns["agent"] for name in row.split(", ")})
            read.rows[method] = {"agent": ", ".join(agents), **_ratios(results, method, turns, READ)}
            cells = {**_ratios(results, method, turns, PLANNED), **_charged(results, method, contexts)}
            if cells:
                planned.rows[method] = cells
    return [read, planned, _faults(results, names, contexts)]


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


def _ratios(results: Results, method: str, turns: pd.DataFrame, ratios: Mapping[str, Ratio]) -> dict[str, Cell]:
    """A method's ratios that its turns have the columns for: each seed's, and their mean."""
    sums = turns.groupby("seed").sum(numeric_only=True, min_count=1).drop(columns="turn")
    # Each turn counts the rollouts that have it: in all, these are turns, and those that have turn 0 are rollouts.
    sums = sums.rename(columns={"rollouts": "turns"})
    sums["rollouts"] = turns[turns["turn"] == 0].groupby("seed")["rollouts"].sum()
    row: dict[str, Cell] = {}
    for key, ratio in ratios.items():
        if ratio.computable(list(sums.columns)):
            value_S = (sums[ratio.top] / sums[ratio.bottom].where(sums[ratio.bottom] > 0)).dropna()
            if len(value_S):
                rows = turns_sql(results.folder.name, ratio.sums)
                query = _per_seed(f"({rows}) JOIN runs USING (experiment, policy, seed, round)", ratio.sql)
                n = int(sums["rollouts"].sum())
                row[key] = _mean(results, method, value_S, ratio.unit, query, "turns", f"n: {n} rollouts", n)
    return row


def _charged(results: Results, method: str, contexts: Contexts) -> dict[str, Cell]:
    """The share of a method's turns with each penalty; empty if its credit has none."""
    rows = _of(contexts.penalties, results, method).set_index("seed") if len(contexts.penalties) else pd.DataFrame()
    if rows.empty:
        return {}
    source = f"(SELECT * FROM {RUN_CREDITS} WHERE experiment = {quoted(results.folder.name)})"
    n = int(rows["turns"].sum())
    return {
        name: _mean(
            results,
            method,
            rows[name] / rows["turns"],
            "share",
            _per_seed(source, f"sum(({name} < 0)::INT) / count(*)"),
            "credits",
            f"n: {n} turns",
            n,
        )
        for name in PENALTIES
    }


def _faults(results: Results, names: Sequence[str], contexts: Contexts) -> Grid:
    """The share of turns with each of the most frequent faults, for the methods that have any."""
    grid = Grid(
        name="faults",
        title="Malformed responses by fault",
        caption="The same rollouts: shares of all turns.",
        columns=[],
        closed=True,
    )
    if contexts.faults.empty:
        return grid
    often = contexts.faults.groupby("fault")["turns"].sum().sort_values(ascending=False, kind="stable")
    grid.columns = [Column(fault, fault, f"turns with the fault '{fault}'") for fault in often.index[:FAULTS]]
    source = (
        f"(SELECT * FROM turns WHERE experiment = {quoted(results.folder.name)}) "
        "JOIN runs USING (experiment, policy, seed, round)"
    )
    for method in names:
        turns, faults = _of(contexts.turns, results, method), _of(contexts.faults, results, method)
        if len(turns) and len(faults):
            turns_S = turns.groupby("seed")["rollouts"].sum()
            n = int(turns_S.sum())
            grid.rows[method] = {}
            for column in grid.columns:
                with_S = faults[faults["fault"] == column.key].set_index("seed")["turns"]
                share_S = with_S.reindex(turns_S.index, fill_value=0) / turns_S
                query = _per_seed(source, f"sum(coalesce(fault = {quoted(column.key)}, false)::INT) / count(*)")
                cell = _mean(results, method, share_S, "share", query, "turns", f"n: {n} turns", n)
                grid.rows[method][column.key] = cell
    return grid


def _per_seed(source: str, value: str) -> str:
    """The SQL of a number for each seed, which `_mean` completes."""
    return f"SELECT seed, {value} AS value FROM {source}"


def _mean(
    results: Results, method: str, value_S: pd.Series, unit: str, query: str, artifact: str, counted: str, n: int
) -> Number:
    """The mean over seeds as a number. `query` gives each seed's; `artifact` are the files that it reads."""
    seeds = sorted(int(seed) for seed in value_S.index)
    mean = mean_of_seeds(value_S.to_numpy(dtype=np.float64), n, 0)
    top = 1.0 if unit == "share" else np.inf
    # Seeds that all agree, as on a share of 0, say nothing about the spread of others.
    has_spread = mean.seeds > 1 and bool(np.ptp(value_S.to_numpy(dtype=np.float64)) > 0)
    low, high = (float(np.clip(end, 0.0, top)) if has_spread else None for end in (mean.low, mean.high))
    sql = (
        f"SELECT avg(value) FROM ({query} WHERE method = {quoted(method)} AND seed IN ({listed(seeds)}) GROUP BY seed)"
    )
    rounds: dict[str, list[str | int]] = {}
    for round_ in range(1, results.experiment.rounds + 1):
        rounds.setdefault(sampled_by(results.experiment, method, round_), []).append(round_)
    keys: dict[str, Sequence[str | int]] = {"seed": seeds} | ({"method": [method]} if artifact == "credits" else {})
    path = " ".join(files_of(artifact, policy=[policy], round=which, **keys) for policy, which in rounds.items())
    note = f"{counted}, {mean.seeds} seed{'s' if mean.seeds > 1 else ''}; interval over {mean.covers}"
    return Number(mean.value, unit, sql, path, low, high, n, note)
