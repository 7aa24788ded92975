"""Learning curves as SVG that stretches to the width of its place, and the colours of methods as the style has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from markupsafe import Markup

from turncredit.views.looks import PAGE_COLOURS, Look, looks

WIDE, TALL = 600, 220
#: The most rounds whose ticks have a number.
NUMBERED = 12


@dataclass(frozen=True)
class Curve:
    """One line of the legend: a method, its mean over seeds at the last round, and its look as CSS."""

    name: str
    last: str
    colour: str
    dash: str


@dataclass(frozen=True)
class Chart:
    """A picture, its title and caption, and what its axes say.

    top      the upper end of the axis of success
    ticks    rounds with a number, each with its place as a share of the picture's width
    starts   warm starts, each with its success in the round of the curves' last numbers, or with what its number is
    """

    title: str
    caption: str
    picture: Markup
    top: str
    ticks: list[tuple[int, float]]
    curves: list[Curve]
    starts: list[tuple[str, str]]


def chart(
    title: str,
    caption: str,
    points: Mapping[str, Mapping[int, Sequence[float]]],
    span: tuple[int, int],
    marks: Mapping[str, Mapping[int, float]],
    methods: Sequence[str],
) -> Chart | None:
    """A line for each method: the mean over seeds (`points`: method -> round -> one number per seed). None without any.

    `span` has the first and the last round of the axis. `marks` has the success of warm starts on each round's games,
    drawn as steps: a rise along a line may be the games'.
    """
    if not any(points.values()):
        return None
    style = looks(methods)
    means = {name: {at: sum(x) / len(x) for at, x in of.items()} for name, of in points.items() if of}
    highest = max(
        [value for of in means.values() for value in of.values()]
        + [value for of in marks.values() for value in of.values()]
    )
    top = min(1.0, max(0.1, -(-highest // 0.1) / 10))

    first, last_round = span

    def along(round_: float) -> float:
        return (round_ - first) / max(last_round - first, 1)

    def x(round_: float) -> float:
        return round(WIDE * along(round_), 1)

    def y(value: float) -> float:
        return round(TALL - (TALL - 4) * min(value / top, 1.0) - 2, 1)

    parts = [f'<path class="grid" d="M0 {y(0)}H{WIDE}M0 {y(top / 2)}H{WIDE}M0 {y(top)}H{WIDE}"/>']
    numbered = _numbered(first, last_round)
    parts.append(f'<path class="grid" d="{"".join(f"M{x(at)} {y(0)}v-6" for at in numbered)}"/>')
    for of in marks.values():
        rounds = sorted(of)
        ends = [*((one + other) / 2 for one, other in pairwise(rounds)), last_round]
        steps = "".join(f"V{y(of[at])}H{x(end)}" for at, end in zip(rounds, ends, strict=True))
        steps = f"M0 {y(of[rounds[0]])}{steps}"
        parts.append(f'<path class="start" d="{steps}"/>')
    for name, of in means.items():
        colour, dash = _css(style[name])
        steps = " ".join(f"{x(at)},{y(value)}" for at, value in sorted(of.items()))
        dots = "".join(f"M{x(at)} {y(value)}h0" for at, value in of.items()) if len(of) < 3 else ""
        parts.append(
            f'<polyline class="curve" points="{steps}" style="stroke:{colour};stroke-dasharray:{dash}">'
            f"<title>{Markup.escape(name)}</title></polyline>"
            + (f'<path class="dot" d="{dots}" style="stroke:{colour}"/>' if dots else "")
        )
    picture = Markup(
        f'<svg class="curves" role="img" aria-label="{Markup.escape(title)}" viewBox="0 0 {WIDE} {TALL}" '
        f'preserveAspectRatio="none">{"".join(parts)}</svg>'
    )
    last = {name: of[max(of)] for name, of in means.items()}
    ranked = sorted(last, key=lambda name: -last[name])
    curves = [Curve(name, f"{100 * last[name]:.0f}%", *_css(style[name])) for name in ranked]
    shown = max(at for of in means.values() for at in of)
    starts = [(name, _in_round(of, shown)) for name, of in marks.items()]
    ticks = [(at, round(along(at), 4)) for at in numbered]
    return Chart(title, caption, picture, f"{100 * top:.0f}%", ticks, curves, starts)


def _in_round(levels: Mapping[int, float], round_: int) -> str:
    """A warm start's success on the games of a round, or its mean over the rounds that it was evaluated in."""
    if round_ in levels:
        return f"{100 * levels[round_]:.0f}%"
    rounds = ", ".join(map(str, sorted(levels)))
    of = f"mean of rounds {rounds}" if len(levels) > 1 else f"round {rounds}"
    return f"{100 * sum(levels.values()) / len(levels):.0f}% ({of})"


def _numbered(first: int, last: int) -> list[int]:
    """The rounds whose ticks have a number: all, or some at equal distances, and always the first."""
    step = next(size for size in (1, 2, 5, 10, 20, 50, 100, 200, 500, last) if (last - first) / size < NUMBERED)
    return list(dict.fromkeys([first, *range(step * (first // step + 1), last + 1, step)]))


def _css(look: Look) -> tuple[str, str]:
    """A look's colour as a variable of the style sheet, and its dashes for SVG."""
    dash = "none" if isinstance(look.dash, str) else " ".join(f"{2 * length:g}" for length in look.dash[1])
    return PAGE_COLOURS[look.colour], dash
