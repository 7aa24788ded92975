"""The command `fidelity`: compares credits with ground truth."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from math import isfinite
from pathlib import Path
from typing import Annotated

import typer

from turncredit.audit import fidelity as module
from turncredit.audit import scored_turns as reading
from turncredit.audit.noise_ceiling import TOO_FEW, Ceiling, exceeded
from turncredit.credit.parts.baselines import BASELINE
from turncredit.data.counts import number_of
from turncredit.data.files import write_json
from turncredit.data.output_paths import output_file
from turncredit.stats.bootstrap import FEWEST_GROUPS
from turncredit.views.terminal import console, plain_table, print_table

#: What was scored, as the command prints it.
COUNTED = ("turns", "rollouts", "groups")
#: The measures that the command prints, with the words above them: the same as in the report.
SHOWN = {
    "rank_correlation": "rank correlation",
    "sign_agreement": "sign agreement",
    "regression_auc": "finds regressions",
    "useful_auc": "finds useful steps",
    "error_minus_flat": "error minus flat",
}


def fidelity(
    turns: Annotated[Path, typer.Option(help="Parquet with group_id, rollout_id, turn, and success or reward.")],
    credits: Annotated[
        list[Path], typer.Option(help="Parquet with the keys, advantage, and method if several; repeatable.")
    ],
    branches: Annotated[
        Path, typer.Option(help="Parquet with the keys, advantage_true and advantage_true_se: the ground truth.")
    ],
    labels: Annotated[Path | None, typer.Option(help="Parquet with a judge's roles, for the bias by role.")] = None,
    json: Annotated[Path | None, typer.Option(help="Write all measures, with their intervals, to this file.")] = None,
    seed: Annotated[int, typer.Option(help="Seed of the bootstrap and of the simulated ceiling.")] = 0,
) -> None:
    """Measure how well credit agrees with the true advantage within rollouts, with intervals and the noise ceiling."""
    if json is not None:
        output_file(json, (".json",), reads=[turns, *credits, branches, labels])
    scored, advantages = reading.load(turns, credits, branches, labels)
    result = module.score(scored, advantages, seed=seed)
    if json is not None:
        write_json(json, module.as_json(result))
    _print(result)
    if BASELINE not in result.counts:
        column = SHOWN["error_minus_flat"]
        print(f"{column}: needs {BASELINE}'s credit of these turns; add its table with --credits", file=sys.stderr)
    for method, counts in result.counts.items():
        if missing := counts["turns_without_credit"]:
            words = "has no credit and was" if missing == 1 else "have no credit and were"
            print(f"{method}: {number_of(missing, 'turn')} with ground truth {words} left out", file=sys.stderr)


def _print(result: module.Fidelity) -> None:
    """The main measures as a table, best rank correlation first."""
    rows = {(row.method, row.measure): row for row in result.rows if row.subset == "all"}

    def order(method: str) -> float:
        value = rows[method, "rank_correlation"].value
        return -value if isfinite(value) else 2.0

    columns = ["method", *COUNTED, *SHOWN.values()]
    table = plain_table(columns, [name != "method" for name in columns])
    methods = sorted(result.counts, key=order)
    for method in methods:
        cells = [_cell(rows.get((method, measure))) for measure in SHOWN]
        table.add_row(method, *(str(result.counts[method][name]) for name in COUNTED), *cells)
    of_measure = [[rows[method, name] for method in methods if (method, name) in rows] for name in SHOWN]
    table.add_row("(noise ceiling)", *[""] * len(COUNTED), *(_ceiling(found) for found in of_measure))
    print_table(table, console())


def _ceiling(rows: Sequence[module.Row]) -> str:
    """The ceiling of a measure's rows, or why there is none, as in the report.

    It is that of the turns which most are scored on: a method that lacks credit for some has a ceiling of its own.
    """
    most = max((row.turns for row in rows), default=0)
    alike = [row for row in rows if row.turns == most]
    ceiling = alike[0].ceiling if alike else None
    if ceiling is not None and exceeded(ceiling.value, (row.value for row in alike)):
        return TOO_FEW
    return _cell(ceiling)


def _cell(number: module.Row | Ceiling | None) -> str:
    if number is None or not isfinite(number.value):
        return "-"
    few = isinstance(number, module.Row) and number.groups < FEWEST_GROUPS
    interval = f" [{number.low:+.2f}, {number.high:+.2f}]" if isfinite(number.low) and not few else ""
    return f"{number.value:+.2f}{interval}"
