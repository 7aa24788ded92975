"""Which turn of a failed rollout was decisive: what people say, against judges, methods of credit and simple rules.

A table of turns with `mistake_agent` and `mistake_step` (Who&When, Zhang et al. 2025, arXiv 2505.00212) says which
agent and which step people hold responsible. A judge or a method names the turn that it scores as most decisive. Where
several turns have the same score, each counts with an equal share, so a score that tells no turn apart is the random
baseline.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from turncredit.config.judge import Ask
from turncredit.data.turns import SideTable, Turns
from turncredit.errors import UserError, nearest
from turncredit.stats.bootstrap import Resamples, Statistic, ratio

#: Distances in steps within which a named turn counts as found.
WITHIN = (0, 1, 3, 5)
COLUMNS = ("action", "next_observation", "agent", "step", "mistake_agent", "mistake_step")
#: How decisive for the failure a role is: regression most of all.
ROLES = {"R": 3.0, "N": 2.0, "E": 1.0, "D": 0.0}
RESAMPLES = 2000
_ERROR = re.compile(r"\berror\b|\bexception\b|\btraceback\b|\bfailed\b|exitcode: [1-9]", re.IGNORECASE)


class Logs(NamedTuple):
    """The turns (N, sorted) of failed rollouts (R), and what people say of each."""

    turns: Turns
    action_N: list[str]
    reply_N: list[str]
    agent_N: np.ndarray
    step_N: np.ndarray
    guilty_R: np.ndarray
    """The responsible agent."""
    decisive_R: np.ndarray
    """The decisive step, which may be a message of a person or a terminal, and so no turn."""

    def of(self, rollout: int) -> slice:
        """A rollout's turns."""
        first = int(self.turns.first_R[rollout])
        return slice(first, first + int(self.turns.length_R[rollout]))


class Agreement(NamedTuple):
    """Shares of rollouts with the ends of their 95% intervals: the agent, then the step by `WITHIN`."""

    name: str
    rollouts: int
    agent: tuple[float, float, float]
    step: tuple[tuple[float, float, float], ...]


def read_logs(table: pa.Table, where: str = "turns") -> Logs:
    """The logs in a table of turns. Raises UserError for a missing column and a null."""
    for name in COLUMNS:
        if name not in table.column_names:
            hint = nearest(name, table.column_names)
            raise UserError(
                f"{where}: no column '{name}'{hint}; import logs with decisive steps (turncredit import, who-and-when)"
            )
        if table.column(name).null_count:
            raise UserError(f"{where}: column '{name}' has nulls")
    turns = Turns(table, where=where)
    column = {name: np.array(table.column(name).to_pylist(), dtype=object)[turns.order_N] for name in COLUMNS}
    return Logs(
        turns,
        column["action"].tolist(),
        column["next_observation"].tolist(),
        column["agent"],
        column["step"].astype(np.int64),
        column["mistake_agent"][turns.first_R],
        column["mistake_step"][turns.first_R].astype(np.int64),
    )


# ------------------------------------------------------------------------------------------------- scores of turns


def _first(logs: Logs) -> np.ndarray:
    return -logs.step_N.astype(float)


def _last(logs: Logs) -> np.ndarray:
    return logs.step_N.astype(float)


def _longest(logs: Logs) -> np.ndarray:
    return np.array([len(text) for text in logs.action_N], dtype=float)


def _first_error(logs: Logs) -> np.ndarray:
    """The first turn that is answered by an error; without any, no turn is told apart."""
    failed_N = np.array([bool(_ERROR.search(text)) for text in logs.reply_N])
    return np.where(failed_N, -logs.step_N, -np.inf)


BASELINES: dict[str, Callable[[Logs], np.ndarray]] = {
    "a random turn": lambda logs: np.zeros(logs.turns.n),
    "the first turn": _first,
    "the last turn": _last,
    "the first turn answered by an error": _first_error,
    "the longest turn": _longest,
}
"""Rules that need no judge: logs to how decisive each turn is (N)."""


def by_labels(logs: Logs, labels: pa.Table, ask: Ask | None, where: str = "labels") -> np.ndarray:
    """How decisive each turn is (N) by a judge's labels; NaN for a turn without a label.

    The answer to `decisive_step` is the turn itself; for a role it is a regression before anything else, and for a
    number the turn with the lowest. Raises UserError for a turn without a row.
    """
    side = SideTable(logs.turns, labels, where)
    if ask == "role":
        return np.array([ROLES.get(role, np.nan) for role in side.column("role", nulls=True)])
    score_N = side.numbers("score", nulls=True)
    return score_N if ask == "decisive_step" else -score_N


def by_credits(logs: Logs, credits: pa.Table, where: str = "credits") -> np.ndarray:
    """How decisive each turn is (N) by a method: the turn with the lowest advantage most."""
    return -SideTable(logs.turns, credits, where).numbers("advantage")


# ------------------------------------------------------------------------------------------------------- agreement


def found_RK(logs: Logs, decisive_N: np.ndarray) -> np.ndarray:
    """For each rollout the chance (R, 1 + len(WITHIN)) that the named turn has the agent, and is within each distance.

    Turns that share the highest score are named with equal chance; where no turn has a score, none is named.
    """
    out_RK = np.zeros((len(logs.guilty_R), 1 + len(WITHIN)))
    for rollout in range(len(out_RK)):
        at = logs.of(rollout)
        score_T = decisive_N[at]
        if np.isnan(score_T).all():
            continue
        named_T = score_T == np.nanmax(score_T)
        right_T = logs.agent_N[at] == logs.guilty_R[rollout]
        away_T = np.abs(logs.step_N[at] - logs.decisive_R[rollout])
        hits_KT = np.stack([right_T, *(away_T <= most for most in WITHIN)])
        out_RK[rollout] = hits_KT[:, named_T].mean(axis=1)
    return out_RK


def agreements(logs: Logs, decisive_by: Mapping[str, np.ndarray]) -> list[Agreement]:
    """The agreement of each score of the turns (N) with what people say. Rollouts are resampled, with seed 0."""
    rollouts = len(logs.guilty_R)
    resamples = Resamples(rollouts, RESAMPLES, 0)
    out = []
    for name, decisive_N in decisive_by.items():
        estimates = [_mean(resamples, found_R) for found_R in found_RK(logs, decisive_N).T]
        out.append(Agreement(name, rollouts, estimates[0], tuple(estimates[1:])))
    return out


def _mean(resamples: Resamples, found_R: np.ndarray) -> tuple[float, float, float]:
    statistic = Statistic(np.stack([found_R, np.ones_like(found_R)], axis=1), ratio, len(found_R))
    return (statistic.value, *resamples.interval(resamples.values(statistic), len(found_R)))


def rows(found: Sequence[Agreement]) -> list[dict[str, object]]:
    """The agreements as rows of a table, shares from 0 to 1 with their intervals."""
    names = ("agent", *(f"step_within_{most}" if most else "step" for most in WITHIN))
    return [
        {"name": one.name, "rollouts": one.rollouts}
        | {
            f"{name}{suffix}": value
            for name, estimate in zip(names, (one.agent, *one.step), strict=True)
            for suffix, value in zip(("", "_low", "_high"), estimate, strict=True)
        }
        for one in found
    ]
