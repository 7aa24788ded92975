"""Do fidelity, the gradient's signal or its direction predict how much a method learns? Points and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from turncredit.config import Experiment
from turncredit.stats.intervals import Estimate
from turncredit.stats.rank_correlation import FEWEST_POINTS, spearman
from turncredit.views.collect import Results
from turncredit.views.report import audited_turns
from turncredit.views.report.grid import Column, Grid, Number
from turncredit.views.report.ordering import group_of, standing_for

#: name -> (table, its keys, axis label)
PREDICTORS: dict[str, tuple[str, dict[str, str], str]] = {
    "fidelity": (
        "fidelity",
        {"measure": "rank_correlation", "subset": "all"},
        "rank correlation with A* within rollouts",
    ),
    "sign": ("fidelity", {"measure": "sign_agreement", "subset": "all"}, "share of clear turns with A*'s sign"),
    "bias": ("fidelity", {"measure": "bias", "subset": "action:invalid"}, "bias of the credit of invalid actions"),
    "error": ("fidelity", {"measure": "error_minus_flat", "subset": "all"}, "squared error minus flat GRPO's"),
    "snr": ("gradients", {"measure": "snr"}, "signal to noise of a minibatch's gradient"),
    "direction": ("gradients", {"measure": "cosine_truth"}, "cosine of the mean gradient with A*'s"),
}
#: those that are also drawn, from round 1
DRAWN = ("fidelity", "snr")
FEWEST_FAMILIES = 5
#: Older tables clip cosines at this, so the size of a larger estimate is not known.
CLIPPED = 1.0


@dataclass(frozen=True)
class Point:
    """One method: its measure in round 1, and its gain in success after training (zero for the baseline)."""

    method: str
    group: str
    x: Number
    gain: Estimate | None


@dataclass(frozen=True)
class Prediction:
    """One predictor's points and its verdict."""

    name: str
    label: str
    points: list[Point]
    words: str


def predictions(
    results: Results, names: Sequence[str], baseline: str, differences: Mapping[str, Estimate]
) -> list[Prediction]:
    """The predictors that were measured in round 1, for the methods that were also trained, if they are enough."""
    out = []
    for name in DRAWN:
        table, _, label = PREDICTORS[name]
        turns = next((turns for turns in audited_turns.audited(results, table) if turns.round == 1), None)
        points = _points(turns, name, names, baseline, differences) if turns else []
        if len(points) >= FEWEST_POINTS:
            out.append(Prediction(name, label, points, _words(points)))
    return out


def _points(
    turns: audited_turns.Audited,
    name: str,
    names: Sequence[str],
    baseline: str,
    differences: Mapping[str, Estimate],
) -> list[Point]:
    """A predictor on audited turns, for each method that has it and a gain.

    Only methods that play with the agent of these turns: the others learned from turns of another kind.
    """
    (table, keys, _), experiment = PREDICTORS[name], turns.results.experiment
    points = []
    for method in names:
        if experiment.start_of(method) == experiment.start_of(turns.policy):
            x = audited_turns.measure(turns, table, method=method, **keys)
            if x is None or np.isnan(x.value) or (name == "direction" and abs(x.value) == CLIPPED):
                continue
            if method == baseline or method in differences:
                points.append(Point(method, group_of(experiment, method), x, differences.get(method)))
    return points


def prediction_grid(
    results: Results, names: Sequence[str], baseline: str, differences: Mapping[str, Estimate]
) -> list[Grid]:
    """Which measure, on which turns, predicts the gain: Spearman's correlation over families of methods.

    Methods of a family read the same signals, so a family is one point: the method that stands for it
    (`turncredit.views.report.ordering`), of those that play with the agent of these turns. References are left out,
    since they alone would produce a correlation; so are methods beyond the configuration, which the caption names.
    """
    grid = Grid(
        name="predictors",
        title="Which measure predicts the gain?",
        caption=(
            "Spearman's correlation between a measure of a method's credit and its gain from training, over families "
            "of methods: one method a family, no references. 95% by Bonett and Wright, without the points' own errors."
        ),
        columns=[],
    )
    beyond: set[str] = set()
    for turns in audited_turns.audited(results, "fidelity", "gradients"):
        heads = _heads(results.experiment, turns.policy)
        cells: dict[str, str] = {}
        for name in PREDICTORS:
            points = [
                point for point in _points(turns, name, names, baseline, differences) if point.group != "references"
            ]
            beyond |= {point.method for point in points} - set(results.experiment.methods)
            points = [point for point in points if point.method in heads]
            if len(points) >= FEWEST_FAMILIES:
                cells[name] = f"{_correlation(points)}, {len(points)} families"
        if cells:
            heading, meaning = f"{turns.policy}, round {turns.round}", f"measured on the rollouts of {turns.policy}"
            grid.columns.append(Column(turns.key, heading, meaning))
            for name, text in cells.items():
                grid.rows.setdefault(PREDICTORS[name][2], {})[turns.key] = text
    if beyond:
        grid.caption += f" Left out, since they are not in the configuration: {', '.join(sorted(beyond))}."
    return [grid] if grid.columns else []


def _heads(experiment: Experiment, policy: str) -> set[str]:
    """The methods of the configuration that stand for their families, of those that play with the policy's agent."""
    mine = [
        method
        for method in experiment.trained()
        if experiment.start_of(method) == experiment.start_of(policy) and group_of(experiment, method) != "references"
    ]
    return set(standing_for(experiment, mine).values())


def _words(points: Sequence[Point]) -> str:
    """The rank correlation over methods with and without references and noise, and its uncertainty."""
    inner = [point for point in points if point.group != "references"]
    parts = [f"over all {len(points)} {_correlation(points)}"]
    if len(inner) < len(points):
        parts.append(f"over the {len(inner)} without references and noise {_correlation(inner)}")
    return f"Spearman's correlation with the gain, {'; '.join(parts)}."


def _correlation(points: Sequence[Point]) -> str:
    if len(points) < FEWEST_POINTS:
        return f"{len(points)} are too few to say anything"
    x_N = np.array([point.x.value for point in points])
    y_N = np.array([point.gain.value if point.gain else 0.0 for point in points])
    rho, low, high, p = spearman(x_N, y_N)
    if np.isnan(low):
        return "all are equal, so there is none"
    if high - low > 1:
        return f"anything from {low:+.2f} to {high:+.2f} is possible"
    return f"{rho:+.2f} (95% {low:+.2f} to {high:+.2f}; p {p:.2f})"
