"""Paired differences of two methods' final success, which the report's tables give only against flat GRPO.

python benchmarks/methods/pairs.py results/methods hcapo:gigpo mgr:mgr_across_turns

A line for each pair: the first minus the second in points, 95% over seeds and games, and the difference of each seed.
"""

from __future__ import annotations

import sys

from turncredit.report.selection import paired_differences
from turncredit.results.collect import Results, collect
from turncredit.stats import intervals


def line(results: Results, left: str, right: str) -> str:
    """One pair as a line of Markdown."""
    differences = paired_differences(results, left, right)
    if differences is None:
        raise SystemExit(f"{left}, {right}: no seed that both have finished")
    estimate = intervals.crossed_mean(differences)
    by_seed = ", ".join(f"{100 * value:+.1f}" for value in differences.groupby("seed")["value"].mean())
    low, mean, high = (100 * value for value in (estimate.low, estimate.value, estimate.high))
    return f"`{left}` above `{right}`: {mean:+.1f} ({low:+.1f} to {high:+.1f}); by seed {by_seed}"


def main(folder: str, *pairs: str) -> None:
    """Print all pairs."""
    results = collect(folder)
    for pair in pairs:
        left, separator, right = pair.partition(":")
        if not separator:
            raise SystemExit(f"'{pair}': give two methods as LEFT:RIGHT")
        print(line(results, left, right))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(*sys.argv[1:])
