"""Final success of methods, and paired differences of two, which the report's tables give only against flat GRPO.

python -m benchmarks.methods.pairs results/methods hcapo:gigpo mgr:mgr_across_turns
python -m benchmarks.methods.pairs --rounds 2,3 results/methods turn_value turn_value:flat_grpo
python -m benchmarks.methods.pairs results/methods

A line for each method or pair: success, or the first minus the second in points, with 95% over seeds and games; of a
pair p, two-sided and not corrected, and the difference of each seed. Without names: every method against flat GRPO as a
table, best first; p there is the report's, corrected over families or over the other methods of theirs (family in
brackets). Final success is the mean of the last three evaluated rounds, or of `--rounds`, which have no such p.
`--seeds 0,1,2,3` prints the numbers as they were with these seeds alone.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from benchmarks.methods.table import cell
from turncredit.credit.parts.baselines import BASELINE
from turncredit.stats import intervals
from turncredit.views.collect import Results, collect
from turncredit.views.report.outcomes import estimated
from turncredit.views.report.selection import Sourced, final_evals, paired_differences
from turncredit.views.report.summary import summarise


def success(results: Results, method: str, rounds: Sequence[int] | None) -> intervals.Estimate:
    """One method's success, over seeds and games."""
    evals = final_evals(results, method, rounds=rounds)
    if evals.empty:
        raise SystemExit(f"{method}: no seed has finished, or a round was not evaluated")
    return intervals.crossed_mean(intervals.cells(evals))


class Difference(NamedTuple):
    """The first method minus the second, and of each seed in points."""

    estimate: intervals.Estimate
    by_seed: str


def difference(results: Results, left: str, right: str, rounds: Sequence[int] | None) -> Difference:
    """Two methods, paired by seed and game."""
    differences = paired_differences(results, left, right, rounds=rounds)
    if differences is None:
        raise SystemExit(f"{left}, {right}: no seed that both have finished, or a round was not evaluated")
    by_seed = ", ".join(f"{100 * value:+.1f}" for value in differences.groupby("seed")["value"].mean())
    return Difference(intervals.crossed_mean(differences), by_seed)


def written(estimate: intervals.Estimate, unit: str) -> str:
    """An estimate as the report writes it; `unit`: share or points."""
    return estimated(Sourced(estimate, "", ""), unit).with_interval


def line(results: Results, name: str, rounds: Sequence[int] | None) -> str:
    """One method, or a pair `left:right`, as a line."""
    left, pair, right = name.partition(":")
    if not pair:
        return f"`{left}`: {written(success(results, left, rounds), 'share')}"
    estimate, by_seed = difference(results, left, right, rounds)
    p = f"p {estimate.p:.3f}; " if estimate.seeds > 1 else ""
    return f"`{left}` above `{right}`: {written(estimate, 'points')}; {p}by seed {by_seed}"


def table(results: Results, rounds: Sequence[int] | None) -> Iterator[str]:
    """Every method of the experiment against flat GRPO, best first, as Markdown."""
    successes = {name: success(results, name, rounds) for name in results.experiment.methods}
    corrected = _corrected(results) if rounds is None else {}
    yield f"| | final success | above {BASELINE} | {'p | ' if corrected else ''}by seed |"
    yield f"|---|---:|---:|{'---:|' if corrected else ''}---|"
    for name, estimate in sorted(successes.items(), key=lambda item: -item[1].value):
        gain, by_seed = "baseline", ""
        if name != BASELINE:
            found = difference(results, name, BASELINE, rounds)
            gain, by_seed = written(found.estimate, "points"), found.by_seed
        cells = [f"`{name}`", written(estimate, "share"), gain, *([corrected[name]] if corrected else []), by_seed]
        yield f"| {' | '.join(cells)} |"


def _corrected(results: Results) -> dict[str, str]:
    """The report's corrected p of every method, empty for references and the baseline."""
    grids = {grid.name: grid for grid in summarise(results).grids}
    rows = grids["final"].rows
    return {name: cell(row.get("holm")) + cell(row.get("holm_variants")) for name, row in rows.items()}


def numbers(text: str) -> list[int]:
    """The numbers of `2,3`; argparse names this function in its message."""
    return [int(number) for number in text.split(",")]


def main(arguments: Sequence[str] | None = None) -> None:
    """Print a line for each method or pair; `arguments` default to the command line's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", help="the experiment's results")
    parser.add_argument("names", nargs="*", metavar="METHOD[:OTHER]", help="a method, or two; none: all")
    parser.add_argument("--rounds", type=numbers, help="evaluated rounds, as in 2,3")
    parser.add_argument("--seeds", type=numbers, help="only these, as in 0,1,2,3; all finished ones by default")
    given = parser.parse_intermixed_args(arguments)  # options may follow the folder
    results = collect(given.folder)
    if given.seeds is not None:
        results = replace(results, runs=results.runs[results.runs["seed"].isin(given.seeds)])
    lines = [line(results, name, given.rounds) for name in given.names] if given.names else table(results, given.rounds)
    for text in lines:
        print(text)


if __name__ == "__main__":
    main()
