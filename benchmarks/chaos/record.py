"""The record of a run of the harness: a row for each fault."""

from __future__ import annotations

import csv
import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks.chaos.faults import OUTCOMES

#: Columns of faults.csv: what was done, where and when, how it ended, the line that was printed, seconds.
COLUMNS = ("kind", "where", "when", "outcome", "printed", "seconds", "cpu_seconds", "seed")


def read(lines: Path) -> list[dict[str, Any]]:
    """The recorded faults, in the order in which they were injected; a line that a kill cut short is left out."""
    rows = []
    for line in lines.read_text(encoding="utf-8").splitlines() if lines.exists() else ():
        try:
            rows.append(json.loads(line))
        except ValueError:
            continue
    return rows


def write(rows: list[dict[str, Any]], folder: Path) -> int:
    """Write `faults.csv` to `folder`, and print the table of outcomes by kind."""
    with (folder / "faults.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.DictWriter(file, COLUMNS, extrasaction="ignore", lineterminator="\n")
        table.writeheader()
        table.writerows(sorted(rows, key=lambda row: row["name"]))
    print("\n".join(by_kind(rows)))
    return 0


def by_kind(rows: list[dict[str, Any]]) -> list[str]:
    """A table of outcomes by kind of fault."""
    kinds: dict[str, Counter[str]] = {}
    for row in rows:
        kind = "damaged file" if row["kind"].startswith("damaged") else row["kind"]
        kinds.setdefault(kind, Counter())[row["outcome"]] += 1
    lines = [f"| fault | {' | '.join(OUTCOMES)} |", "|---|" + "--:|" * len(OUTCOMES)]
    for kind in sorted(kinds):
        lines.append(f"| {kind} | {' | '.join(str(kinds[kind][outcome]) for outcome in OUTCOMES)} |")
    total = sum(kinds.values(), Counter())
    return [*lines, f"| all | {' | '.join(str(total[outcome]) for outcome in OUTCOMES)} |"]
