"""The titles and the headings that the report's page has for the tables and columns of `summary`."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

_LIST = re.compile(r'<script type="application/json" id="numbers">(.*?)</script>', re.DOTALL)


class Names(NamedTuple):
    """What the report calls a number's table and its column."""

    title: str
    heading: str


def names_of(rows: Sequence[Mapping[str, Any]], page: Path | None) -> list[Names]:
    """The names of each row of `summary`; where the page does not have it, those in the row.

    The page lists its numbers as TITLE / ROW / HEADING with their SQL. Two tables may share a number, so a table has
    the title that has most of its numbers, and the fewest others.
    """
    cited = _cited(page)
    found = [_matching(row, cited) for row in rows]
    shared: dict[str, Counter[str]] = {}
    for row, names in zip(rows, found, strict=True):
        shared.setdefault(row["table"], Counter()).update({one.title for one in names})
    every = [name for names in cited.values() for name in names]

    def fit(title: str, of: Counter[str]) -> tuple[int, int]:
        return of[title], -sum(name.startswith(f"{title} / ") for name in every)

    titles = {table: max(of, key=lambda title: fit(title, of), default="") for table, of in shared.items()}
    return [
        next((one for one in names if one.title == titles[row["table"]]), Names(row["table"], row["column"]))
        for row, names in zip(rows, found, strict=True)
    ]


def _cited(page: Path | None) -> dict[str, list[str]]:
    """The names of the numbers on the report's page, by their SQL; none without a page that can be read."""
    try:
        listed = _LIST.search(page.read_text(encoding="utf-8")) if page else None
        numbers = json.loads(listed[1]) if listed else []
    except (OSError, ValueError):
        return {}
    found: dict[str, list[str]] = {}
    for one in numbers:
        found.setdefault(one["sql"], []).append(one["name"])
    return found


def _matching(row: Mapping[str, Any], cited: Mapping[str, list[str]]) -> list[Names]:
    between = f" / {row['row']} / "
    parts = [name.partition(between) for name in cited.get(row["sql"], [])]
    return [Names(title, heading) for title, found, heading in parts if found]
