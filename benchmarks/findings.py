"""The figures of docs/findings.md, drawn from recorded tables: python -m benchmarks.findings [FOLDER]

gains.svg         every method's gain over flat GRPO in the household, from turncredit/audit/score/gains.csv
worlds.svg        the same of the methods that were trained in other worlds too
predictors.svg    which measure of a method's credit predicts its gain, from benchmarks/methods/predictors.csv
exact_worlds.svg  rank correlation and validity of the gradient on exact worlds, from docs/leaderboard.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path

import matplotlib
import matplotlib.lines
import pandas as pd

matplotlib.use("agg")

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from turncredit.views.looks import INK, MUTED
from turncredit.views.report.figures import SIDEWAYS

ROOT = Path(__file__).parents[1]
GAINS = ROOT / "turncredit/audit/score/gains.csv"
PREDICTORS = ROOT / "benchmarks/methods/predictors.csv"
LEADERBOARD = ROOT / "docs/leaderboard.md"
FOLDER = ROOT / "docs/images"

#: Okabe and Ito's colours (2008), brown for their yellow. Each has a marker: nothing depends on colour alone.
LOOKS = [
    ("#0072b2", "o"),
    ("#d55e00", "s"),
    ("#009e73", "D"),
    ("#cc79a7", "^"),
    ("#e69f00", "v"),
    ("#56b4e9", "P"),
    ("#000000", "X"),
    ("#8b4513", "<"),
]
STYLE = {
    **SIDEWAYS,
    "svg.hashsalt": "findings",
    "font.size": 10,
    "axes.spines.left": False,
    "ytick.color": INK,
}
#: What a method needs beside the rollouts and their rewards -> the methods of the figure. Variants are left out.
KNOWLEDGE = {
    "a judge that knows the task": ("has_judge", "triage", "adca_grpo"),
    "a value learned from outcomes": (
        "turn_value_calibrated",
        "turn_value",
        "value_baseline",
        "ppo",
        "turn_ppo",
        "bi_level_gae",
        "has_turnrd",
        "has_turnrd_film",
        "agentprm",
        "agentprm_td",
        "mgr",
    ),
    "a second pass of the policy": ("hcapo", "istar", "istar_code", "progress_advantage"),
    "nothing else": (
        "scpo",
        "hgpo",
        "gigpo",
        "gagpo",
        "g2po",
        "step_grpo",
        "empg",
        "turn_loo",
        "rloo",
        "rebn",
        "proxmo",
        "graphgpo",
    ),
    "progress that the environment measures": ("has_progressive", "mt_grpo_unbiased_progress", "turn_credit"),
    "references": ("oracle_progress", "random_credit"),
}
SETTINGS = {
    "household 1": "household: first SFT policy",
    "household 2": "second",
}
#: Points of success; an interval that goes on beyond them ends in an arrow.
LEFT, RIGHT = -31.0, 21.0


def main(folder: Path = FOLDER) -> None:
    """Draw all figures into `folder`."""
    measured = pd.read_csv(GAINS)
    home = measured["setting"].str.startswith("household")
    at_home, elsewhere = measured[home], measured[~home]
    with matplotlib.rc_context(STYLE):
        for name, figure in (
            ("gains", gains(at_home)),
            ("worlds", gains(measured[measured["method"].isin(elsewhere["method"])])),
            ("predictors", predictors(pd.read_csv(PREDICTORS))),
            ("exact_worlds", exact_worlds(leaderboard(LEADERBOARD.read_text(encoding="utf-8")))),
        ):
            figure.savefig(folder / f"findings_{name}.svg", metadata={"Date": None})


def gains(table: pd.DataFrame) -> Figure:
    """A forest plot. `table`: setting, method, value, low, high in points of success over flat GRPO."""
    rows = [
        (need, [method for method in methods if method in set(table["method"])]) for need, methods in KNOWLEDGE.items()
    ]
    rows = [(need, methods) for need, methods in rows if methods]
    settings = list(table["setting"].unique())
    tall = sum(len(methods) for _, methods in rows) + len(rows)
    figure = Figure(figsize=(8.6, 0.8 + (0.16 + 0.08 * len(settings)) * tall), layout="constrained")
    ax = figure.subplots()
    ticks, place = {}, float(tall)
    for need, methods in rows:
        place -= 1
        ax.text(LEFT, place - 0.15, need, fontsize=9, color=MUTED, style="italic", va="center")
        for method in methods:
            place -= 1
            ticks[place] = method
            _intervals(ax, place, table[table["method"] == method], settings)
    ax.axvline(0, color=INK, linewidth=1)
    ax.set(xlim=(LEFT, RIGHT), ylim=(-0.7, tall - 0.3), xlabel="points of success over flat GRPO, 95% intervals")
    ax.set_yticks(list(ticks), list(ticks.values()), family="monospace", fontsize=9)
    _legend(figure, settings)
    return figure


def _intervals(ax: Axes, place: float, found: pd.DataFrame, settings: Sequence[str]) -> None:
    """A method's interval in each setting that has one, side by side; beyond the axis an arrow and the number."""
    for number, row in enumerate(found.itertuples()):
        colour, marker = LOOKS[settings.index(row.setting) % len(LOOKS)]
        y = place + (0.5 * (len(found) - 1) - number) * 0.75 / len(settings)
        if row.value < LEFT:
            ax.annotate("", (LEFT, y), (LEFT + 1.5, y), arrowprops={"arrowstyle": "->", "color": colour})
            ax.text(LEFT + 1.8, y, f"{row.value:+.0f}", fontsize=7, color=colour, va="center")
            continue
        ax.plot([max(row.low, LEFT), min(row.high, RIGHT)], [y, y], color=colour, linewidth=1.6)
        ax.plot(row.value, y, marker, color=colour, markersize=4.6)


