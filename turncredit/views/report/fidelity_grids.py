"""Fidelity of credit and the gradient signal as grids."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import pandas as pd

from turncredit.audit.noise_ceiling import TOO_FEW, exceeded
from turncredit.credit.parts.baselines import BASELINE, ORACLE
from turncredit.data.counts import number_of
from turncredit.stats.bootstrap import FEWEST_GROUPS
from turncredit.views.collect import Results
from turncredit.views.report.audited_turns import (
    COSINES,
    FIDELITY,
    GRADIENTS,
    SAMPLE,
    Audited,
    audited,
    measure,
    present,
    resting_on,
    sample_in_words,
    sample_sizes,
)
from turncredit.views.report.grid import Cell, Column, Grid, Number
from turncredit.views.report.selection import sampler

CEILING = "noise ceiling"
#: Measures whose ceiling is on the measure's own scale.
WITH_CEILING = ("rank_correlation", "sign_agreement", "regression_auc", "useful_auc")
#: method -> the cosine with its own gradient
_WITH = {BASELINE: "cosine_flat", ORACLE: "cosine_oracle"}


def fidelity(results: Results, names: Sequence[str]) -> list[Grid]:
    """One grid for each round with ground truth (the first open), and one of the rank correlation over rounds."""
    rounds = audited(results, "fidelity")
    grids = [_fidelity_round(turns, names, closed=place > 0) for place, turns in enumerate(rounds)]
    if len(rounds) > 1:
        grids.insert(1, _by_round(results, names, rounds))
    return grids


def _fidelity_round(turns: Audited, names: Sequence[str], *, closed: bool) -> Grid:
    here = turns.rows("fidelity")
    here = here[here["subset"] == "all"]
    shown = [name for name in FIDELITY if name in set(here["measure"])]
    grid = Grid(
        name=f"fidelity_{turns.key}",
        title=f"Fidelity of credit in {turns.words}",
        caption=(
            "Each method's credit on the same rollouts compared with the ground truth A* = Q - V, measured by sampling "
            "continuations with the same policy from before and after the turn. Intervals by bootstrap over task "
            f"groups, from {FEWEST_GROUPS} groups of a seed on. The noise ceiling is what the truth itself would score "
            "against this noisy estimate of it; that of the rank correlation is an upper bound (docs/audit.md). "
            "None is given where a method scores above it: there are too few turns to estimate it."
        ),
        columns=[Column(name, *FIDELITY[name][:2]) for name in shown],
        closed=closed,
    )
    methods = present(names, here)
    samples = {method: sample_sizes(turns, method=method) for method in methods}
    if len({sample_in_words(sample) for sample in samples.values()}) == 1:
        sample = sample_in_words(samples[methods[0]])
        grid.caption += f" All rest on {sample}; a measure of fewer turns or groups says so in its cell."
    else:
        grid.columns += [Column(f"n_{name}", name, meaning) for name, meaning in SAMPLE.items()]
    rows: dict[str, dict[str, Cell]] = {
        method: {
            name: _with_sample(measure(turns, "fidelity", method=method, measure=name, subset="all"), samples[method])
            for name in shown
        }
        for method in methods
    }
    if BASELINE in rows and "error_minus_flat" in shown:
        rows[BASELINE]["error_minus_flat"] = ""
    ceiling = {name: _ceiling(turns, here, name, rows.values()) for name in shown if name in WITH_CEILING}
    if any(ceiling.values()):
        grid.rows[CEILING] = {**dict.fromkeys((column.key for column in grid.columns), ""), **ceiling}
    own = {method: samples[method] if len(grid.columns) > len(shown) else {} for method in methods}
    grid.rows |= {method: {**measures, **own[method]} for method, measures in rows.items()}
    return grid


def _with_sample(cell: Number | None, sample: Mapping[str, Number]) -> Number | None:
    """A measure with its number of turns beside it, if it is of fewer than the method's other measures."""
    if cell is None or cell.n is None or "n_turns" not in sample or cell.n >= sample["n_turns"].value:
        return cell
    turns = number_of(cell.n, "turn")
    return replace(cell, beside=f"{turns}, {cell.beside}" if cell.beside else turns)


