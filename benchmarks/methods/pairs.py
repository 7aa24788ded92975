"""Paired differences of two methods' final success, which the report's tables give only against flat GRPO.

python benchmarks/methods/pairs.py results/methods hcapo:gigpo mgr:mgr_across_turns
python benchmarks/methods/pairs.py --rounds 2,3 results/methods turn_value:flat_grpo

A line for each pair: the first minus the second in points, 95% over seeds and games, and the difference of each seed.
Final success is the mean of the last three evaluated rounds, or of `--rounds`.
"""

from __future__ import annotations

import argparse

from turncredit.report.selection import chosen, final_rounds
from turncredit.results.collect import Results, collect
from turncredit.stats import intervals


def line(results: Results, left: str, right: str, rounds: list[int]) -> str:
    """One pair as a line of Markdown."""
    seeds = sorted(set(results.finished_seeds(left)) & set(results.finished_seeds(right)))
    if not seeds:
        raise SystemExit(f"{left}, {right}: no seed that both have finished")
    mode = results.experiment.eval.primary
    ours, theirs = (chosen(results, name, rounds=rounds, mode=mode, seeds=seeds) for name in (left, right))
    differences = intervals.paired_cells(ours, theirs)
    estimate = intervals.crossed_mean(differences)
    by_seed = ", ".join(f"{100 * value:+.1f}" for value in differences.groupby("seed")["value"].mean())
    low, mean, high = (100 * value for value in (estimate.low, estimate.value, estimate.high))
    return f"`{left}` above `{right}`: {mean:+.1f} ({low:+.1f} to {high:+.1f}); by seed {by_seed}"


def main() -> None:
    """Print all pairs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the experiment's results")
    parser.add_argument("pairs", nargs="+", metavar="LEFT:RIGHT", help="two methods")
    parser.add_argument("--rounds", help="evaluated rounds, as in 2,3")
    given = parser.parse_args()
    results = collect(given.folder)
    rounds = [int(number) for number in given.rounds.split(",")] if given.rounds else final_rounds(results)
    for pair in given.pairs:
        left, separator, right = pair.partition(":")
        if not separator:
            raise SystemExit(f"'{pair}': give two methods as LEFT:RIGHT")
        print(line(results, left, right, rounds))


if __name__ == "__main__":
    main()
