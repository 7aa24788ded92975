"""Figures of the score's pages as SVG text; colours are classes of the style sheet, so that they follow its theme."""

from __future__ import annotations

from collections.abc import Sequence
from math import isfinite, sqrt

from markupsafe import Markup, escape

from turncredit.audit.score.card import SIZE, Credited, WorldScore
from turncredit.audit.score.leaderboard import Scored

#: Pixels of a panel's side, and of the text's place on its left.
SIDE, LEFT = 150, 120
#: Pixels between two rows of the dot plot.
STEP = 24


def dots(worlds: Sequence[WorldScore]) -> Markup:
    """A row for each world: rank correlation (square) and cosine (dot) from -1 to 1."""
    wide, tall = 460, STEP * len(worlds) + 34
    parts = [_line(_x(value, wide), 6, _x(value, wide), tall - 28, "zero" if value else "axis") for value in (-1, 0, 1)]
    for place, one in enumerate(worlds):
        y = 18 + STEP * place
        parts.append(_text(LEFT + 12, y + 4, one.world, "end"))
        rank, cosine = one.identification.rank.value, one.validity[SIZE].cosine.value
        if isfinite(rank):
            parts.append(f'<rect class="w" x="{_x(rank, wide) - 5:.1f}" y="{y - 5}" width="10" height="10"/>')
        if isfinite(cosine):
            kind = "p" if cosine > 0 else "n"
            parts.append(f'<circle class="{kind}" cx="{_x(cosine, wide):.1f}" cy="{y}" r="5.5"/>')
    parts += [_text(_x(value, wide), tall - 10, f"{value:g}", "middle") for value in (-1, 0, 1)]
    return _svg(wide, tall, parts, "rank correlation (square) and cosine (dot) in each world")


def _x(value: float, wide: int) -> float:
    return LEFT + 40 + (value + 1) / 2 * (wide - LEFT - 60)


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


def plane(scored: Sequence[Scored]) -> Markup:
    """The leaderboard: rank correlation against the smallest cosine, a dot for each method."""
    wide, tall, edge = 760, 430, 44

    def x(value: float) -> float:
        return edge + (value + 1) / 2 * (wide - 2 * edge)

    def y(value: float) -> float:
        return tall - edge - (value + 1) / 2 * (tall - 2 * edge)

    parts = [_line(x(-1), y(0), x(1), y(0), "axis"), _line(x(0), y(-1), x(0), y(1), "axis")]
    parts += [_text(x(value), tall - 14, f"{value:g}", "middle") for value in (-1, 0, 1)]
    parts += [_text(edge - 8, y(value) + 4, f"{value:g}", "end") for value in (-1, 0, 1)]
    parts += [_text(wide / 2, tall, "rank correlation with A*", "middle"), _text(edge, 14, "smallest cosine", "start")]
    taken: list[tuple[float, float]] = []
    for one in scored:
        rank, worst = one.summary.rank, one.summary.worst
        if not (isfinite(rank) and isfinite(worst)):
            continue
        across, down = x(rank), y(worst)
        label = down + 4
        while any(abs(label - other) < 11 and abs(across - beside) < 110 for beside, other in taken):
            label += 11
        taken.append((across, label))
        kind = "w" if one.method.role == "bound" else "p"
        parts.append(f'<circle class="{kind}" cx="{across:.1f}" cy="{down:.1f}" r="4.5"/>')
        parts.append(_text(across + 8, label, one.method.name, "start"))
    return _svg(wide, tall + 6, parts, "rank correlation against the smallest cosine of each method")


def _svg(wide: int, tall: int, parts: Sequence[str], label: str) -> Markup:
    size = f'viewBox="0 0 {wide} {tall}" width="{wide}" height="{tall}"'
    head = f'<svg class="plot" role="img" aria-label="{escape(label)}" {size}>'
    return Markup(f"{head}{''.join(parts)}</svg>")


def _line(x1: float, y1: float, x2: float, y2: float, kind: str) -> str:
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def _text(x: float, y: float, words: str, anchor: str) -> str:
    return f'<text class="tick" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(words)}</text>'
