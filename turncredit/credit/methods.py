"""The parts and the named methods. A new method is a file with its function, a part, and an entry here."""

from __future__ import annotations

from turncredit.credit import flat_grpo, has, rails, rloo
from turncredit.credit.compose import Method, Part


def _by_name(*parts: Part) -> dict[str, Part]:
    return {part.name: part for part in parts}


SHAPERS: dict[str, Part] = _by_name()

ESTIMATORS: dict[str, Part] = _by_name(
    Part("flat_grpo", flat_grpo.flat_grpo, "estimator"),
    Part("rloo", rloo.rloo, "estimator"),
)

TURN_TERMS: dict[str, Part] = _by_name(
    Part("has_progressive", has.progressive, "turn_term", reads=("progress_before", "progress")),
    Part("has_judge", has.judged, "turn_term", needs=("labels",)),
    Part("random_credit", rails.random_credit, "turn_term"),
    Part("oracle_progress", rails.oracle_progress, "turn_term", reads=("distance_before", "distance")),
)

NORMALISERS: dict[str, Part] = _by_name()

_flat = ESTIMATORS["flat_grpo"]


def _named(*methods: Method) -> dict[str, Method]:
    return {method.name: method for method in methods}


METHODS: dict[str, Method] = _named(
    Method("flat_grpo", "the rollout's return relative to its group, on every turn", _flat),
    Method("rloo", "the rollout's return minus the mean of its siblings, on every turn", ESTIMATORS["rloo"]),
    Method(
        "has_progressive",
        "flat GRPO blended with the environment's own progress",
        _flat,
        turn_term=TURN_TERMS["has_progressive"],
    ),
    Method("has_judge", "flat GRPO blended with a judge's score", _flat, turn_term=TURN_TERMS["has_judge"]),
    Method(
        "random_credit",
        "lower rail: flat GRPO blended with noise",
        _flat,
        turn_term=TURN_TERMS["random_credit"],
    ),
    Method(
        "oracle_progress",
        "upper rail: the decrease of the simulator's exact distance to the goal",
        _flat,
        turn_term=TURN_TERMS["oracle_progress"],
    ),
)