def _ceiling(turns: Audited, here: pd.DataFrame, name: str, scores: Iterable[Mapping[str, Cell]]) -> Cell:
    """The ceiling, which is shared by methods that are scored on the same turns; in words where one exceeds it."""
    rows = here[(here["measure"] == name) & here["ceiling"].notna()]
    if rows.empty:
        return ""
    sql = f"SELECT avg(ceiling) FROM fidelity WHERE {turns.where(measure=name, subset='all')}"
    number = turns.number(sql, FIDELITY[name][2], rows["seed"])
    found = [score.value for of_method in scores if isinstance(score := of_method[name], Number)]
    return TOO_FEW if exceeded(number.value, found) else number


def _by_round(results: Results, names: Sequence[str], rounds: Sequence[Audited]) -> Grid:
    several = len({turns.round for turns in rounds}) < len(rounds)
    headings = [f"{turns.policy}, {turns.round}" if several else f"round {turns.round}" for turns in rounds]
    grid = Grid(
        name="fidelity_rounds",
        title="Rank correlation by round",
        caption="Does a credit model get better as it learns, and does credit stay right as the policy changes? "
        + resting_on(rounds),
        columns=[
            Column(turns.key, heading, f"rollouts of {sampler(turns.policy)}")
            for turns, heading in zip(rounds, headings, strict=True)
        ],
    )
    for method in present(names, results.analysis["fidelity"]):
        keys = {"method": method, "measure": "rank_correlation", "subset": "all"}
        grid.rows[method] = {turns.key: measure(turns, "fidelity", **keys) for turns in rounds}
    return grid


def gradients(results: Results, names: Sequence[str]) -> list[Grid]:
    """One grid for each round: the gradient that a method's advantages give, signal against noise."""
    grids = []
    for turns in audited(results, "gradients"):
        here = turns.rows("gradients")
        shown = [name for name in GRADIENTS if name in set(here["measure"])]
        grid = Grid(
            name=f"gradients_{turns.key}",
            title=f"Gradient signal in {turns.words}",
            caption=(
                "The policy gradient that each method's advantages give on the same rollouts, at the policy that "
                "sampled them: how much of one minibatch's gradient is signal, and its direction."
            ),
            columns=[Column(name, *GRADIENTS[name][:2]) for name in shown],
            closed=bool(grids),
        )
        for method in present(names, here):
            own = _WITH.get(method)
            grid.rows[method] = {name: "itself" if name == own else _gradient(turns, method, name) for name in shown}
        grid.caption += _missing_cosines(turns, here, grid)
        grids.append(grid)
    return grids


def _gradient(turns: Audited, method: str, name: str) -> Cell:
    """A measure of a method's gradient; in words where noise has put the estimate of a cosine beyond 1."""
    cell = measure(turns, "gradients", method=method, measure=name)
    return TOO_FEW if cell is not None and name in COSINES and abs(cell.value) > 1 else cell


def _missing_cosines(turns: Audited, here: pd.DataFrame, grid: Grid) -> str:
    """Why cosines are missing and what measures that with A*; empty where all are there."""
    undefined = set(here.loc[here["measure"].isin(COSINES) & here["value"].isna(), "measure"])
    noisy = {name for row in grid.rows.values() for name, cell in row.items() if cell == TOO_FEW}
    said = " A cosine is none where the signal of either gradient is not above 0." if undefined else ""
    said += f" It says '{TOO_FEW}' where noise has put the estimate beyond 1." if noisy else ""
    if "cosine_truth" not in undefined | noisy:
        return said
    few = f"{said} That of A* needs more turns with ground truth: raise audit.branch.turns (config/audit.yaml: 500)."
    return f"{few} {resting_on([turns])}".rstrip()
