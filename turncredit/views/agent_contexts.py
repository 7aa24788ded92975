"""What a policy reads in its training rollouts, from the tables of turns: contexts, subgoals and penalties.

Tokens are stored once: `prompt_ids` are those that entered the context since the last response, all of it where
`context_reset`. So the context that turn t reads is the sum of the prompts since the last reset up to t, and of the
responses before t. This holds for every agent, whether it appends, rebuilds its prompt or folds its history.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import duckdb
import pandas as pd

from turncredit.config.layout import Layout
from turncredit.errors import UserError
from turncredit.views import sql_views
from turncredit.views.sql_views import quoted

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
#: HIPIF's penalties, in the paper's order (credit/hipif.py)
PENALTIES = ("r_grounding", "r_termination", "r_execution", "r_format")


@dataclass(frozen=True)
class Contexts:
    """Sums over the training rollouts of each run, all of its rounds pooled.

    turns      one row per method, seed and number of a turn: `agent`, the number of `rollouts` that have this turn, and
               over these the sums `context` and `prefilled` (tokens, see `turns_sql`), `well_formed`, `under` (turns
               under a subgoal), `began` (turns that start one), `folded` (tokens of folded subgoals in the contexts),
               `truncated` (tokens that did not fit into them); those whose columns no agent has are absent, and NaN
               for the methods whose agent does not have them
    faults     one row per method, seed and `fault`: `turns` with it; empty without the column
    penalties  one row per method and seed: `turns`, and how many of them have each of `PENALTIES`; empty without them
    """

    turns: pd.DataFrame
    faults: pd.DataFrame
    penalties: pd.DataFrame


def read_contexts(layout: Layout) -> Contexts | None:
    """The contexts of an experiment with several agents, or with one that has subgoals; None for any other.

    Raises UserError for turns that cannot be read.
    """
    folder, query = layout.root, f"SELECT FROM turns, runs, {sql_views.RUN_CREDITS}"
    try:
        with sql_views.connect([layout], query) as connection:
            columns = connection.table("turns").columns
            agents = connection.execute("SELECT count(DISTINCT agent) FROM turns").fetchall()[0][0]
            if "subgoal" not in columns and agents < 2:
                return None
            return Contexts(
                turns=connection.execute(_sums_by_turn(folder.name, columns)).df(),
                faults=connection.execute(_faults(folder.name)).df() if "fault" in columns else pd.DataFrame(),
                penalties=_penalties(connection, folder.name),
            )
    except duckdb.Error as error:
        raise UserError(f"{folder}: the turns cannot be read ({str(error).splitlines()[0]})") from None


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


def _sums_by_turn(experiment: str, columns: Sequence[str]) -> str:
    """`Contexts.turns` as SQL; summed for each policy before the join, since runs share the rollouts of round 1."""
    names = [name for name, (needs, _) in SUMS.items() if set(needs) <= set(columns)]
    inner = ", ".join(f"sum({SUMS[name][1]})::BIGINT AS {name}" for name in names)
    outer = ", ".join(f"sum({name})::BIGINT AS {name}" for name in names)
    return (
        "SELECT method, seed, turn, string_agg(DISTINCT agent, ', ' ORDER BY agent) AS agent, "
        f"sum(rollouts)::BIGINT AS rollouts, {outer} FROM runs JOIN ("
        f"SELECT policy, seed, round, turn, agent, count(*) AS rollouts, {inner} "
        f"FROM ({turns_sql(experiment, names)}) GROUP BY policy, seed, round, turn, agent) "
        "USING (policy, seed, round) GROUP BY method, seed, turn ORDER BY method, seed, turn"
    )


def _faults(experiment: str) -> str:
    return (
        "SELECT method, seed, fault, sum(turns)::BIGINT AS turns FROM runs JOIN ("
        f"SELECT policy, seed, round, fault, count(*) AS turns FROM turns WHERE experiment = {quoted(experiment)} "
        "AND fault <> '' GROUP BY ALL) USING (policy, seed, round) GROUP BY ALL ORDER BY method, seed, fault"
    )


def _penalties(connection: duckdb.DuckDBPyConnection, experiment: str) -> pd.DataFrame:
    """The turns with each penalty in the runs whose credit has penalties."""
    if not set(PENALTIES) <= set(connection.table(sql_views.RUN_CREDITS).columns):
        return pd.DataFrame()
    charged = ", ".join(f"sum(({name} < 0)::INT)::BIGINT AS {name}" for name in PENALTIES)
    query = (
        f"SELECT method, seed, count(*)::BIGINT AS turns, {charged} FROM {sql_views.RUN_CREDITS} "
        f"WHERE experiment = {quoted(experiment)} AND {PENALTIES[0]} IS NOT NULL GROUP BY ALL ORDER BY method, seed"
    )
    return connection.execute(query).df()
