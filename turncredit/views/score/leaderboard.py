"""The leaderboard as a table: in the terminal, and as the page docs/leaderboard.md."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from turncredit.audit.score.card import SIZE
from turncredit.audit.score.leaderboard import Leaderboard, Scored
from turncredit.audit.score.worth import Worth, gains, verdict, worth
from turncredit.credit.parts.baselines import BASELINE
from turncredit.views.score.words import share, times, two
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
#: The columns that hold words.
TEXTS = ("worst", "gains")


def cells(one: Scored) -> list[str]:
    """A method's numbers, in the order of `COLUMNS`."""
    found = one.summary
    worst = share(found.worst)
    if worst != "1.00":  # among worlds without a bias the last bits would choose
        worst = f"{worst} {found.where}".strip()
    numbers = (two(found.rank), share(found.sign), share(found.top), share(found.cosine), worst, times(found.noise))
    return [*numbers, two(found.going_on), two(found.going_on_paid), _gains(one.method.name)]


def _gains(name: str) -> str:
    """The method's gains by setting, a dash where it was not trained with these settings."""
    found = [of_setting.get(name) for of_setting in gains().values()]
    if name == BASELINE or not any(found):
        return ""
    one, other, *rest = [f"{gain.value:+.1f}" if gain else "-" for gain in found]
    return "; ".join([f"{one}, {other}", *rest])


def print_leaderboard(board: Leaderboard, to: Console) -> None:
    """Print a row for each method, and one line for those that were not scored."""
    table = plain_table(["method", *COLUMNS], [False, *[name not in TEXTS for name in COLUMNS]])
    for one in board.scored:
        table.add_row(one.method.name, *cells(one))
    to.print(table)
    to.print(verdict(worth(board.scored)))
    if board.left_out:
        to.print(f"not scored: {', '.join(method.name for method, _ in board.left_out)}")


def markdown(board: Leaderboard) -> str:
    """docs/leaderboard.md, as it is committed."""
    settings, found = board.scored[0].card, worth(board.scored)
    lines = [
        "# Leaderboard: credit methods on exact worlds",
        "",
        "After this page you know how every method does where the truth is known ([how to read it](score.md)).",
        "",
        "    turncredit score --all --markdown docs/leaderboard.md      # writes this page",
        "",
        f"Exact worlds, groups of {SIZE}, {settings.rollouts:,} rollouts drawn in each world (seed {settings.seed}).",
        "Ordered by the mean cosine. A high place is no promise of a gain in training.",
        "",
        f"| method | {' | '.join(COLUMNS)} |",
        f"|---|{''.join('---|' if name in TEXTS else '---:|' for name in COLUMNS)}",
        *(f"| {_name(one)} | {' | '.join(cells(one))} |" for one in board.scored),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in COLUMNS.items()),
        "- *italics*: a [reference](methods/bounds.md), which could not be used in a real environment.",
        "",
        "## Do these numbers predict gains?",
        "",
        verdict(found),
        "",
        "Spearman's correlation over families of methods (one method each, no references), 95% by Bonett and Wright, p",
        "by permutation, and the number of families. + is good. The gains' own errors are not in the intervals.",
        "",
        *_worth_table(found),
        "",
        "## Not scored here",
        "",
        *(f"- {reason[0].upper()}{reason[1:]}: {', '.join(names)}." for reason, names in _by_reason(board).items()),
        "",
    ]
    return "\n".join(lines)


def _worth_table(found: Sequence[Worth]) -> list[str]:
    """A row for each number, a column for each setting."""
    by_part: dict[str, dict[str, str]] = {}
    for one in found:
        text = f"{two(one.rho)} ({two(one.low)} to {two(one.high)}), p {one.p:.2f}, {one.families}"
        by_part.setdefault(one.part, {})[one.setting] = text
    settings = list(dict.fromkeys(one.setting for one in found))
    rows = (f"| {part} | {' | '.join(of.get(one, '') for one in settings)} |" for part, of in by_part.items())
    return [f"| number | {' | '.join(settings)} |", f"|---|{'---|' * len(settings)}", *rows]


def _by_reason(board: Leaderboard) -> dict[str, list[str]]:
    """The methods that were not scored, by the reason."""
    names: dict[str, list[str]] = {}
    for method, reason in board.left_out:
        names.setdefault(reason, []).append(f"`{method.name}`")
    return names


def _name(one: Scored) -> str:
    name = f"`{one.method.name}`"
    return f"*{name}*" if one.method.role == "bound" else name
