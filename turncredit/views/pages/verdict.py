"""In a few sentences: which turn mattered most, by how much, and which methods credited it."""

from __future__ import annotations

import numpy as np
from markupsafe import Markup

from turncredit.views.pages.agreement import agreement
from turncredit.views.pages.data import Book, noise_of_largest
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
        '<b class="{}">★ Most {}</b> was <a href="#t{}">turn {}</a>, <code>{}</code>:{} (A* {} ± {}{}).'
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
    right = sum(bool(credit.sign_N[row] == sign) for credit in book.credits.values())
    saw = _who_saw(book, rollout, row, sign)
    does = "credit" if sign > 0 else "blame"
    most = f"{joined(saw)} {does}{'s' if len(saw) == 1 else ''} it most" if saw else f"none {does}s it most"
    return text + f" {right} of {len(book.credits)} methods {does} it; {most}."


def _who_saw(book: Book, rollout: int, row: int, sign: int) -> list[str]:
    """The methods that credit (or blame) this turn more than any other of the rollout, and not most turns alike."""
    rows = book.rows(rollout)
    methods = []
    for method, credit in book.credits.items():
        size = credit.rounded_N[rows] * sign
        mine = credit.rounded_N[row] * sign
        if mine > 0 and mine == size.max() and np.median(size) < mine:
            methods.append(method)
    return methods


def _ranked(book: Book, rollout: int) -> Markup | None:
    ranks = [(agreement(book, method, rollout).rank, method) for method in book.credits]
    ranks = sorted(((rank, method) for rank, method in ranks if np.isfinite(rank)), reverse=True)
    if len(ranks) < 2:
        return None
    (top, best), (low, worst) = ranks[0], ranks[-1]
    return Markup("Over its {} branched turns <b>{}</b> ranks most like A* ({}), <b>{}</b> least ({}).").format(
        len(book.branched(rollout)), best, number(top), worst, number(low)
    )
