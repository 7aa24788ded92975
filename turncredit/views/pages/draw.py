"""Small figures as SVG text. Colours are classes of the page's style sheet, so that they follow its theme."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from markupsafe import Markup

from turncredit.views.pages.data import CLEAR
from turncredit.views.pages.formats import share
from turncredit.views.pages.method_details import Walk

UNIT = 10  # width of a turn
HALF = 10  # height of a strip above and below its zero
CELL = 26  # side of a square of a heatmap, with its gap (style.css: 25)


def strip(x_T: np.ndarray, scale: float, *, width: int, se_T: np.ndarray | None = None, label: str = "") -> Markup:
    """Bars up for positive and down for negative numbers, one for each turn; `scale` is a full bar.

    With `se_T` a line shows 1.96 standard errors to both sides. A turn without a number is a gap in all of it.
    `width` is the number of turns for which the figure has room.
    """
    up, down, none, lines, zero = [], [], [], [], []
    for turn, x in enumerate(x_T.tolist()):
        left = turn * UNIT + 1
        if not np.isfinite(x):
            continue
        zero.append(f"M{turn * UNIT} {HALF}h{UNIT}")
        height = round(share(x, scale) * (HALF - 0.5), 1)
        if x > 0:
            up.append(f"M{left} {HALF}v{-max(height, 0.6)}h8V{HALF}z")
        elif x < 0:
            down.append(f"M{left} {HALF}v{max(height, 0.6)}h8V{HALF}z")
        else:
            none.append(f"M{left} {HALF}h8")
        if se_T is not None:
            ends = [HALF - float(np.clip((x + k * se_T[turn]) / scale, -1, 1)) * (HALF - 0.5) for k in (-CLEAR, CLEAR)]
            lines.append(f"M{left + 4} {ends[0]:.1f}V{ends[1]:.1f}")
    if len(zero) == len(x_T):
        zero = [f"M0 {HALF}H{len(x_T) * UNIT}"]
    parts = [_path(*one) for one in (("zero", zero), ("p", up), ("n", down), ("o", none), ("e", lines))]
    return _picture("strip", label, width, 2 * HALF, parts)


def _picture(kind: str, label: str, width: int, tall: int, parts: Sequence[str]) -> Markup:
    """An SVG over `width` turns that is stretched to the width of its place."""
    box = f'viewBox="0 0 {width * UNIT} {tall}" preserveAspectRatio="none"'
    return Markup(f'<svg class="{kind}" role="img" aria-label="{Markup.escape(label)}" {box}>{"".join(parts)}</svg>')


def _path(kind: str, steps: Sequence[str]) -> str:
    """A path of a style's class; nothing without steps."""
    return f'<path class="{kind}" d="{"".join(steps)}"/>' if steps else ""


def levels(x_T: np.ndarray, *, top: float, width: int, label: str) -> Markup:
    """Non-negative numbers (attention) as bars from the bottom; `top` is a full bar."""
    bars = "".join(
        f"M{turn * UNIT + 1} {2 * HALF}v{-max(round(x / top * (2 * HALF - 1), 1), 0.3)}h8V{2 * HALF}z"
        for turn, x in enumerate(x_T.tolist())
        if np.isfinite(x)
    )
    return _picture("strip", label, width, 2 * HALF, [f'<path class="w" d="{bars}"/>'])


def course(
    before_T: np.ndarray,
    before_se_T: np.ndarray,
    after_T: np.ndarray,
    after_se_T: np.ndarray,
    lines: Sequence[tuple[str, np.ndarray]],
    *,
    low: float,
    high: float,
    width: int,
    label: str,
) -> Markup:
    """The course of the true value: for each branched turn a line from V before the action to Q after it.

    Bars are 1.96 standard errors. `lines` are learned values V_t (class, numbers), as dots before each turn.
    """
    tall = 60
    span = (high - low) or 1.0

    def y(value: float) -> float:
        return round(tall - 2 - (float(np.clip(value, low, high)) - low) / span * (tall - 4), 1)

    grid = "".join(f"M0 {y(level)}H{width * UNIT}" for level in (low, (low + high) / 2, high))
    parts = [f'<path class="grid" d="{grid}"/>']
    band, rise, fall = [], [], []
    for turn in np.flatnonzero(np.isfinite(before_T) & np.isfinite(after_T)).tolist():
        left, right = turn * UNIT + 0.8, turn * UNIT + UNIT - 0.8
        start, end = y(before_T[turn]), y(after_T[turn])
        for x, value, se in ((left, before_T, before_se_T), (right, after_T, after_se_T)):
            half = CLEAR * float(np.nan_to_num(se[turn]))
            band.append(f"M{x:g} {y(value[turn] - half)}V{y(value[turn] + half)}")
        (rise if after_T[turn] >= before_T[turn] else fall).append(f"M{left:g} {start}L{right:g} {end}")
    parts += [_path(*one) for one in (("e", band), ("rise", rise), ("fall", fall))]
    for name, value_T in lines:
        turns = np.flatnonzero(np.isfinite(value_T)).tolist()
        points = " ".join(f"{turn * UNIT + 0.8:g},{y(value_T[turn])}" for turn in turns)
        parts.append(f'<polyline class="learned {name}" points="{points}"/>')
    return _picture("course", label, width, tall, parts)


