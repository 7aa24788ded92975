"""The methods that belong in every comparison: a baseline, a privileged reference, and noise.

An experiment that can't tell these three apart can't compare methods (`turncredit.credit.references`).
"""

from __future__ import annotations

from collections.abc import Collection

#: a privileged reference: credit from the simulator's exact distance to the goal
ORACLE = "oracle_progress"
#: the reference where there is no exact distance, or where it misleads: the advantage that continuations measure
TRUTH = "truth"
#: the baseline: one advantage for all turns of a rollout
BASELINE = "flat_grpo"
#: credit that is pure noise
RANDOM = "random_credit"

BASELINE_AND_REFERENCES = (BASELINE, RANDOM, ORACLE)
#: What these are in a word: no comparison of methods names one of them as the best or the worst.
NOT_COMPARED = {BASELINE: "baseline", RANDOM: "noise", ORACLE: "reference", TRUTH: "reference"}


def privileged_reference(methods: Collection[str]) -> str:
    """The privileged reference among the methods: `truth` if it is there and `oracle_progress` is not."""
    return TRUTH if TRUTH in methods and ORACLE not in methods else ORACLE
