"""The content of the report before it is rendered: verdicts in words, and every number in a grid."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from turncredit import envs
from turncredit.audit.collapse import Collapse, collapses
from turncredit.config.warm_starts import is_start, start_words
from turncredit.credit.parts.baselines import BASELINE
from turncredit.data.counts import number_of
from turncredit.errors import UserError
from turncredit.stats import intervals
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results
from turncredit.views.report import cost, fidelity_grids, invariant_grids, leak_grids, outcomes
from turncredit.views.report.contexts import Contexts, context_grids, read_contexts
from turncredit.views.report.grid import Column, Grid
from turncredit.views.report.judges import judged
from turncredit.views.report.ordering import Corrected, corrected, ordered
from turncredit.views.report.papers import papers
from turncredit.views.report.predictors import Prediction, prediction_grid, predictions
from turncredit.views.report.selection import NO_DIFFERENCE, Sourced, agent_words, at_checkpoint, difference, paired
from turncredit.views.report.verdict import Verdict, references_of, verdict


@dataclass
class Summary:
    """The content of the report. `order` has the rows' names by group; `sections` the grids by the page's section."""

    results: Results
    headline: str
    baseline: str
    holds: invariant_grids.Holds
    verdict: Verdict
    comparisons: str
    order: dict[str, list[str]]
    sections: dict[str, list[Grid]]
    points: pd.DataFrame
    differences: list[tuple[str, Estimate]]
    predictions: list[Prediction]
    leaks: list[leak_grids.Leak]
    leaks_of: str
    contexts: Contexts | None
    missing: list[str]
    without_credit: list[str]
    collapsed: list[Collapse]
    left_out: str

    @property
    def grids(self) -> list[Grid]:
        """All grids, in the page's order."""
        return [grid for grids in self.sections.values() for grid in grids]


@dataclass(frozen=True)
class _Compared:
    """The paired differences of final success to `baseline`, by method, and their corrected p-values."""

    baseline: str
    sourced: dict[str, Sourced]
    adjusted: Corrected

    @property
    def differences(self) -> dict[str, Estimate]:
        """The differences alone."""
        return {name: found.estimate for name, found in self.sourced.items()}

    @property
    def to_middle(self) -> dict[str, Estimate]:
        """The differences to flat GRPO; none where another method is the baseline."""
        return self.differences if self.baseline == BASELINE else {}


def summarise(results: Results) -> Summary:
    """Compute the report's numbers. Missing runs stay missing; nothing is imputed."""
    compared = _compare(results)
    baseline, differences, adjusted = compared.baseline, compared.differences, compared.adjusted
    order = _order(results, compared)
    everyone = [name for group in order.values() for name in group]
    names = [name for name in everyone if is_start(name) or name in results.methods]
    points, contexts = outcomes.curve_points(results), read_contexts(results.layout)
    leaks, leaks_of = leak_grids.leak_lines(results, everyone)
    collapsed = collapses(results.experiment, results.metrics)
    return Summary(
        results=results,
        headline=_headline(results, baseline, differences, adjusted),
        baseline=baseline,
        holds=invariant_grids.holds(results),
        verdict=verdict(
            references_of(results, compared.to_middle),
            apart=_significant(differences, adjusted.all) if baseline == BASELINE else [],
            methods=results.experiment.methods,
            seeds=results.experiment.seeds,
            measurable=_has_distance(results),
        ),
        comparisons=_comparisons(baseline, differences, adjusted),
        order=order,
        sections=_sections(results, compared, everyone, names, points, contexts, collapsed),
        points=points,
        differences=[(name, differences[name]) for name in names if name in differences],
        predictions=predictions(results, names, baseline, differences) if baseline == BASELINE else [],
        leaks=leaks,
        leaks_of=leaks_of,
        contexts=contexts,
        missing=_missing(results),
        without_credit=_without_credit(results),
        collapsed=collapsed,
        left_out=_left_out(results),
    )


def _compare(results: Results) -> _Compared:
    """Every method against flat GRPO or, where that is not among them, against the first one."""
    starts = results.experiment.starts()
    baseline = BASELINE if BASELINE in results.methods else next(iter(results.methods), starts[0])
    sourced = {
        method: found
        for method in results.methods
        if method != baseline and (found := difference(results, method, baseline)) is not None
    }
    p_values = {name: found.estimate.p for name, found in sourced.items()}
    return _Compared(baseline, sourced, corrected(results.experiment, baseline, p_values))


