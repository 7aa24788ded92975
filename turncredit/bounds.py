"""The methods that belong in every comparison: a baseline, and a lower and an upper bound on what credit can do.

An experiment that can't tell these three apart can't compare methods (`turncredit.credit.rails`).
"""

from __future__ import annotations

#: an oracle: credit from the simulator's exact distance to the goal
UPPER = "oracle_progress"
#: the baseline: one advantage for all turns of a rollout
MIDDLE = "flat_grpo"
#: credit that is pure noise
LOWER = "random_credit"

RAILS = (MIDDLE, LOWER, UPPER)
