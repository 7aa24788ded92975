"""Final success of methods, and paired differences of two, which the report's tables give only against flat GRPO.

python benchmarks/methods/pairs.py results/methods hcapo:gigpo mgr:mgr_across_turns
python benchmarks/methods/pairs.py --rounds 2,3 results/methods turn_value turn_value:flat_grpo

A line for each method or pair: success, or the first minus the second in points, with 95% over seeds and games; of a
pair p, two-sided and not corrected, and the difference of each seed. Final success is the mean of the last three
evaluated rounds, or of `--rounds`.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from turncredit.stats import intervals
from turncredit.views.collect import Results, collect
from turncredit.views.report.selection import final_evals, paired_differences


def success(results: Results, method: str, rounds: Sequence[int] | None) -> str:
    """One method's success as a line of Markdown."""
    evals = final_evals(results, method, rounds=rounds)
    if evals.empty:
        raise SystemExit(f"{method}: no seed has finished, or a round was not evaluated")
    estimate = intervals.crossed_mean(intervals.cells(evals))
    low, mean, high = (100 * value for value in (estimate.low, estimate.value, estimate.high))
    return f"`{method}`: {mean:.1f}% ({low:.1f} to {high:.1f})"


def difference(results: Results, left: str, right: str, rounds: Sequence[int] | None) -> str:
    """One pair as a line of Markdown."""
    differences = paired_differences(results, left, right, rounds=rounds)
    if differences is None:
        raise SystemExit(f"{left}, {right}: no seed that both have finished, or a round was not evaluated")
    estimate = intervals.crossed_mean(differences)
    by_seed = ", ".join(f"{100 * value:+.1f}" for value in differences.groupby("seed")["value"].mean())
    low, mean, high = (100 * value for value in (estimate.low, estimate.value, estimate.high))
    p = f"p {estimate.p:.3f}; " if estimate.seeds > 1 else ""
    return f"`{left}` above `{right}`: {mean:+.1f} ({low:+.1f} to {high:+.1f}); {p}by seed {by_seed}"


def rounds(text: str) -> list[int]:
    """The numbers of `2,3`; argparse names this function in its message."""
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each method or pair; `arguments` default to the command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the experiment's results")
    parser.add_argument("names", nargs="+", metavar="METHOD[:OTHER]", help="a method, or two")
    parser.add_argument("--rounds", type=rounds, help="evaluated rounds, as in 2,3")
    given = parser.parse_args(arguments)
    results = collect(given.folder)
    for name in given.names:
        left, pair, right = name.partition(":")
        print(difference(results, left, right, given.rounds) if pair else success(results, left, given.rounds))


if __name__ == "__main__":
    main()
