"""Figures of the score's pages as SVG text; colours are classes of the style sheet, so that they follow its theme."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

from markupsafe import Markup, escape

from turncredit.audit.score.agreement import Agreement
from turncredit.audit.score.card import Credited

#: Pixels of a panel's side.
SIDE = 150
#: Pixels of the dot plot: its width, the place of names on its left, and from row to row.
WIDE, LEFT, STEP = 560, 160, 24


def dots(rows: Sequence[tuple[str, float, float]]) -> Markup:
    """A row for each name: its rank correlation (square) and cosine (dot), from -1 to 1; NaN is left out."""
    tall = STEP * len(rows) + 34
    parts = [_line(_x(value), 6, _x(value), tall - 28, "zero" if value == 1 else "axis") for value in (-1, 0, 1)]
    for place, (name, rank, cosine) in enumerate(rows):
        y = 18 + STEP * place
        parts.append(_text(LEFT, y + 4, name, "end"))
        if isfinite(rank):
            parts.append(f'<rect class="w" x="{_x(rank) - 5:.1f}" y="{y - 5}" width="10" height="10"/>')
        if isfinite(cosine):
            kind = "p" if cosine > 0 else "n"
            parts.append(f'<circle class="{kind}" cx="{_x(cosine):.1f}" cy="{y}" r="5.5"/>')
    parts += [_text(_x(value), tall - 10, f"{value:g}", "middle") for value in (-1, 0, 1)]
    return _svg(WIDE, tall, parts, "rank correlation (square) and cosine (dot) of each row")


def agreements(rows: Sequence[tuple[str, Agreement]]) -> Markup:
    """A row for each name: a number from -1 to 1 (dot) with its interval (bar) and its noise ceiling (tick)."""
    tall = STEP * len(rows) + 34
    parts = [_line(_x(value), 6, _x(value), tall - 28, "axis") for value in (-1, 0, 1)]
    for place, (name, number) in enumerate(rows):
        y = 18 + STEP * place
        parts.append(_text(LEFT, y + 4, name, "end"))
        if isfinite(number.low):
            parts.append(_line(_x(number.low), y, _x(number.high), y, "e"))
        if isfinite(number.ceiling):
            parts.append(f'<rect class="w" x="{_x(number.ceiling) - 1.5:.1f}" y="{y - 8}" width="3" height="16"/>')
        if isfinite(number.value):
            kind = "p" if number.value > 0 else "n"
            parts.append(f'<circle class="{kind}" cx="{_x(number.value):.1f}" cy="{y}" r="5.5"/>')
    parts += [_text(_x(value), tall - 10, f"{value:g}", "middle") for value in (-1, 0, 1)]
    return _svg(WIDE, tall, parts, "rank correlation of each part with its interval and its noise ceiling")


def _x(value: float) -> float:
    return LEFT + 20 + (value + 1) / 2 * (WIDE - LEFT - 40)


def scatter(decisions: Sequence[Credited], title: str) -> Markup:
    """Mean credit against the true advantage, a dot for each decision; its area is how often the decision is made."""
    size = max((abs(number) for one in decisions for number in (one.truth, one.credit)), default=0.0) or 1.0
    most = max((one.visits for one in decisions), default=1.0)

    def at(value: float) -> float:
        return SIDE / 2 + value / size * (SIDE / 2 - 10)

    middle = SIDE / 2
    parts = [
        _line(0, middle, SIDE, middle, "axis"),
        _line(middle, 0, middle, SIDE, "axis"),
        _line(10, SIDE - 10, SIDE - 10, 10, "zero"),
    ]
    for one in decisions:
        kind = "n" if one.truth * one.credit < 0 else "p"
        where = f'cx="{at(one.truth):.1f}" cy="{SIDE - at(one.credit):.1f}" r="{1.5 + 5 * sqrt(one.visits / most):.1f}"'
        words = f"{one.observation} {one.action}: credit {one.credit:+.3f}, A* {one.truth:+.3f}"
        parts.append(f'<circle class="{kind}" fill-opacity=".6" {where}><title>{escape(words)}</title></circle>')
    return _svg(SIDE, SIDE, parts, f"{title}: mean credit against the true advantage")


def _svg(wide: int, tall: int, parts: Sequence[str], label: str) -> Markup:
    size = f'viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}"'
    head = f'<svg class="plot" role="img" aria-label="{escape(label)}" {size}>'
    return Markup(f"{head}{''.join(parts)}</svg>")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
