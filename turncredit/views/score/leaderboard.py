"""The leaderboard as a table: in the terminal, and as the page docs/leaderboard.md."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from turncredit.audit.score.agreement import RolloutScore
from turncredit.audit.score.card import SIZE
from turncredit.audit.score.leaderboard import Leaderboard, Scored, parts_of
from turncredit.audit.score.worth import Worth, environment_of, gains, part_name, verdict, worth
from turncredit.credit.parts.baselines import BASELINE
from turncredit.views.score.words import share, times, two, within
from turncredit.views.terminal import plain_table, print_table

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
    "gains": "over flat GRPO in training, in points of success; household from up to two SFT policies",
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
#: Headings of docs/leaderboard.md, and what each says.
PAGE = {
    "rank": "rank correlation of credit and A* within rollouts, on exact worlds",
    "cosine": "of the expected gradient and the policy gradient, on exact worlds",
    "recorded": "the rank correlation on recorded rollouts, by which the rows are ordered",
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


def truth_cells(board: Leaderboard) -> list[str]:
    """What the truth would score against its own estimate, in the order of `RECORDED`."""
    found = _whole_set(board)
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
    """The method's gains by world: `household +3.4, +5.2; WebShop +2.4`."""
    found: dict[str, list[str]] = {}
    for setting, of_setting in gains().items():
        if name in of_setting and name != BASELINE:
            found.setdefault(environment_of(setting), []).append(f"{of_setting[name].value:+.1f}")
    return "; ".join(f"{world} {', '.join(values)}" for world, values in found.items())


def print_leaderboard(board: Leaderboard, to: Console) -> None:
    """Print a row for each method, and one line for those that were not scored."""
    table = plain_table(["exact worlds", *COLUMNS], [False, *[name not in TEXTS for name in COLUMNS]])
    for one in board.on_worlds:
        table.add_row(one.method.name, *cells(one))
    print_table(table, to, optional=("gains", "rank by world"))
    if board.on_rollouts:
        table = plain_table(["recorded rollouts", *RECORDED], [False, *[name not in TEXTS for name in RECORDED]])
        table.add_row("A*", *truth_cells(board))
        for one in board.on_rollouts:
            table.add_row(one.method.name, *recorded_cells(one))
        print_table(table, to, optional=("gains", "rank by world"))
    to.print(verdict(worth(board.scored)))
    for where, left_out in (("exact worlds", board.left_out), ("recorded rollouts", board.not_recorded)):
        if left_out:
            to.print(f"not scored on {where}: {', '.join(method.name for method, _ in left_out)}")


def markdown(board: Leaderboard) -> str:
    """docs/leaderboard.md, as it is committed: a row for each method that was scored anywhere."""
    settings, recorded = board.scored[0].card, board.on_rollouts
    order = [*recorded, *(one for one in board.on_worlds if one not in recorded)]
    parts = max(map(parts_of, recorded), default=0)
    nowhere = sorted({method.name for method, _ in board.left_out} - {one.method.name for one in board.scored})
    lines = [
        "# Leaderboard: how every method scores",
        "",
        "This page says how near each method's credit comes to the truth, and what it gained in training.",
        "",
        "    turncredit score --all --markdown docs/leaderboard.md      # writes this page",
        "    turncredit score --all --html leaderboard.html             # every number, and a card for each method",
        "",
        f"Exact worlds: {settings.rollouts:,} rollouts of each, in groups of {SIZE} (seed {settings.seed}).",
        f"{_set(board)} [What the numbers say](score.md).".lstrip(),
        "",
        f"| method | {' | '.join(PAGE)} |",
        f"|---|{'---:|' * (len(PAGE) - 1)}---|",
        *(f"| {_name(one)} | {' | '.join(_page_cells(one, parts))} |" for one in order),
        "",
        *(f"- *{name}*: {meaning}." for name, meaning in PAGE.items()),
        "- *italics*: a [reference](methods/references.md), which could not be used in a real environment.",
        "- Empty: the rollouts lack what the method reads. `turncredit score NAME` says what.",
    ]
    if any(parts_of(one) < parts for one in recorded):
        lines.append(
            f"- *recorded* (2 of {parts}): the mean over the 2 parts that have what the method reads. It does not "
            "compare with other rows."
        )
    if nowhere:
        lines.append(f"- Scored on neither: {', '.join(f'`{name}`' for name in nowhere)}.")
    found = worth(board.scored)
    return "\n".join([*lines, "", "## Do these numbers predict gains?", "", verdict(found), *_signs(found), ""])


def _signs(found: Sequence[Worth]) -> list[str]:
    """For each number, over all settings: how many gains have the sign that it predicts."""
    if not found:
        return []
    rows = []
    for part in dict.fromkeys(one.part for one in found):
        of = [one for one in found if one.part == part]
        sums = (sum(one.right for one in of), sum(one.elsewhere or 0 for one in of), sum(one.most for one in of))
        known = all(one.elsewhere is not None for one in of)
        cells = (str(sums[0]), str(sums[1]) if known else "", str(sums[2]), str(sum(one.families for one in of)))
        rows.append(f"| {part_name(part)} | {' | '.join(cells)} |")
    return [
        "",
        "How many gains have the sign that a number predicts, by a threshold found on the setting's other families, or "
        "in the other environments; and how many if all have the setting's more frequent sign:",
        "",
        "| number | other families | other environments | more frequent sign | of |",
        "|---|---:|---:|---:|---:|",
        *rows,
    ]


def _page_cells(one: Scored, parts: int) -> list[str]:
    """A method's numbers, in the order of `PAGE`; empty where it was not scored. `parts` are those of the set."""
    found = one.summary
    exact = [two(found.rank), share(found.cosine)] if one.card.worlds else ["", ""]
    recorded = two(found.real_rank) if parts_of(one) else ""
    if 0 < parts_of(one) < parts:
        recorded += f" ({parts_of(one)} of {parts})"
    return [*exact, recorded, _gains(one.method.name)]


def _set(board: Leaderboard) -> str:
    """What the recorded rollouts are, in a sentence; nothing without any."""
    if not board.on_rollouts:
        return ""
    found = _whole_set(board)
    return (
        f"Recorded: [{found.set}, version {found.version}](score_data.md), where the truth itself scores "
        f"{two(found.rank.ceiling)} against its own estimate."
    )


def _whole_set(board: Leaderboard) -> RolloutScore:
    """The score of a method that the most parts of the set could score."""
    found = board.on_rollouts[0].card.recorded
    assert isinstance(found, RolloutScore)
    return found


def worth_rows(found: Sequence[Worth]) -> tuple[list[str], list[list[str]]]:
    """Settings, and for each number of a card its name and what it says of their gains."""
    by_part: dict[str, dict[str, str]] = {}
    for one in found:
        elsewhere = "" if one.elsewhere is None else f", {one.elsewhere} from elsewhere"
        signs = f"signs {one.right} of {one.families}{elsewhere} ({one.most})"
        text = f"{two(one.rho)} ({two(one.low)} to {two(one.high)}), p {one.p:.2f}, {signs}"
        by_part.setdefault(one.part, {})[one.setting] = text
    settings = list(dict.fromkeys(one.setting for one in found))
    return settings, [[part_name(part), *(of.get(one, "") for one in settings)] for part, of in by_part.items()]


def _name(one: Scored) -> str:
    name = f"`{one.method.name}`"
    return f"*{name}*" if one.method.role == "reference" else name
