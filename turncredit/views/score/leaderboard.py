"""The leaderboard as a table: in the terminal, and as the page docs/leaderboard.md."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from turncredit.audit.score.agreement import RolloutScore
from turncredit.audit.score.card import SIZE
from turncredit.audit.score.leaderboard import Leaderboard, Scored
from turncredit.audit.score.worth import Worth, gains, verdict, worth
from turncredit.credit.parts.baselines import BASELINE
from turncredit.credit.parts.compose import Method
from turncredit.views.score.words import share, times, two, within
from turncredit.views.terminal import plain_table

#: Headings of `cells`, in its order, and what each says.
COLUMNS = {
    "rank": "rank correlation of credit and A* within rollouts, mean over worlds",
    "sign": "share of turns that matter whose credit has the right sign",
    "top": "share of rollouts whose decisive turn stands out most",
    "cosine": "of the expected gradient and the policy gradient, mean over worlds",
    "worst": "the smallest cosine, and its world where it is below 1",
    "noise": "rollouts needed for the same signal, as a multiple of flat GRPO's",
    "going on": "deviations paid for going on where it changes nothing; right is 0",
    "paid": "the same where turns are paid before the end",
    "gains": "over flat GRPO in training, in points of success: household from two SFT policies",
}
#: Headings of `recorded_cells`, in its order, and what each says.
RECORDED = {
    "rank": "rank correlation of credit and A* within rollouts, mean over parts, with its 95% interval over tasks",
    "rank by world": "the same over the parts of each world",
    "sign": "share of turns with |A*| above its error whose credit has the right sign",
    "top": "share of rollouts whose decisive turn stands out most",
    "alignment": "cosine of credit and A* over turns; knowing who won counts here",
    "between": "share of the credit's variance between rollouts, which says nothing of turns",
    "by turn": "share of the credit's variance that the turn's number explains",
    "parts": "parts of the set that have what the method reads",
    "gains": COLUMNS["gains"],
}
#: The columns that hold words.
TEXTS = ("worst", "rank by world", "gains")


def cells(one: Scored) -> list[str]:
    """A method's numbers, in the order of `COLUMNS`."""
    found = one.summary
    worst = share(found.worst)
    if worst != "1.00":  # among worlds without a bias the last bits would choose
        worst = f"{worst} {found.where}".strip()
    numbers = (two(found.rank), share(found.sign), share(found.top), share(found.cosine), worst, times(found.noise))
    return [*numbers, two(found.going_on), two(found.going_on_paid), _gains(one.method.name)]


def recorded_cells(one: Scored) -> list[str]:
    """A method's numbers on recorded rollouts, in the order of `RECORDED`."""
    found = one.card.recorded
    assert isinstance(found, RolloutScore)
    between, by_turn = (
        f"{100 * sum(getattr(part, name).credit for part in found.parts) / len(found.parts):.0f}%"
        for name in ("between", "by_turn")
    )
    ranks = within(found.rank), _by_world(found, "value")
    numbers = (*ranks, share(found.sign.value), share(found.top.value), two(found.alignment.value))
    return [*numbers, between, by_turn, str(len(found.parts)), _gains(one.method.name)]


def _by_world(found: RolloutScore, number: str) -> str:
    """The mean `value` or `ceiling` of the rank correlation in each world."""
    of_world: dict[str, list[float]] = {}
    for part in found.parts:
        of_world.setdefault(part.world, []).append(getattr(part.rank, number))
    return ", ".join(f"{world} {two(sum(values) / len(values))}" for world, values in of_world.items())


def _truth_cells(found: RolloutScore) -> list[str]:
    """What the truth would score, in the order of `RECORDED`."""
    between, by_turn = (
        f"{100 * sum(getattr(part, name).truth for part in found.parts) / len(found.parts):.0f}%"
        for name in ("between", "by_turn")
    )
    ceilings = (
        two(found.rank.ceiling),
        _by_world(found, "ceiling"),
        share(found.sign.ceiling),
        share(found.top.ceiling),
        two(found.alignment.ceiling),
    )
    return [*ceilings, between, by_turn, str(len(found.parts)), ""]


def _gains(name: str) -> str:
    """The method's gains by setting, a dash where it was not trained with these settings."""
    found = [of_setting.get(name) for of_setting in gains().values()]
    if name == BASELINE or not any(found):
        return ""
    one, other, *rest = [f"{gain.value:+.1f}" if gain else "-" for gain in found]
    return "; ".join([f"{one}, {other}", *rest])


