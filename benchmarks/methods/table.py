"""The report's tables as Markdown, for RESULTS.md: python -m benchmarks.methods.table RESULTS [TABLE ...]

snakemake --configfile config/methods.yaml
python -m benchmarks.methods.table results/methods final time fidelity

Sizes and intervals come before p; p is corrected over families of methods (docs/report.md). What it says of all methods
together stands above the final table.
"""

from __future__ import annotations

import sys

from turncredit.views.collect import collect
from turncredit.views.report.grid import Cell, Grid, Number
from turncredit.views.report.summary import summarise


def cell(value: Cell) -> str:
    """A cell as the page shows it: the value, and its interval in brackets."""
    return value.with_interval if isinstance(value, Number) else value or ""


def markdown(grid: Grid) -> str:
    """One table of the report."""
    lines = [f"**{grid.title}**", "", "| | " + " | ".join(column.heading for column in grid.columns) + " |"]
    lines.append("|---|" + "---:|" * len(grid.columns))
    for name, row in grid.rows.items():
        lines.append(f"| `{name}` | " + " | ".join(cell(row.get(column.key)) for column in grid.columns) + " |")
    return "\n".join(lines)


def main(folder: str, *names: str) -> None:
    """Print the named tables, or all."""
    summary = summarise(collect(folder))
    grids = summary.grids
    for grid in grids:
        if not names or grid.name in names:
            if grid.name == "final" and summary.comparisons:
                print(summary.comparisons, end="\n\n")
            print(markdown(grid), end="\n\n")
    if missing := set(names) - {grid.name for grid in grids}:
        raise SystemExit(f"no table {sorted(missing)}; there are {[grid.name for grid in grids]}")


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
