"""The record of a run of the harness: a row for each fault, as Parquet and as a page."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.chaos.faults import OUTCOMES


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
    """Write `faults.parquet` and `FAULTS.md` to `folder`, and print the table of outcomes by kind."""
    rows = sorted(rows, key=lambda row: row["name"])
    pq.write_table(pa.Table.from_pylist(rows), folder / "faults.parquet", compression="zstd")
    lines = ["# Every fault of the recorded run", "", *by_kind(rows), ""]
    lines += ["| fault | where | when | ended | what was printed | s |", "|---|---|---|---|---|---|"]
    for row in rows:
        cells = (row["kind"], row["where"], row["when"], row["outcome"], row["printed"], f"{row['seconds']:.1f}")
        lines.append(f"| {' | '.join(_cell(text) for text in cells)} |")
    (folder / "FAULTS.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
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


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
