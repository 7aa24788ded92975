"""Numbers of a table: a method's credit, the truth with its error, a rank correlation."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from turncredit.views.pages.agreement import Agreement, clashes
from turncredit.views.pages.data import CLEAR, Book
from turncredit.views.pages.formats import decimals_for, number, plain, share


@dataclass(frozen=True)
class Cell:
    """A number with its sign and size. `kind` is the style's classes; `share` of full colour; whisker: left, width."""

    name: str
    text: str
    kind: str
    share: str = "0"
    clash: bool = False
    title: str = ""
    error: str = ""
    whisker: tuple[float, float] | None = None


def sign_of(value: float) -> str:
    """The style's class for a number's sign."""
    return "pos" if value > 0 else "neg" if value < 0 else "flat"


def credit_cell(book: Book, method: str, row: int, column: int) -> Cell:
    """One method's advantage of one turn."""
    credit = book.credits[method]
    value = float(credit.shown_N[row])
    return Cell(
        name=method,
        text=number(value, decimals_for(credit.scale)),
        kind=f"c{column} {sign_of(value)}",
        share=f"{share(value, credit.scale):.2f}",
        clash=clashes(book, method, row),
    )


def true_cell(book: Book, row: int) -> Cell | None:
    """A* of one turn with its standard error; the whisker is 1.96 of them, in the bar's units."""
    truth = book.truth
    if truth is None:
        return None
    value, se = float(truth.advantage_N[row]), float(truth.se_N[row])
    if not np.isfinite(value):
        return Cell(name="A*", text="·", kind="true none", title="not branched")
    ends = [50 + 48 * float(np.clip((value + k * se) / truth.scale, -1, 1)) for k in (-CLEAR, CLEAR)]
    places = decimals_for(truth.scale)
    count = truth.of("continuations", row)
    return Cell(
        name="A*",
        text=number(value, places),
        kind=f"true {sign_of(value)}",
        share=f"{share(value, truth.scale):.2f}",
        error=plain(se, places),
        title=f"{count:.0f} continuations from each state" if np.isfinite(count) else "",
        whisker=(round(ends[0], 1), round(ends[1] - ends[0], 1)),
    )


def rank_text(score: Agreement) -> str:
    """The rank correlation; ∅ if a method's credit is constant, a dash if there is no order to find."""
    return number(score.rank) if np.isfinite(score.rank) else "∅" if score.ranked else "–"


def rank_cell(method: str, score: Agreement) -> Cell:
    """A rank correlation as a cell of the index."""
    finite = bool(np.isfinite(score.rank))
    return Cell(
        name=method,
        text=rank_text(score),
        kind=sign_of(score.rank) if finite else "none",
        share=f"{abs(score.rank):.2f}" if finite else "0",
        title=f"{method}: {score.right} of {score.clear} known signs right" if score.clear else method,
    )
