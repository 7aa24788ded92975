"""The report's figures: learning curves and paired differences, as SVG that follows the page's light or dark theme.

Colours are Okabe & Ito's (2008), which are distinguishable with common forms of colour blindness; each method also has
its own marker and dash pattern, so that nothing depends on colour alone.
"""

from __future__ import annotations

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import matplotlib
import numpy as np
import pandas as pd

matplotlib.use("agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator
from matplotlib.transforms import offset_copy

from turncredit.credit.parts.baselines import BASELINE
from turncredit.stats.intervals import Estimate
from turncredit.views.looks import GRID, INK, MUTED, PAGE_COLOURS, PAPER, Look, looks
from turncredit.views.report.grid import Number
from turncredit.views.report.predictors import Point
from turncredit.views.report.selection import NO_DIFFERENCE

MOST_IN_ONE = 7
#: Inches of a figure across the page.
WIDTH = 9.4
_WHOLE = FuncFormatter(lambda value, _: f"{value:,.0f}")


STYLE = {
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans", "Arial", "Helvetica"],
    "font.size": 10.5,
    "text.color": INK,
    "axes.edgecolor": MUTED,
    "axes.labelcolor": MUTED,
    "axes.titlecolor": INK,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.grid.axis": "y",
    "axes.axisbelow": True,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "xtick.color": MUTED,
    "ytick.color": MUTED,
    "xtick.major.size": 3,
    "ytick.major.size": 0,
    "lines.solid_capstyle": "round",
}
#: One row for each method, values from left to right.
SIDEWAYS = {**STYLE, "axes.grid.axis": "x"}


def learning_curves(
    curves: pd.DataFrame,
    seeds: pd.DataFrame,
    baseline: Mapping[str, float] | None,
    *,
    methods: Sequence[str],
    ylabel: str,
    title: str | None = None,
    levels: pd.DataFrame | None = None,
) -> Figure:
    """Success by round with its bands, one line per method; thin lines are single seeds.

    `curves` has method, round, success, low, high; `seeds` method, seed, round, success; `baseline` success, low, high
    of the SFT policy: the point at round 0 where all lines begin, and a level band. Where each round has its own games,
    `levels` has round, success, low, high of the SFT policy on these, drawn as steps in place of the level. More than
    seven methods get a panel each, with flat GRPO in all of them.
    """
    levels = None if levels is None or levels.empty else levels.sort_values("round")
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(methods, 4.5)
        style, single = looks(methods), len(panels) == 1
        top = _top(curves, seeds, baseline, levels)
        for ax, group in panels:
            first = int(curves["round"].min()) if baseline is None else 0
            _axes_frame(ax, top, curves["round"], first, ylabel if single else None, ticks=12 if single else 5)
            _baseline(ax, baseline, levels)
            start = None if baseline is None else float(baseline["success"])
            ends = [_curve(ax, curves, seeds, method, style[method], start, small=not single) for method in group]
            if single:
                height = None if baseline is None else baseline["success"]
                height = height if levels is None else float(levels["success"].iloc[-1])
                level = [] if height is None else [("SFT policy", height, Look(MUTED, "o", "-"))]
                _end_labels(figure, ax, [*level, *(end for end in ends if end is not None)], top)
            else:
                ax.set_title(group[-1], fontsize=9.5, loc="left")
        if title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=13, fontweight="bold")
        return figure


