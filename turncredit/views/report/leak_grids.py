"""Leak tests of credit models: a sentence for each model, and the numbers as grids."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from turncredit.audit import leak_measures
from turncredit.views.collect import Results
from turncredit.views.report.audited_turns import audited, measure, pooled_in_bounds, present, resting_on
from turncredit.views.report.grid import Column, Grid

#: (view, measure) -> (heading, meaning)
LEAKS = {
    ("full", "outcome_auc"): ("in full", "the prediction tells success from failure: AUC with inputs as they are"),
    ("padded", "outcome_auc"): ("equal length", "the same, all rollouts padded to one length"),
    ("masked_last", "outcome_auc"): ("last turn hidden", "the same, the last turn hidden"),
    ("blind", "outcome_auc"): ("both", "the same, length and last turn hidden"),
    ("length_only", "outcome_auc"): ("length alone", "no model: how well the length alone tells success"),
    ("full", "rank_with_truth"): ("credit and truth", "rank correlation of the credit with A* within rollouts"),
}


@dataclass(frozen=True)
class Leak:
    """The verdict of one credit model's leak tests; `clear`: no leak was found."""

    method: str
    words: str
    clear: bool


def leak_lines(results: Results, names: Sequence[str]) -> tuple[list[Leak], str]:
    """One sentence for each learned method, of the last round with leak tests, and which round that was."""
    rounds = audited(results, "leaks")
    if not rounds:
        return [], ""
    here = rounds[-1].rows("leaks")
    lines = []
    for method in present(names, here):
        rows = here[here["method"] == method]
        measures = {}
        for (view, name), part in rows.groupby(["view", "measure"], sort=False):
            value, low, high = pooled_in_bounds(part, str(name))
            ends = (float("nan") if end is None else end for end in (low, high))
            measures[view, name] = leak_measures.Measured(value, *ends)
        lines.append(Leak(method, leak_measures.leak_summary(measures), not _leaks(measures)))
    return lines, rounds[-1].words


def _leaks(measures: Mapping[tuple[str, str], leak_measures.Measured]) -> bool:
    """Whether hiding the length or the last turn removes knowledge of the outcome, by a margin."""
    tests = [(view, "outcome_drop") for view in ("padded", "masked_last", "blind")] + [("half", "hindsight")]
    return any(leak_measures.clear(measures.get(test, leak_measures.NOTHING)) for test in tests)


def leak_grids(results: Results, names: Sequence[str]) -> list[Grid]:
    """The leak tests' numbers, one grid for each round."""
    grids = []
    for turns in audited(results, "leaks"):
        here = turns.rows("leaks")
        have = set(zip(here["view"], here["measure"], strict=True))
        shown = [key for key in LEAKS if key in have]
        n = f" {resting_on([turns])}" if ("full", "rank_with_truth") in have else ""
        grid = Grid(
            name=f"leaks_{turns.key}",
            title=f"Leak tests in numbers, {turns.words}",
            caption="AUC 0.5 is chance. Hiding the length or the last turn lowers it for a model that relies on them."
            + n,
            columns=[Column("_".join(key), *LEAKS[key]) for key in shown],
            closed=True,
        )
        for method in present(names, here):
            grid.rows[method] = {
                f"{view}_{name}": measure(turns, "leaks", method=method, view=view, measure=name)
                for view, name in shown
            }
        grids.append(grid)
    return grids