def print_leaderboard(board: Leaderboard, to: Console) -> None:
    """Print a row for each method, and one line for those that were not scored."""
    table = plain_table(["exact worlds", *COLUMNS], [False, *[name not in TEXTS for name in COLUMNS]])
    for one in board.on_worlds:
        table.add_row(one.method.name, *cells(one))
    to.print(table)
    if board.on_rollouts:
        table = plain_table(["recorded rollouts", *RECORDED], [False, *[name not in TEXTS for name in RECORDED]])
        for one in board.on_rollouts:
            table.add_row(one.method.name, *recorded_cells(one))
        to.print(table)
    to.print(verdict(worth(board.scored)))
    for where, left_out in (("exact worlds", board.left_out), ("recorded rollouts", board.not_recorded)):
        if left_out:
            to.print(f"not scored on {where}: {', '.join(method.name for method, _ in left_out)}")


def markdown(board: Leaderboard) -> str:
    """docs/leaderboard.md, as it is committed."""
    settings, found = board.scored[0].card, worth(board.scored)
    lines = [
        "# Leaderboard: credit methods on exact worlds",
        "",
        "Written by `turncredit score --all --markdown docs/leaderboard.md`; [score](score.md) says how to read it.",
        f"Each number is over the exact worlds, for groups of {SIZE}, with {settings.rollouts:,} rollouts drawn in",
        f"each (seed {settings.seed}). Ordered by the mean cosine. A high place is no promise of a gain in training.",
        "",
        f"| method | {' | '.join(COLUMNS)} |",
        f"|---|{''.join('---|' if name in TEXTS else '---:|' for name in COLUMNS)}",
        *(f"| {_name(one)} | {' | '.join(cells(one))} |" for one in board.on_worlds),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in COLUMNS.items()),
        "- *italics*: a bound, which could not be used in a real environment.",
        "",
        *_recorded(board),
        "## Do these numbers predict gains?",
        "",
        verdict(found),
        "",
        "Spearman's correlation over families of methods (one method each, no bounds), 95% by Bonett and Wright, p by",
        "permutation. The sign is such that + is good. The gains' own errors are not in the intervals. `real_` is on",
        "recorded rollouts of the same world. *signs*: families whose gain has the sign that a threshold found on the",
        "other families predicts; in brackets, what is right if all have the more frequent sign.",
        "",
        "| number | setting | correlation | 95% | p | families | signs |",
        "|---|---|---:|---:|---:|---:|---|",
        *(_worth_row(one) for one in found),
        "",
        "## Not scored here",
        "",
        "On exact worlds:",
        "",
        *_reasons(board.left_out),
        "",
    ]
    if board.not_recorded:
        lines += ["On recorded rollouts:", "", *_reasons(board.not_recorded), ""]
    return "\n".join(lines)


def _reasons(left_out: Sequence[tuple[Method, str]]) -> list[str]:
    rows = (f"| `{method.name}` | {reason} |" for method, reason in left_out)
    return ["| method | why |", "|---|---|", *rows]


def _recorded(board: Leaderboard) -> list[str]:
    """The section about recorded rollouts; nothing without any."""
    if not board.on_rollouts:
        return []
    found = [one.card.recorded for one in board.on_rollouts if isinstance(one.card.recorded, RolloutScore)]
    most = max(found, key=lambda one: len(one.parts))
    return [
        "## On recorded rollouts",
        "",
        f"Means over the parts of [{most.set}, version {most.version}](score_data.md), ordered by rank correlation.",
        "The first row is what the truth would score against its own estimate.",
        "",
        f"| method | {' | '.join(RECORDED)} |",
        f"|---|{''.join('---|' if name in TEXTS else '---:|' for name in RECORDED)}",
        f"| A* | {' | '.join(_truth_cells(most))} |",
        *(f"| {_name(one)} | {' | '.join(recorded_cells(one))} |" for one in board.on_rollouts),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in RECORDED.items() if name != "gains"),
        "",
    ]


def _worth_row(one: Worth) -> str:
    interval = f"{two(one.low)} to {two(one.high)}"
    signs = f"{one.right} of {one.families} ({one.most})"
    return f"| {one.part} | {one.setting} | {two(one.rho)} | {interval} | {one.p:.2f} | {one.families} | {signs} |"


def _name(one: Scored) -> str:
    name = f"`{one.method.name}`"
    return f"*{name}*" if one.method.role == "bound" else name