def heatmap(walk: Walk, turn_of: np.ndarray, drawn: dict[bytes, str]) -> Markup:
    """SCPO's similarities: a row for each reference turn, a column for each failed turn, and the credited path.

    Cells are darker the more similar the turns; a dot marks a match (at least theta), a frame a credited one, with its
    position in the order of credits. `turn_of` (N) gives the turn number of a row. `drawn` has the names of cells that
    are already on the page, and these are added: variants of SCPO differ in their walk, not in the similarities.
    """
    cell, left, top = CELL, 34, 24
    m, width = walk.score_mV.shape
    x_of = {int(row): left + column * cell for column, row in enumerate(walk.failed)}
    cells = _cells(walk, turn_of, left, top)
    out = []
    key = cells.encode()
    if key in drawn:
        out.append(f'<use href="#{drawn[key]}"/>')
    else:
        drawn[key] = f"alike{len(drawn)}"
        out.append(f'<g id="{drawn[key]}">{cells}</g>')
    for place, row in enumerate(walk.reference.tolist()):
        y = top + place * cell + 17
        out.append(f'<text class="tick" x="{left - 6}" y="{y}" text-anchor="end">{turn_of[row]}</text>')
    for other, x in x_of.items():
        out.append(f'<text class="tick" x="{x + cell / 2}" y="{top - 8}" text-anchor="middle">{turn_of[other]}</text>')
    credited = [step for step in walk.steps if step.place >= 0]
    centre = [(x_of[step.row] + cell / 2 - 0.5, top + step.place * cell + cell / 2 - 0.5) for step in credited]
    if len(centre) > 1:
        points = " ".join(f"{x:g},{y:g}" for x, y in centre)
        out.append(f'<polyline class="path" points="{points}"/>')
    half = cell / 2 - 1.5
    for count, (x, y) in enumerate(centre, start=1):
        frame = f'x="{x - half:g}" y="{y - half:g}" width="{2 * half:g}" height="{2 * half:g}"'
        out.append(f'<rect class="halo" {frame}/><rect class="credited" {frame}/>')
        out.append(f'<text class="count" x="{x:g}" y="{y + 4:g}" text-anchor="middle">{count}</text>')
    wide, tall = left + width * cell + 4, top + m * cell + 4
    size = f'width="{wide}" height="{tall}" viewBox="0 0 {wide} {tall}"'
    label = f"Similarity of {m} reference turns and {width} failed turns; {len(credited)} credited"
    return Markup(f'<svg class="heatmap" role="img" aria-label="{label}" {size}>{"".join(out)}</svg>')


def _cells(walk: Walk, turn_of: np.ndarray, left: int, top: int) -> str:
    """The squares of a heatmap, and the dots on those that match."""
    out = []
    for place, row in enumerate(walk.reference.tolist()):
        y = top + place * CELL
        for column, other in enumerate(walk.failed.tolist()):
            score, x = float(walk.score_mV[place, column]), left + column * CELL
            title = f"<title>turn {turn_of[other]} and {turn_of[row]}: {score:.2f}</title>"
            out.append(f'<rect x="{x}" y="{y}" fill-opacity="{score:.2g}">{title}</rect>')
            if score >= walk.theta:
                out.append(f'<circle cx="{x + CELL - 6}" cy="{y + 6}" r="2"/>')
    return "".join(out)