def _panels(methods: Sequence[str], height: float) -> tuple[Figure, list[tuple[Axes, list[str]]]]:
    """Axes and the methods in each: all in one; for more than seven a panel each, with flat GRPO in all of them."""
    if len(methods) <= MOST_IN_ONE:
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        return figure, [(figure.subplots(), list(methods))]
    groups = [[name for name in (BASELINE, method) if name in methods] for method in methods if method != BASELINE]
    rows = -(-len(groups) // 4)
    figure = Figure(figsize=(WIDTH, 2.2 * rows), layout="constrained")
    axes = list(figure.subplots(rows, 4, sharex=True, sharey=True, squeeze=False).flat)
    for spare in axes[len(groups) :]:
        spare.set_visible(False)
    return figure, list(zip(axes, groups, strict=False))


def context_tokens(curves: pd.DataFrame, *, methods: Sequence[str]) -> Figure:
    """Mean tokens of the context turn by turn, one line per method. `curves` has method, turn, tokens.

    The panels are those of the learning curves.
    """
    with matplotlib.rc_context(STYLE):
        figure, panels = _panels(methods, 4.2)
        style, single = looks(methods), len(panels) == 1
        for ax, group in panels:
            ax.set_ylim(0, 1.06 * curves["tokens"].max())
            ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=12 if single else 5))
            ax.yaxis.set_major_formatter(_WHOLE)
            ax.spines["left"].set_visible(False)
            for number, method in enumerate(group):
                rows = curves[curves["method"] == method]
                step = max(1, len(rows) // 10)
                # Lines may coincide, so each has its markers at other turns.
                every = {"markevery": (number % step, step)}
                _line(ax, rows["turn"], rows["tokens"], style[method], method, small=not single, **every)
            if single:
                ax.set_xlabel("turn")
                ax.set_title("context tokens at a turn", loc="left", fontsize=10.5, color=MUTED)
                figure.legend(loc="outside right upper", frameon=False, handlelength=3.2)
            else:
                ax.set_title(group[-1], fontsize=9.5, loc="left")
        return figure


def _line(ax: Axes, x: pd.Series, y: pd.Series, look: Look, name: str, *, small: bool, **more: Any) -> None:
    """A method's line with its markers."""
    size, width = (3.2, 1.4) if small else (5, 2)
    form: dict[str, Any] = {"color": look.colour, "linestyle": look.dash, "marker": look.marker}
    ax.plot(x, y, **form, **more, markersize=size, linewidth=width, label=name)


def per_rollout(panels: Sequence[tuple[str, Sequence[tuple[str, Number]]]], *, methods: Sequence[str]) -> Figure:
    """Numbers of a rollout by method, one panel for each quantity, from zero. `panels`: heading and (method, number).

    `methods`: as in `looks`.
    """
    style = looks(methods)
    names = list(dict.fromkeys(name for _, numbers in panels for name, _ in numbers))
    place = {name: len(names) - 1 - row for row, name in enumerate(names)}
    with matplotlib.rc_context(SIDEWAYS):
        figure = Figure(figsize=(WIDTH, 0.95 + 0.4 * len(names)), layout="constrained")
        axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for ax, (heading, numbers) in zip(axes, panels, strict=True):
            for name, number in numbers:
                look, row = style[name], place[name]
                ax.plot([0, number.value], [row, row], color=look.colour, linewidth=1.2, alpha=0.5)
                if number.low is not None and number.high is not None:
                    ax.plot([number.low, number.high], [row, row], color=look.colour, linewidth=2.6)
                ax.plot([number.value], [row], marker=look.marker, markersize=8, color=look.colour)
                text = f"{number.value:,.0f}" if number.value >= 100 else f"{number.value:.1f}"
                _text(ax, text, (number.value, row), (0, 8), ha="center", fontsize=9.5)
            ax.set_xlim(left=0)
            ax.margins(x=0.12)
            ax.set_ylim(-0.6, len(names) - 0.3)
            ax.set_yticks(list(place.values()), list(place), color=INK)
            ax.xaxis.set_major_locator(MaxNLocator(nbins=4))
            ax.xaxis.set_major_formatter(_WHOLE)
            ax.set_title(heading, loc="left", fontsize=10.5, color=MUTED)
            ax.spines["left"].set_visible(False)
        return figure


def _top(
    curves: pd.DataFrame, seeds: pd.DataFrame, baseline: Mapping[str, float] | None, levels: pd.DataFrame | None
) -> float:
    """The upper end of the axis: the next tenth above everything that is drawn."""
    highest = max(
        curves["high"].max(),
        seeds["success"].max() if len(seeds) else 0,
        baseline["high"] if baseline else 0,
        0 if levels is None else levels["high"].max(),
    )
    return float(min(1.0, np.ceil(highest * 10 + 0.2) / 10))


def _axes_frame(ax: Axes, top: float, rounds: pd.Series, first: int, ylabel: str | None, *, ticks: int) -> None:
    ax.set_ylim(0, top)
    # A single round still needs a width.
    ax.set_xlim(first - 0.25, max(rounds.max(), first + 1) + 0.25)
    ax.xaxis.set_major_locator(MaxNLocator(integer=True, nbins=ticks))
    ax.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{100 * value:.0f}%"))
    ax.spines["left"].set_visible(False)
    if ylabel:
        ax.set_xlabel("round")
        ax.set_title(ylabel, loc="left", fontsize=10.5, color=MUTED)


def _baseline(ax: Axes, baseline: Mapping[str, float] | None, levels: pd.DataFrame | None) -> None:
    """The SFT policy: its point at round 0, and its level in every round, or over all where it has one alone."""
    if levels is not None:
        round_ = levels["round"].to_numpy(dtype=np.float64)
        edges = np.concatenate([[round_[0] - 0.5], (round_[1:] + round_[:-1]) / 2, [ax.get_xlim()[1]]])
        ax.stairs(levels["high"], edges, baseline=levels["low"].to_numpy(), fill=True, color=MUTED, alpha=0.16, lw=0)
        ax.stairs(levels["success"], edges, baseline=None, color=MUTED, linewidth=1.4)
    if baseline is None:
        return
    if levels is None:
        ax.axhspan(baseline["low"], baseline["high"], color=MUTED, alpha=0.16, linewidth=0)
        ax.axhline(baseline["success"], color=MUTED, linewidth=1, dashes=(2, 2))
    ax.plot([0, 0], [baseline["low"], baseline["high"]], color=MUTED, linewidth=1.6)
    ax.plot([0], [baseline["success"]], marker="o", markersize=5, color=MUTED)


def _curve(
    ax: Axes, curves: pd.DataFrame, seeds: pd.DataFrame, method: str, look: Look, start: float | None, *, small: bool
) -> tuple[str, float, Look] | None:
    """Draw one method from `start` at round 0 on; its name, last success and look, or None if it has no round yet."""
    rows = curves[curves["method"] == method].sort_values("round")
    if rows.empty:
        return None
    own = seeds[seeds["method"] == method]
    if own["seed"].nunique() > 1:
        for _, line in own.groupby("seed"):
            ax.plot(line["round"], line["success"], color=look.colour, linewidth=0.7, alpha=0.35)
    if start is not None:
        first = rows.iloc[0]
        ax.plot([0, first["round"]], [start, first["success"]], color=look.colour, linewidth=0.9, alpha=0.6)
    ax.fill_between(rows["round"], rows["low"], rows["high"], color=look.colour, alpha=0.13, linewidth=0)
    _line(ax, rows["round"], rows["success"], look, method, small=small)
    last = rows.iloc[-1]
    return method, float(last["success"]), look


def _end_labels(figure: Figure, ax: Axes, ends: list[tuple[str, float, Look]], top: float) -> None:
    """Each line's marker and name at its right end, moved apart where names would touch.

    Names are in ink: some of the lines' colours are too light for text.
    """
    gap = top * 0.058
    heights: list[float] = []
    for _, height, _ in (ordered := sorted(ends, key=lambda end: end[1])):
        heights.append(max(height, heights[-1] + gap) if heights else height)
    overshoot = max(0.0, heights[-1] - top) if heights else 0.0
    right = ax.get_xlim()[1]
    beside = offset_copy(ax.transData, figure, x=10, units="points")
    for (name, success, look), height in zip(ordered, heights, strict=True):
        at = right, height - overshoot
        mark: dict[str, Any] = {"marker": look.marker, "markersize": 5, "color": look.colour, "clip_on": False}
        ax.plot([at[0]], [at[1]], transform=beside, **mark)
        _text(ax, f"{name} {100 * success:.0f}%", at, (17, 0), va="center", annotation_clip=False)


def _text(ax: Axes, text: str, at: tuple[float, float], offset: tuple[float, float], **form: Any) -> None:
    """A text beside a point, `offset` in points."""
    ax.annotate(text, at, xytext=offset, textcoords="offset points", **form)


def differences(rows: Sequence[tuple[str, Estimate]], *, against: str, methods: Sequence[str]) -> Figure:
    """Paired differences in points with their intervals, one row per method, zero marked. `methods`: as in `looks`."""
    points = [_Row(name, *(100 * x for x in (found.value, found.low, found.high))) for name, found in rows]
    with matplotlib.rc_context(SIDEWAYS):
        figure, ax = _forest(points, style=looks(methods), height=0.42, above=0.25)
        for place, row in enumerate(reversed(points)):
            _text(ax, f"{row.value:+.1f}", (row.value, place), (0, 8), ha="center", fontsize=9.5)
        ax.set_xlabel(f"points of success above (right) or below (left) {against}")
        ax.margins(x=0.08)
        return figure


def fidelity(rows: Sequence[tuple[str, Number]], ceiling: Number | None, *, methods: Sequence[str]) -> Figure:
    """The rank correlation of each method's credit with the truth, one row per method, zero and the ceiling marked."""
    ranks = [_Row(name, number.value, number.low, number.high) for name, number in rows]
    with matplotlib.rc_context(SIDEWAYS):
        top = None if ceiling is None else ceiling.value
        figure, ax = _forest(ranks, style=looks(methods), height=0.36, above=0.05, mark=top)
        if top is not None:
            form = {"ha": "right", "va": "center", "color": MUTED, "fontsize": 9.5}
            _text(ax, "noise ceiling", (top, len(rows) - 0.3), (-5, 0), **form)
        ax.set_xlabel("rank correlation with the true advantage, within rollouts")
        return figure


class _Row(NamedTuple):
    """A row of a forest plot: a value, and its interval if it has one."""

    name: str
    value: float
    low: float | None
    high: float | None


def _forest(
    rows: Sequence[_Row], *, style: Mapping[str, Look], height: float, above: float, mark: float | None = None
) -> tuple[Figure, Axes]:
    """Values with their intervals, the first row on top; a line at zero, and a dashed one at `mark`.

    A marker is filled where the interval excludes zero. `height` is that of a row, in inches; the axis ends
    `1 - above` rows over the first one.
    """
    figure = Figure(figsize=(WIDTH, 1.0 + height * len(rows)), layout="constrained")
    ax = figure.subplots()
    ax.axvline(0, color=MUTED, linewidth=1.2)
    if mark is not None:
        ax.axvline(mark, color=MUTED, linewidth=1.2, dashes=(4, 3))
    for place, row in enumerate(reversed(rows)):
        look = style[row.name]
        clear = False
        if row.low is not None and row.high is not None:
            ax.plot([row.low, row.high], [place, place], color=look.colour, linewidth=2.4)
            clear = row.low > 0 or row.high < 0
        face = look.colour if clear else "none"
        ax.plot([row.value], [place], marker=look.marker, markersize=8, color=look.colour, markerfacecolor=face)
    ax.set_yticks(range(len(rows)), [row.name for row in reversed(rows)], color=INK)
    ax.set_ylim(-0.6, len(rows) - above)
    ax.spines["left"].set_visible(False)
    return figure, ax


def scatter(points: Sequence[Point], *, label: str, against: str, methods: Sequence[str]) -> Figure:
    """A measure in round 1 (x) against the gain after training (y), one named point per method."""
    style, names = looks(methods), []
    with matplotlib.rc_context({**STYLE, "axes.grid.axis": "both"}):
        figure = Figure(figsize=(5.6, 4.6), layout="constrained")
        ax = figure.subplots()
        ax.axhline(0, color=MUTED, linewidth=1)
        ax.axvline(0, color=MUTED, linewidth=1)
        for point in points:
            look, gain, x = style[point.method], point.gain or NO_DIFFERENCE, point.x
            thin: dict[str, Any] = {"color": look.colour, "linewidth": 1, "alpha": 0.55}
            if x.low is not None and x.high is not None:
                ax.plot([x.low, x.high], [100 * gain.value] * 2, **thin)
            ax.plot([x.value] * 2, [100 * gain.low, 100 * gain.high], **thin)
            face = "none" if point.group == "references" else look.colour
            form: dict[str, Any] = {
                "marker": look.marker,
                "markersize": 8,
                "color": look.colour,
                "markerfacecolor": face,
            }
            ax.plot([x.value], [100 * gain.value], **form)
            names.append((point.method, x.value, 100 * gain.value))
        values = [x for _, x, _ in names]
        if min(values) > 0 and max(values) > 30 * min(values):
            ax.set_xscale("log")
        _names(ax, names)
        ax.set_xlabel(label)
        ax.set_title(f"points of success above {against}, after training", loc="left", fontsize=10.5, color=MUTED)
        ax.margins(0.12)
        return figure


def _names(ax: Axes, points: Sequence[tuple[str, float, float]]) -> None:
    """Each point's name beside it, moved up or down where names would cover each other."""
    bottom, top = ax.get_ylim()
    gap, taken = 0.055 * (top - bottom), []
    for name, x, y in sorted(points, key=lambda point: point[2]):
        height, across = y, ax.transAxes.inverted().transform(ax.transData.transform((x, y)))[0]
        while any(abs(height - other) < gap and abs(across - at) < 0.45 for at, other in taken):
            height += gap / 4
        taken.append((across, height))
        side = across > 0.62
        form = {"ha": "right" if side else "left", "va": "center", "fontsize": 9}
        _text(ax, name, (x, height), (-7 if side else 7, 8), **form)


def page_svg(figure: Figure, name: str, label: str) -> str:
    """The figure as SVG for the page: page colours, text as text, unique ids, `label` for screen readers."""
    svg = _svg(figure, name, transparent=True)
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    for colour, variable in PAGE_COLOURS.items():
        svg = svg.replace(colour, variable)
    svg = re.sub(r'id="([^"]+)"', rf'id="{name}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", svg)
    head = rf'<svg viewBox="\1" role="img" aria-label="{label}">'
    return re.sub(r'<svg [^>]*?viewBox="([^"]+)"[^>]*>', head, svg, count=1)


def standalone_svg(figure: Figure, name: str) -> str:
    """The figure as an SVG file on white, for a README."""
    return _svg(figure, name, facecolor=PAPER)


def _svg(figure: Figure, name: str, **options: Any) -> str:
    buffer = io.StringIO()
    # A fixed salt and no date: the same numbers give the same bytes.
    with matplotlib.rc_context({**STYLE, "svg.hashsalt": name}):
        figure.savefig(buffer, format="svg", metadata={"Date": None}, **options)
    return buffer.getvalue()
