"""Which measure of a method's credit predicts what it gains? Over the methods of both tables of RESULTS.md.

python -m benchmarks.recorded unpack benchmarks/methods/recorded results/methods_recorded
python -m benchmarks.methods.predictors results/methods_recorded

The report's own table (`turncredit.views.report.predictors`) has the families that its experiment trained. Here a
method that this experiment did not train has the gain of RESULTS.md's first table: over flat GRPO from another SFT
policy, on the same games. The measures are of one policy's rollouts for all methods.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

from benchmarks.methods.table import markdown
from turncredit.credit.parts.baselines import BASELINE
from turncredit.errors import UserError
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results, collect
from turncredit.views.report.predictors import prediction_grid
from turncredit.views.report.selection import paired

TABLES = Path(__file__).with_name("RESULTS.md")
#: a row of the first table: method, final success with its interval, gain in points with its interval
ROW = re.compile(r"\| `(\w+)` \| [^|]* \| ([+-][\d.]+) \(([+-][\d.]+) to ([+-][\d.]+)\) \|")
END = "## What came out"


def written(text: str) -> dict[str, Estimate]:
    """The gains of the first table of `text`, by method, as shares of games. Raises UserError if there are none."""
    table, end, _ = text.partition(END)
    found = {
        name: Estimate(*(float(value) / 100 for value in numbers), float("nan"), 0, 0, 0, "seeds and games")
        for name, *numbers in ROW.findall(table)
    }
    if not end or not found:
        raise UserError(f"{TABLES}: no table of gains before '{END}'")
    return found


def gains(results: Results) -> dict[str, Estimate]:
    """Each method's gain over flat GRPO: this experiment's where it trained the method, else the first table's."""
    trained = {method: paired(results, method, BASELINE) for method in results.methods if method != BASELINE}
    return written(TABLES.read_text(encoding="utf-8")) | {
        method: gain for method, gain in trained.items() if gain is not None
    }


def main(folder: str) -> None:
    """Print the table."""
    results = collect(folder)
    gain = gains(results)
    for grid in prediction_grid(results, [BASELINE, *gain], BASELINE, gain):
        print(markdown(grid))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    main(sys.argv[1])