def predictors(table: pd.DataFrame) -> Figure:
    """Rank correlations of a measure with the gain. `table`: measure, turns, value, low, high."""
    measures, turns = list(table["measure"].unique()), list(table["turns"].unique())
    figure = Figure(figsize=(8.6, 0.9 + 0.85 * len(measures)), layout="constrained")
    ax = figure.subplots()
    for place, measure in enumerate(reversed(measures)):
        for number, name in enumerate(turns):
            row = table[(table["measure"] == measure) & (table["turns"] == name)].iloc[0]
            colour, marker = (MUTED, "x") if number == 0 else LOOKS[number - 1]
            y = place + 0.3 - 0.15 * number
            ax.plot([row["low"], row["high"]], [y, y], color=colour, linewidth=1.6)
            ax.plot(row["value"], y, marker, color=colour, markersize=4.8)
    ax.axvline(0, color=INK, linewidth=1)
    ax.set(xlim=(-1, 1), xlabel="rank correlation with the gain in training, 95% intervals")
    ax.set_yticks(range(len(measures)), list(reversed(measures)))
    handles = [
        matplotlib.lines.Line2D([], [], color=colour, marker=marker, label=name)
        for name, (colour, marker) in zip(turns, [(MUTED, "x"), *LOOKS], strict=False)
    ]
    figure.legend(handles=handles, loc="outside right upper", frameon=False, fontsize=8.5, title="measured on")
    return figure


def exact_worlds(table: pd.DataFrame) -> Figure:
    """Rank correlation against the cosine of the gradient. `table`: method, rank, cosine."""
    figure = Figure(figsize=(8.6, 4.2), layout="constrained")
    ax = figure.subplots()
    ax.grid(axis="y")
    ax.axhline(1, color=MUTED, linewidth=1)
    ax.axvline(0, color=MUTED, linewidth=1)
    bound = table["method"].isin(("truth", "oracle_progress", "random_credit"))
    for part, marker, colour in ((table[~bound], "o", LOOKS[0][0]), (table[bound], "^", LOOKS[2][0])):
        ax.plot(part["rank"], part["cosine"], marker, color=colour, markersize=6)
    named = table[(table["cosine"] < 0.955) | table["method"].isin(("flat_grpo", "gigpo", "truth", "vineppo", "scpo"))]
    for row in named.itertuples():
        ax.annotate(row.method, (row.rank, row.cosine), (6, -11), textcoords="offset points", fontsize=8.5)
    ax.set(
        xlabel="rank correlation of credit and true advantage within rollouts",
        ylabel="cosine of expected and true gradient",
        ylim=(table["cosine"].min() - 0.04, 1.03),
    )
    return figure


def leaderboard(text: str) -> pd.DataFrame:
    """Columns method, rank and cosine of the first table of docs/leaderboard.md, of methods that exact worlds score."""
    first = re.search(r"(?:^\|.*\|\n)+", text, re.MULTILINE)
    assert first is not None
    head, *rows = re.findall(r"^\| *(.*?) *\|$", first[0], re.MULTILINE)
    names = [name.strip() for name in head.split("|")]
    cells = [[cell.strip(" `*") for cell in row.split("|")] for row in rows if not row.startswith("---")]
    table = pd.DataFrame(cells, columns=names)[["method", "rank", "cosine"]]
    scored = table[table["rank"] != ""]
    return scored.assign(rank=scored["rank"].astype(float), cosine=scored["cosine"].astype(float))


def _legend(figure: Figure, settings: Sequence[str]) -> None:
    handles = [
        matplotlib.lines.Line2D([], [], color=colour, marker=marker, label=SETTINGS.get(setting, setting))
        for setting, (colour, marker) in zip(settings, LOOKS * (1 + len(settings) // len(LOOKS)), strict=False)
    ]
    figure.legend(handles=handles, loc="outside upper center", ncols=4, frameon=False, fontsize=9)


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
