"""Whether the invariants hold: a sentence, and a grid."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from turncredit.audit.equal_steps import RunUpdate, Spent, counted, unequal
from turncredit.views.collect import Results
from turncredit.views.report.grid import Column, Grid, computed
from turncredit.views.report.selection import files_of, sampler
from turncredit.views.sql_views import quoted


@dataclass(frozen=True)
class Holds:
    """Whether the invariants hold (None: not checked), in words."""

    all: bool | None
    words: str


def holds(results: Results) -> Holds:
    """The report's first line: whether all invariants hold, and which ones fail where."""
    frame, spent = results.analysis.get("invariants"), _spent(results)
    lines = [f"the methods took unequal optimiser steps: {line}" for line in unequal(results.experiment, spent)]
    if frame is None and not lines:
        return Holds(None, f"Invariants: not checked here; turncredit check results/{results.folder.name} checks them.")
    if frame is None:
        return Holds(False, f"Invariants: {_listed(lines)}.")
    named = _named(frame)
    rounds = len(frame.reindex(columns=["policy", "method", "seed", "round"]).drop_duplicates())
    broken = named[~named["holds"]]
    checked = counted(len(frame) + bool(spent), frame["name"].nunique() + bool(spent), rounds)
    if broken.empty and not lines:
        return Holds(True, f"All invariants hold: {checked}.{_declared(named)}")
    lines += [
        f"{row.invariant} in {row.where}, seed {row.seed}, round {row.round}: {row.detail}"
        for row in broken.itertuples()
    ]
    failed = f"{len(broken)} of {checked} fail" if len(broken) else f"Of {checked} none fails, but"
    return Holds(False, f"{failed}{':' * bool(len(broken))} {_listed(lines)}.")


def _declared(named: pd.DataFrame) -> str:
    """The exceptions that the configuration declares (`tasks.shared`), which break no invariant."""
    held = named[named["holds"] & (named["invariant"] == "held_out")]
    excepted = sorted({str(detail) for detail in held["detail"] if detail})
    return f" Declared exceptions: {_listed(excepted)}." if excepted else ""


def _listed(lines: list[str]) -> str:
    return f"{'; '.join(lines[:5])}{' ...' if len(lines) > 5 else ''}"


def _spent(results: Results) -> dict[RunUpdate, Spent]:
    """Optimiser steps, sequences and tokens of every update, from the metrics of its job."""
    frame = results.metrics[(results.metrics["stage"] == "update") & results.metrics["name"].isin(Spent._fields)]
    wide = frame.pivot_table(index=["method", "seed", "round"], columns="name", values="value", aggfunc="first")
    return {
        RunUpdate(str(method), int(seed), int(round)): Spent(**{name: int(row[name]) for name in Spent._fields})
        for (method, seed, round), row in wide.dropna().iterrows()
    }


def _named(frame: pd.DataFrame) -> pd.DataFrame:
    """Invariants with a column `where`: a run, or the policy that sampled the turns."""
    keys = frame.reindex(columns=["policy", "method"])
    where = keys["method"].where(keys["policy"].isna(), keys["policy"].map(sampler, na_action="ignore"))
    return frame.rename(columns={"name": "invariant"}).assign(where=where)


def invariants(results: Results) -> list[Grid]:
    """Each invariant: in how many rounds it was checked and held, and its largest deviation."""
    frame = results.analysis.get("invariants")
    if frame is None:
        return []
    grid = Grid(
        name="invariants",
        title="Invariants",
        caption="Properties that must hold for every method (docs/audit.md).",
        columns=[
            Column("checked", "rounds checked", "rounds of turns and of runs"),
            Column("failed", "failed", "rounds in which it does not hold"),
            Column("things", "things checked", "rows, rollouts or files that were checked"),
            Column("worst", "largest deviation", "if the invariant has one; of states: 1 - AUC"),
            Column("measured", "where it is largest", "what was measured there, if the check says so"),
        ],
        closed=True,
    )
    files = f"{files_of('invariants')} {files_of('rollout_invariants')}"
    for name, rows in frame.groupby("name", sort=True):
        base = f"FROM invariants WHERE experiment = {quoted(results.folder.name)} AND name = {quoted(name)}"
        grid.rows[str(name)] = {
            "checked": computed(results, f"SELECT count(*) {base}", "count", files),
            "failed": computed(results, f"SELECT count(*) {base} AND NOT holds", "count", files),
            "things": computed(results, f"SELECT sum(checked) {base}", "count", files),
            "worst": ""
            if rows["worst"].isna().all()
            else computed(results, f"SELECT max(worst) {base}", "small", files),
            "measured": "" if rows["worst"].isna().all() else str(rows.loc[rows["worst"].idxmax(), "detail"]),
        }
    if spent := _spent(results):
        failed = len(unequal(results.experiment, spent))
        rounds = len({at.round for at in spent})
        grid.rows["equal_steps"] = {
            "checked": str(rounds),
            "failed": str(failed),
            "things": str(len(spent)),
            "worst": "",
            "measured": "",
        }
    return [grid]
