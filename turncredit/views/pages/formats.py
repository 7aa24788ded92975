"""Numbers and texts as the pages write them."""

from __future__ import annotations

import numpy as np

from turncredit.views.pages.data import Book
from turncredit.views.terminal import visible


def number(value: float, decimals: int = 2) -> str:
    """`value` with its sign; exactly zero is `0`, and a missing value a dash."""
    if not np.isfinite(value):
        return "–"
    if value == 0:
        return "0"
    return f"{value:+.{decimals}f}".replace("-", "−")


def plain(value: float, decimals: int = 2) -> str:
    """`value` without a plus sign."""
    return number(value, decimals).lstrip("+")


def decimals_for(scale: float) -> int:
    """Decimal places needed to tell numbers of this size apart."""
    return 2 if scale >= 0.1 else 3 if scale >= 0.01 else 5


def share(value: float, scale: float) -> float:
    """|value| in units of full colour, at most 1; 0 if missing."""
    return float(min(abs(value) / scale, 1.0)) if np.isfinite(value) else 0.0


def significant(value: float) -> str:
    """Four significant digits; a dash if missing."""
    return f"{value:.4g}".replace("-", "−") if np.isfinite(value) else "–"


def level(book: Book, value: float) -> str:
    """A state's value: in percent where it is a chance of success."""
    return f"{100 * value:.0f}%" if book.is_chance else f"{value:.3g}"


def one_line(text: object) -> str:
    """A text from the tables on one line, its control characters shown; empty for None."""
    return visible(" ".join(str(text).split())) if text is not None else ""


def joined(names: list[str]) -> str:
    """`a, b and c`."""
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"
