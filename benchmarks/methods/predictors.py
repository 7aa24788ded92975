"""Which measure of a method's credit predicts its gain? Over all methods of one experiment.

python -m benchmarks.recorded unpack benchmarks/methods/recorded results/methods_recorded
python -m benchmarks.methods.predictors results/methods_recorded
"""

from __future__ import annotations

import sys

from benchmarks.methods.table import markdown
from turncredit.credit.parts.baselines import BASELINE
from turncredit.stats.intervals import Estimate
from turncredit.views.collect import Results, collect
from turncredit.views.report.predictors import prediction_grid
from turncredit.views.report.selection import paired


def gains(results: Results) -> dict[str, Estimate]:
    """Each method's gain over flat GRPO."""
    trained = {method: paired(results, method, BASELINE) for method in results.methods if method != BASELINE}
    return {method: gain for method, gain in trained.items() if gain is not None}


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
