"""Can this experiment tell methods apart? The answer, from noise and a privileged reference, and what to run next.

The reference (`oracle_progress`, or `truth`) and noise (`random_credit`) are trained like any method. If not even their
difference shows, no difference between methods can be read; if it shows, smaller ones may.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from turncredit.credit.parts.baselines import BASELINE, ORACLE, RANDOM
from turncredit.stats.intervals import FEWEST_SEEDS, Estimate, points
from turncredit.views.collect import Results
from turncredit.views.report.selection import paired, reference_of

#: open: the reference or noise has no finished run
State = Literal["apart", "undecided", "cannot", "open"]
ANSWERS: dict[State, str] = {
    "apart": "This experiment tells methods apart",
    "undecided": "Whether this experiment tells methods apart is undecided",
    "cannot": "This experiment cannot tell methods apart",
    "open": "Whether this experiment tells methods apart is not tested",
}
#: A smaller difference of success is small whatever its p (fixed before the runs: benchmarks/methods/PREDICTIONS.md).
RELEVANT = 0.02
#: Methods of which the first that was not run is suggested.
SUGGESTED = ("turn_value", "gigpo", "hcapo")
#: Seeds from which on an interval over seeds is worth its name: Student's t with 1 degree of freedom spans 12.7 errors.
FEW_SEEDS = 4


@dataclass(frozen=True)
class References:
    """The paired differences between noise, the reference and flat GRPO; None if one of the two has no finished run.

    upper   the reference - flat_grpo
    lower   random_credit - flat_grpo
    whole   the reference - random_credit
    name    the reference
    """

    upper: Estimate | None
    lower: Estimate | None
    whole: Estimate | None
    name: str = ORACLE

    @property
    def seeds(self) -> int:
        """The fewest finished seeds of a difference; 0 if there is none."""
        found = (one for one in (self.upper, self.lower, self.whole) if one is not None)
        return min((one.seeds for one in found), default=0)


@dataclass(frozen=True)
class Verdict:
    """The answer: `words` begin with it and give the differences; `next` is what to run next."""

    state: State
    words: str
    next: str


def references_of(results: Results, differences: Mapping[str, Estimate]) -> References:
    """The references' differences, given those to flat GRPO."""
    upper = reference_of(results)
    whole = paired(results, upper, RANDOM) if upper in differences and RANDOM in differences else None
    return References(differences.get(upper), differences.get(RANDOM), whole, upper)


def verdict(
    references: References,
    *,
    apart: Sequence[str],
    methods: Sequence[str],
    seeds: Sequence[int],
    measurable: bool = True,
) -> Verdict:
    """Whether the experiment can tell methods apart.

    `apart`: the methods that differ from flat GRPO after Holm's correction; `methods` and `seeds`: those of the
    configuration; `measurable`: whether the environment has the exact distance that the oracle reads. Decided by 95%
    intervals over seeds and games:

    apart      the reference is above flat GRPO and above noise, and both intervals exclude zero; or a method is told
               apart from flat GRPO while noise is not above it
    cannot     noise is above flat GRPO, its interval excludes zero; or the reference is less than 2 points above it
    undecided  anything else, and always with one seed, whose intervals do not cover the choice of the seed, or two,
               which may agree by chance
    """
    state = _state(references, apart)
    words = f"{ANSWERS[state]}: {_reason(state, references, apart)}.{_facts(references)}"
    return Verdict(state, words, _next(state, references, methods, seeds, measurable))


def _state(references: References, apart: Sequence[str]) -> State:
    upper, lower, whole = references.upper, references.lower, references.whole
    if upper is None or lower is None or whole is None:
        return "open"
    if references.seeds < FEWEST_SEEDS:
        return "undecided"
    if lower.low > 0:
        return "cannot"
    if (upper.low > 0 and whole.low > 0) or apart:
        return "apart"
    return "cannot" if upper.high < RELEVANT else "undecided"


def _reason(state: State, references: References, apart: Sequence[str]) -> str:
    upper, lower, whole = references.upper, references.lower, references.whole
    if upper is None or lower is None or whole is None:
        gone = [name for name, difference in ((references.name, upper), (RANDOM, lower)) if difference is None]
        why = "the reference and noise have no finished seed in common"
        if gone:
            why = f"{' and '.join(gone)} {'has' if len(gone) == 1 else 'have'} no finished run"
        if apart and lower is None:
            why += f"; whether noise differs from {BASELINE} as {' and '.join(apart)} {_do(apart)} is open"
        return why
    if state == "apart" and upper.low > 0 and whole.low > 0:
        return f"credit from the privileged reference is clearly better than {BASELINE}'s and than noise"
    if state == "apart":
        which = f"{', '.join(apart)} clearly differ{'s' if len(apart) == 1 else ''} from {BASELINE}"
        return f"{which}, though the reference and noise alone would not show it"
    if state == "cannot" and lower.low > 0:
        return f"noise as credit is clearly better than {BASELINE}'s"
    if state == "cannot":
        return f"credit from the privileged reference gains less than {100 * RELEVANT:.0f} points"
    seeds = references.seeds
    if seeds == 1:
        return "one seed; intervals cover the choice of games, and another seed may give another order"
    if seeds < FEWEST_SEEDS:
        return "two seeds; they may agree by chance, and then intervals are too narrow"
    return f"with {seeds} seeds an interval of the reference or of noise includes zero"


def _do(names: Sequence[str]) -> str:
    return "does" if len(names) == 1 else "do"


def _facts(references: References) -> str:
    """The references' differences as a sentence; empty if there is none."""
    facts = [
        f"{name} is {points(difference)} against {against}"
        for name, against, difference in (
            (references.name, BASELINE, references.upper),
            (RANDOM, BASELINE, references.lower),
            (references.name, RANDOM, references.whole),
        )
        if difference is not None
    ]
    return f" {', '.join(facts)}." if facts else ""


def _next(state: State, references: References, methods: Sequence[str], seeds: Sequence[int], measurable: bool) -> str:
    """What to run next: finished work is kept."""
    upper = references.name
    if state == "open" and upper == ORACLE and not measurable:
        return "This environment has no exact distance, so no reference: read each difference by its own interval."
    if state == "open":
        absent = [name for name in (BASELINE, RANDOM, upper) if name not in methods]
        if absent:
            return f"Next, what is missing: {_run('methods', [*methods, *absent])}."
        return "Next, the same command: it finishes the runs."
    if state == "undecided" and references.seeds < len(seeds):
        return "Next, the same command: it finishes the seeds that are configured."
    if state == "undecided":
        more = sorted({*seeds, *_unused(seeds, max(FEW_SEEDS, 2 * len(seeds)) - len(seeds))})
        return f"Next, more seeds: {_run('seeds', more)}."
    if state == "cannot":
        return "Next, change the experiment, not the methods: warm start, horizon, rounds (benchmarks/regime)."
    other = next((name for name in SUGGESTED if name not in methods), SUGGESTED[0])
    return f"Next, other methods, such as {_run('methods', [*methods, other])}; turncredit methods prints all."


def _run(key: str, values: Sequence[object]) -> str:
    """The command that runs the experiment with other values of a key, also after `make demo`, which takes none."""
    listed = ", ".join(map(str, values))
    return f"turncredit run --config '{key}=[{listed}]', with this run's --configfile, if it had one"


def _unused(seeds: Sequence[int], count: int) -> list[int]:
    """The first `count` whole numbers that are not among `seeds`."""
    return [number for number in range(len(seeds) + count) if number not in set(seeds)][:count]
