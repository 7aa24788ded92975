"""In a few sentences: which turn mattered most, by how much, and which methods credited it."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from turncredit.credit.parts.baselines import NOT_COMPARED
from turncredit.data.counts import number_of
from turncredit.views.pages.agreement import agreement, mean_ranks
from turncredit.views.pages.data import Book, noise_of_largest, too_few_to_rank
from turncredit.views.pages.formats import decimals_for, joined, level, number, one_line, plain


def verdict(book: Book, rollout: int) -> list[Markup]:
    """A short summary: which turn mattered most, by how much, and which methods credited it."""
    if book.truth is None:
        return []
    rows = book.branched(rollout)
    if not len(rows):
        return [Markup("No turn of this rollout was branched, so its true advantages are not known.")]
    true = book.truth.advantage_N[rows]
    won = bool(book.success_R[rollout])
    worst_first = [("useful", true.argmax(), 1), ("harmful", true.argmin(), -1)]
    if not won:
        worst_first.reverse()
    sentences = [
        _mattered(book, rollout, word, int(rows[at]), sign) for word, at, sign in worst_first if true[at] * sign > 0
    ]
    if ranked := _ranked(book, rollout):
        sentences.append(ranked)
    return sentences


def _mattered(book: Book, rollout: int, word: str, row: int, sign: int) -> Markup:
    truth = book.truth
    assert truth is not None
    value, se = float(truth.advantage_N[row]), float(truth.se_N[row])
    places = decimals_for(truth.scale)
    before, after = truth.of("v_true", row), truth.of("q_true", row)
    moved = ""
    if np.isfinite(before) and np.isfinite(after):
        what = "the chance of success" if book.is_chance else "the expected return"
        by = f"{100 * abs(value):.0f} ± {100 * se:.0f} points" if book.is_chance else f"{abs(value):.3g} ± {se:.2g}"
        rose = "rose" if sign > 0 else "fell"
        moved = f" {what} {rose} by {by}, from {level(book, before)} to {level(book, after)}"
    count = len(book.branched(rollout))
    doubt = f", within the noise of the largest of {count} turns" if abs(value) <= noise_of_largest(se, count) else ""
    text = Markup(
        '<b class="{}">★ Most {}</b> was <a href="#t{}">turn {}</a>, <code>{}</code>:{} (A* {} ± {} s.e.{}).'
    ).format(
        "good" if sign > 0 else "bad",
        word,
        int(book.turns.turn_N[row]),
        int(book.turns.turn_N[row]),
        one_line(book.cell("action", row)) or "no action",
        moved,
        number(value, places),
        plain(se, places),
        doubt,
    )
    return text + " " + _who_saw(book, rollout, row, sign)


def _who_saw(book: Book, rollout: int, row: int, sign: int) -> str:
    """How many methods credit (or blame) this turn, and whose largest credit of the rollout it has.

    Credit that is the same on every turn of the rollout says nothing of this one. It is counted apart.
    """
    rows = book.rows(rollout)
    right, alike, largest = 0, 0, []
    for method, credit in book.credits.items():
        size = credit.rounded_N[rows] * sign
        mine = credit.rounded_N[row] * sign
        if len(rows) > 1 and size.max() == size.min():
            alike += 1
            continue
        right += int(mine > 0)
        if mine > 0 and mine == size.max() and np.median(size) < mine:
            others = int((size == mine).sum()) - 1
            much = f" (which gives {others} other turn{'s' * (others > 1)} as much)" if others else ""
            largest.append(method + much)
    does = "credit" if sign > 0 else "blame"
    count = len(book.credits) - alike
    same = f" ({alike} more give{'s' * (alike == 1)} all turns the same)" if alike else ""
    most = f"It has the largest {does} of {joined(largest)}" if largest else f"None gives it its largest {does}"
    return f"{right} of {number_of(count, 'method')} {does}{'s' * (right == 1)} it{same}. {most}."


def _ranked(book: Book, rollout: int) -> Markup | None:
    """How the methods rank the turns here and over all rollouts, references and noise left out.

    Where hardly any A* differs from 0 there is no order to find, and any number would be chance.
    """
    rows, truth = book.branched(rollout), book.truth
    if truth is None:
        return None
    if too_few := too_few_to_rank(len(rows), int(truth.nonzero_N[rows].sum())):
        return Markup("{}").format(too_few)
    ranks = [(agreement(book, method, rollout).rank, method) for method in book.credits if method not in NOT_COMPARED]
    ranks = sorted(((rank, method) for rank, method in ranks if np.isfinite(rank)), reverse=True)
    if not ranks:
        return None
    means, scored = mean_ranks(book), max(int(found.scored_R.sum()) for found in book.correlations.values())

    def both(rank: float, method: str) -> str:
        return f"here {number(rank)}" + (f", over {scored} rollouts {number(means[method])}" if scored > 1 else "")

    (top, best), (low, worst) = ranks[0], ranks[-1]
    if len(ranks) == 1:
        return Markup("Rank correlation of <b>{}</b> with A*: {}.").format(best, both(top, best))
    return Markup("Over its {} branched turns <b>{}</b> ranks most like A* ({}), <b>{}</b> least ({}).").format(
        len(rows), best, both(top, best), worst, both(low, worst)
    )
