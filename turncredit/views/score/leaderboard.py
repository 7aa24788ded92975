"""The leaderboard as a table: in the terminal, and as the page docs/leaderboard.md."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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
        "# Leaderboard: credit methods on exact worlds and recorded rollouts",
        "",
        "After this page you know how every method does where the truth is known ([how to read it](score.md)).",
        "",
        "    turncredit score --all --markdown docs/leaderboard.md      # writes this page",
        "",
        f"Exact worlds, groups of {SIZE}, {settings.rollouts:,} rollouts drawn in each world (seed {settings.seed}).",
        "Ordered by the mean cosine. A high place is no promise of a gain in training.",
        "",
        *_table(COLUMNS, [(_name(one), cells(one)) for one in board.on_worlds]),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in COLUMNS.items()),
        "- *italics*: a [reference](methods/bounds.md), which could not be used in a real environment.",
        "",
        *_recorded(board),
        "## Do these numbers predict gains?",
        "",
        verdict(found),
        "",
        "Spearman's correlation over families of methods (one method each, no references), 95% by Bonett and Wright, p",
        "by permutation. + is good. The gains' own errors are not in the intervals. `real_` is on recorded rollouts of",
        "the same world. *signs*: families whose gain has the sign that a threshold found on the other families",
        "predicts; in brackets, what is right if all have the more frequent sign.",
        "",
        *_worth_table(found),
        "",
        "## Not scored here",
        "",
        *_reasons("exact worlds", board.left_out),
    ]
    if board.not_recorded:
        lines += _reasons("recorded rollouts", board.not_recorded)
    return "\n".join(lines)


def _table(columns: Mapping[str, str], rows: Iterable[tuple[str, Sequence[str]]]) -> list[str]:
    """A table in Markdown: a row for each name with its cells."""
    rules = "".join("---|" if name in TEXTS else "---:|" for name in columns)
    return [
        f"| method | {' | '.join(columns)} |",
        f"|---|{rules}",
        *(f"| {name} | {' | '.join(row)} |" for name, row in rows),
    ]


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
        *_table(
            RECORDED,
            [("A*", _truth_cells(most)), *((_name(one), recorded_cells(one)) for one in board.on_rollouts)],
        ),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in RECORDED.items() if name != "gains"),
        "",
    ]


def _worth_table(found: Sequence[Worth]) -> list[str]:
    """A row for each number, a column for each setting."""
    by_part: dict[str, dict[str, str]] = {}
    for one in found:
        signs = f"signs {one.right} of {one.families} ({one.most})"
        text = f"{two(one.rho)} ({two(one.low)} to {two(one.high)}), p {one.p:.2f}, {signs}"
        by_part.setdefault(one.part, {})[one.setting] = text
    settings = list(dict.fromkeys(one.setting for one in found))
    rows = (f"| {part} | {' | '.join(of.get(one, '') for one in settings)} |" for part, of in by_part.items())
    return [f"| number | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}", *rows]


def _reasons(where: str, left_out: Sequence[tuple[Method, str]]) -> list[str]:
    """The methods that were not scored there, by the reason."""
    names: dict[str, list[str]] = {}
    for method, reason in left_out:
        names.setdefault(reason, []).append(f"`{method.name}`")
    rows = (f"- {reason[0].upper()}{reason[1:]}: {', '.join(of)}." for reason, of in names.items())
    return [f"On {where}:", "", *rows, ""]


def _name(one: Scored) -> str:
    name = f"`{one.method.name}`"
    return f"*{name}*" if one.method.role == "bound" else name