def _order(results: Results, compared: _Compared) -> dict[str, list[str]]:
    """The rows' names by group: warm starts, methods of the runs, and methods with credit but no run."""
    effects = {**compared.differences, **({compared.baseline: NO_DIFFERENCE} if compared.differences else {})}
    by_method = [frame for name, frame in results.analysis.items() if name != "invariants"]
    credited = {name for frame in by_method for name in frame["method"]}
    only_credited = sorted(credited - set(results.methods))
    return ordered(results, effects, [*results.experiment.starts(), *results.methods, *only_credited])


def _sections(
    results: Results,
    compared: _Compared,
    everyone: list[str],
    names: list[str],
    points: pd.DataFrame,
    contexts: Contexts | None,
    collapsed: Sequence[Collapse],
) -> dict[str, list[Grid]]:
    """The grids that have rows, by the page's section; `names` are those of `everyone` that were evaluated."""
    baseline, differences = compared.baseline, compared.differences
    sections = {
        "learning": [outcomes.curve(results, names, points)],
        "final": [outcomes.final(results, names, baseline, compared.sourced, compared.adjusted, collapsed)],
        "paper": papers(results, names),
        "detail": [
            *outcomes.splits(results, names),
            outcomes.families(results, names),
            outcomes.costs(results, names),
            *outcomes.modes(results, names),
        ],
        "contexts": context_grids(results, names, contexts) if contexts else [],
        "fidelity": fidelity_grids.fidelity(results, everyone),
        "gradients": fidelity_grids.gradients(results, everyone),
        "predicts": prediction_grid(results, names, baseline, differences) if baseline == BASELINE else [],
        "leaks": leak_grids.leak_grids(results, everyone),
        "judges": judged(results),
        "spending": [cost.spending(results, names), cost.time(results, names)],
        "invariants": invariant_grids.invariants(results),
    }
    if len(results.experiment.starts()) > 1:
        for grid in (*sections["learning"], *sections["final"], *sections["detail"]):
            _name_agents(results, grid)
    return {name: [grid for grid in grids if grid.rows] for name, grids in sections.items()}


def _name_agents(results: Results, grid: Grid) -> None:
    """Put the agent of each method first: where they differ, a difference is not one of credit alone."""
    grid.columns.insert(0, Column("agent", "agent", "the agent that the method plays with"))
    for name, row in grid.rows.items():
        row["agent"] = agent_words(results.experiment, name)


# Words ---------------------------------------------------------------------------------------------------------------


def _missing(results: Results) -> list[str]:
    """One line for the runs of a method that lack the same evaluations, or that the configuration no longer names."""
    seeds: dict[tuple[str, str], list[int]] = {}
    for run in results.runs.itertuples():
        absent = [round_ for round_ in run.wanted if round_ not in run.evaluated]
        if absent:
            seeds.setdefault((run.method, f"{_spans(absent)} not evaluated yet"), []).append(run.seed)
        if not run.configured:
            seeds.setdefault((run.method, "on disk, but not in the configuration"), []).append(run.seed)
    return [f"{method}, {_spans(sorted(found), 'seed')}: {lack}" for (method, lack), found in seeds.items()]


def _left_out(results: Results) -> str:
    """What is on disk and not in the report; empty if nothing is."""
    unplanned = results.layout.unplanned()
    if not unplanned:
        return ""
    first = unplanned[0].path.relative_to(results.folder)
    several = f"{first} and {len(unplanned) - 1} more" if len(unplanned) > 1 else str(first)
    return f"{several}, which this configuration would not make; turncredit clean --stale lists them"


def _without_credit(results: Results) -> list[str]:
    """One line per run with rounds from which it learned no credit: no optimiser step, or every advantage was 0."""
    metrics = results.metrics
    steps = metrics["name"].isin(["steps", "turns_with_advantage"]) & (metrics["stage"] == "update")
    lines = []
    for (method, seed), rows in metrics[steps & (metrics["value"] == 0)].groupby(["method", "seed"]):
        rounds = sorted({int(number) for number in rows["round"]})
        lines.append(f"{method}, seed {int(seed)}: {_spans(rounds)}")
    return lines


