"""A number with its interval, its sample, its files and the SQL that computes it; and tables of such numbers.

The value is what the SQL gives. `turncredit sql` runs it unchanged on the results folder; a test runs all of it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from turncredit.data import tables

if TYPE_CHECKING:  # it needs pandas, which the viewer of a plain installation does without
    from turncredit.views.collect import Results

#: unit -> how a value and the ends of its interval are written. Shares and points are in hundredths.
_FORMATS = {
    "share": ("{:.1f}%", "{:.1f}", 100),
    "points": ("{:+z.1f}", "{:+z.1f}", 100),
    "number": ("{:,.1f}", "{:,.1f}", 1),
    "count": ("{:,.0f}", "{:,.0f}", 1),
    "correlation": ("{:+z.2f}", "{:+z.2f}", 1),
    "signed": ("{:+z.2f}", "{:+z.2f}", 1),
    "auc": ("{:.2f}", "{:.2f}", 1),
    "small": ("{:.3g}", "{:.2g}", 1),
}


@dataclass(frozen=True)
class Number:
    """One number of the report. `unit`: share, points (of success, a difference), number,
    count, seconds, correlation, signed, auc, or small (three digits, whatever its size). `beside`: what its cell says
    of its sample."""

    value: float
    unit: str
    sql: str
    path: str
    low: float | None = None
    high: float | None = None
    n: int | None = None
    note: str = ""
    beside: str = ""

    @property
    def text(self) -> str:
        """The formatted value."""
        if np.isnan(self.value):
            return "none"
        if self.unit == "seconds":
            return f"{self.value:.0f} s" if self.value < 600 else f"{self.value / 60:,.0f} min"
        form, _, scale = _FORMATS[self.unit]
        return form.format(scale * self.value)

    @property
    def interval(self) -> str:
        """The interval in the value's unit, or an empty string."""
        if self.low is None or self.high is None or np.isnan(self.low) or np.isnan(self.high):
            return ""
        _, form, scale = _FORMATS[self.unit]
        low, high = scale * self.low, scale * self.high
        return f"{_end(low, form, low * high > 0)} to {_end(high, form, low * high > 0)}"

    @property
    def with_interval(self) -> str:
        """The formatted value, and its interval in brackets if there is one: `+3.1 (+1.0 to +5.2)`."""
        return f"{self.text} ({self.interval})" if self.interval else self.text

    @property
    def direction(self) -> str:
        """`up` or `down` for a difference or a correlation whose interval excludes zero, otherwise empty."""
        if self.unit not in ("points", "correlation") or self.low is None or self.high is None:
            return ""
        return "up" if self.low > 0 else "down" if self.high < 0 else ""


def _end(value: float, form: str, excludes_zero: bool) -> str:
    """The end of an interval; with more digits where it would be written as the zero that the interval excludes."""
    text, digits = form.format(value), int(form[form.index(".") + 1])
    for more in (1, 2):
        if excludes_zero and not float(text.replace(",", "")):
            text = form.replace(f".{digits}f", f".{digits + more}f").format(value)
    return text


def computed(results: Results, sql: str, unit: str, path: str, **more: Any) -> Number:
    """The number that a query gives; `more`: what the query does not say of it."""
    return Number(results.value(sql), unit, sql, path, **more)


Cell = Number | str | None


@dataclass(frozen=True)
class Column:
    """A column's key, heading and meaning."""

    key: str
    heading: str
    meaning: str


@dataclass
class Grid:
    """A table of the report: rows by name; a cell is a Number, a text, or None if missing.

    `closed`: collapsed on the page. Rows are ordered by the groups of `Summary.order`.
    """

    name: str
    title: str
    caption: str
    columns: list[Column]
    rows: dict[str, dict[str, Cell]] = field(default_factory=dict)
    closed: bool = False


def summary_table(grids: Iterable[Grid]) -> pa.Table:
    """The numbers of all grids as a "summary" table."""
    rows = [
        {
            **{"table": grid.name, "row": name, "column": key, "title": grid.title, "heading": headings[key]},
            **{part: getattr(cell, part) for part in _PARTS},
        }
        for grid in grids
        for headings in [{column.key: column.heading for column in grid.columns}]
        for name, row in grid.rows.items()
        for key, cell in row.items()
        if isinstance(cell, Number)
    ]
    return pa.Table.from_pylist(rows, schema=tables.schema("summary"))


_PARTS = ["value", "low", "high", "n", "unit", "note", "path", "sql"]
