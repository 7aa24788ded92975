"""Which measure of a method's credit predicts its gain? Over the methods of both tables of RESULTS.md.

python -m benchmarks.recorded unpack benchmarks/methods/recorded results/methods_recorded
python -m benchmarks.methods.predictors results/methods_recorded

The report's own table (`turncredit.views.report.predictors`) has the families that its experiment trained. Here a
method that this experiment did not train has the recorded gain from the first SFT policy, on the same games. The
measures are of one policy's rollouts for all methods.
"""

from __future__ import annotations

import sys

from benchmarks.methods.table import markdown
from turncredit.audit.score import worth
from turncredit.credit.parts.baselines import BASELINE
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results, collect
from turncredit.views.report.predictors import prediction_grid
from turncredit.views.report.selection import paired

#: The setting of the recorded gains that fills in.
FIRST = "household 1"


def gains(results: Results) -> dict[str, Estimate]:
    """Each method's gain over flat GRPO: this experiment's where it trained the method, else the recorded one."""
    recorded = {
        method: Estimate(value / 100, low / 100, high / 100, float("nan"), 0, 0, 0, "seeds and games")
        for method, (value, low, high) in worth.gains()[FIRST].items()
        if method != BASELINE
    }
    trained = {method: paired(results, method, BASELINE) for method in results.methods if method != BASELINE}
    return recorded | {method: gain for method, gain in trained.items() if gain is not None}


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