def _spans(numbers: Sequence[int], of: str = "round") -> str:
    """`round 2`, or `rounds 1-3, 7` for 1, 2, 3, 7."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and number == groups[-1][-1] + 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    spans = ", ".join(str(group[0]) if len(group) == 1 else f"{group[0]}-{group[-1]}" for group in groups)
    return f"{of}{'s' * (len(numbers) > 1)} {spans}"


def _headline(results: Results, baseline: str, differences: Mapping[str, Estimate], adjusted: Corrected) -> str:
    """The result in plain words: whether training works, and whether a difference between methods can be shown."""
    if not results.experiment.runs():
        return "No method is trained here."
    sentence = _trained(results, baseline)
    if sentence is None:
        return f"No result yet: {baseline} has no finished run."
    compared = [name for name in adjusted.all if name in differences]
    if not compared:
        return f"{sentence} No method is compared with {baseline}."
    seeds = max(differences[name].seeds for name in compared)  # a method that has only begun silences no other
    if seeds < intervals.FEWEST_SEEDS:
        return f"{sentence} No difference between methods can be shown with {_few(seeds)}."
    clear = _significant(differences, adjusted.all)
    if not clear:
        return f"{sentence} No difference between methods can be shown with {seeds} seeds."
    best = ", ".join(f"{name} ({100 * differences[name].value:+z.1f} points)" for name in clear)
    return f"{sentence} {best} differ{'s' * (len(clear) == 1)} from {baseline}."


def _trained(results: Results, method: str) -> str | None:
    """Whether training works, by this method; None where it has no finished run."""
    start = results.experiment.start_of(method)
    after, before = (at_checkpoint(results, name, "final") for name in (method, start))
    if after is None:
        return None
    gain = paired(results, method, start)
    if before is None or gain is None:
        reached = f"{method} reaches {after.estimate.value:.0%}"
        return f"{reached}; {start_words(start)} is not evaluated in these rounds, so its gain is not known."
    change = f"{method}, {before.estimate.value:.0%} -> {after.estimate.value:.0%}"
    if gain.clear:
        return f"Training {'works' if gain.value > 0 else 'makes the policy worse'}: {change}."
    return f"It is not clear whether training works: {change}, {intervals.points(gain)}."


def _has_distance(results: Results) -> bool:
    """Whether the environment has the exact distance to the goal; assumed where it is not installed here."""
    try:
        chosen = results.experiment.env.chosen()
        return "distance" in envs.load(chosen.name).with_settings(chosen.settings).capabilities
    except UserError:
        return True


def _significant(differences: Mapping[str, Estimate], p_values: Mapping[str, float]) -> list[str]:
    """The methods whose corrected p-value is below 5%; none with fewer than three seeds."""
    return [name for name, p in p_values.items() if p < 0.05 and differences[name].seeds >= intervals.FEWEST_SEEDS]


def _few(seeds: int) -> str:
    return "one seed" if seeds == 1 else "two seeds"


def _comparisons(baseline: str, differences: dict[str, Estimate], adjusted: Corrected) -> str:
    """A conclusion about all methods together, corrected for the number of families. Empty without any result."""
    if not adjusted.families or not any(name in differences for name in adjusted.all):
        return ""
    count, so_far = len(adjusted.families), _so_far(differences, adjusted.families, "families")
    head = f"Compared with {baseline}"
    if count > 1:
        head = f"{count} families of methods compared with {baseline} (no references), each by one method{so_far}"
    head += f": {_clear(differences, adjusted.families)}"
    if not adjusted.variants:
        return head
    count, so_far = len(adjusted.variants), _so_far(differences, adjusted.variants, "variants")
    words = f"{number_of(count, 'variant')}, corrected among themselves{so_far}"
    return f"{head} {words}: {_clear(differences, adjusted.variants)}"


def _so_far(differences: Mapping[str, Estimate], adjusted: Mapping[str, float], what: str) -> str:
    """`; 1 of 3 families have results`, or nothing if all have."""
    done = sum(name in differences for name in adjusted)
    return "" if done == len(adjusted) else f"; {done} of {len(adjusted)} {what} have results"


def _clear(differences: dict[str, Estimate], adjusted: dict[str, float]) -> str:
    """Which of the corrected differences are significant, the largest first, with their sizes and intervals."""
    done = [name for name in adjusted if name in differences]
    if not done:
        return "no result yet."
    most = max(differences[name].seeds for name in done)
    if most < intervals.FEWEST_SEEDS:
        return f"with {_few(most)} none is distinguishable from it; do not rank them."
    clear = _significant(differences, adjusted)
    level = "at the 5% level" + (" after Holm's correction" if len(adjusted) > 1 else "")
    if not clear:
        return f"none differs {level}; do not rank them."
    clear.sort(key=lambda name: -differences[name].value)
    effects = ", ".join(f"{name} {intervals.points(differences[name])}" for name in clear)
    left = len(done) - len(clear)
    others = "others are" if left > 1 else "other is"
    rest = f"; the {others} not distinguishable from it" if left else ""
    return f"{level}, {effects} differ{'s' if len(clear) == 1 else ''}{rest}."
