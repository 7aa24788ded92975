"""Has a policy collapsed, and why? Signs in the metrics of updates and rollouts. Does not import torch.

A run collapses in a few updates, and its last figure may not show it. Each update says what it did to the policy (how
far it moved it, how sure it is), and the rollouts of the next round say what became of it (success, refused actions,
length of responses), compared with those of the policy that the run began with.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from turncredit.config import Experiment
from turncredit.config.layout import sampled_by

if TYPE_CHECKING:
    import pandas as pd

#: mean |log p - log p when sampled| over the tokens of an optimiser step; an update that learns has .01 to .3
MOVED = 1.0
#: share of log |V|, the entropy of a policy that knows nothing
UNIFORM = 0.9
#: share of the entropy in the first round
CERTAIN = 0.05
#: share of the first policy's success, and what that must have been to say so
LOST, FEWEST_SUCCESSES = 0.5, 0.05
#: rise of the share of refused actions
REFUSED = 0.25
#: factor by which responses are shorter or longer
LENGTH = 2.0


#: the metrics of rollouts that are compared
COMPARED = {"success", "invalid", "tokens", "turns"}
#: the metrics of a stage's jobs by (method or policy, seed, round)
ByRound = Mapping[tuple[str, int, int], Mapping[str, float]]


class Collapse(NamedTuple):
    """A round of a run after which the policy was no good any more: what shows it, and the likely cause."""

    method: str
    seed: int
    round: int
    signs: tuple[str, ...]
    cause: str

    def __str__(self) -> str:
        return f"{self.method}, seed {self.seed}, round {self.round}: {', '.join(self.signs)}; {self.cause}"


def of_update(metrics: Mapping[str, float]) -> list[str]:
    """The signs in an update's own metrics: it moved the policy too far, or left one that knows nothing."""
    signs = []
    if metrics.get("largest_log_ratio", 0.0) > MOVED:
        signs.append(f"log-probabilities moved by {metrics['largest_log_ratio']:.1f} a token in one round's update")
    if _is_uniform(metrics):
        limit = metrics["entropy_limit"]
        signs.append(f"the policy's entropy is {metrics['entropy']:.1f} of at most {limit:.1f}: it is nearly uniform")
    return signs


def of_rollouts(
    update: Mapping[str, float], first_update: Mapping[str, float], now: Mapping[str, float], first: Mapping[str, float]
) -> list[str]:
    """The signs in the rollouts after an update (`now`), against those that the run began with (`first`)."""
    signs = []
    if _has_lost(now, first):
        signs.append(f"success {now['success']:.0%}, {first['success']:.0%} at first")
    if now["invalid"] - first["invalid"] >= REFUSED:
        signs.append(f"{now['invalid']:.0%} of actions refused, {first['invalid']:.0%} at first")
    length, was = (metrics["tokens"] / metrics["turns"] for metrics in (now, first))
    if length != was and max(length, was) >= LENGTH * min(length, was):  # the first policy may have written nothing
        signs.append(f"{length:.1f} tokens a response, {was:.1f} at first")
    if 0 <= update.get("entropy", 1.0) < CERTAIN * first_update.get("entropy", 0.0):
        signs.append(f"entropy {update['entropy']:.3f}, {first_update['entropy']:.2f} at first")
    return signs


def cause(update: Mapping[str, float], signs: list[str]) -> str:
    """The likely cause, in words, with what to do."""
    if of_update(update):
        return "likely cause: steps that are too large; lower update.lr, or warm it up for longer"
    if any("tokens a response" in sign for sign in signs):
        return "likely cause: responses of another length pay; look at some (turncredit show)"
    if any(sign.startswith("entropy") for sign in signs):
        return "likely cause: credit that confirms whatever the policy does; it repeats itself"
    return "likely cause: the credit pays for something else than success"


def collapses(experiment: Experiment, metrics: pd.DataFrame) -> list[Collapse]:
    """The first collapse of every run that has one, from the rows of the view `metrics` (`sql_views.metrics_table`)."""
    # Metrics of imported or partly kept rollouts may lack some.
    rollouts = {at: one for at, one in _wide(metrics, "rollout", "policy").items() if one.keys() >= COMPARED}
    return collapses_in(experiment, _wide(metrics, "update", "method"), rollouts)


def collapses_in(experiment: Experiment, updates: ByRound, rollouts: ByRound) -> list[Collapse]:
    """The first collapse of every run that has one.

    `updates` has the metrics of updates by (method, seed, round), `rollouts` those of rollouts by (policy, seed,
    round), each with all of `COMPARED`. A run has collapsed if an update moved the policy too far or left it nearly
    uniform, or if the rollouts after an update have at most half of the success of those before the first one. Other
    signs are only named beside these.
    """
    found = []
    for method, seed in experiment.runs():
        rounds = sorted(round for name, number, round in updates if (name, number) == (method, seed))
        first = rollouts.get((sampled_by(experiment, method, 1), seed, 1))
        for round in rounds:
            update, after = updates[method, seed, round], rollouts.get((method, seed, round + 1))
            signs = of_update(update)
            lost = first and after and _has_lost(after, first)
            if first and after:
                signs += of_rollouts(update, updates[method, seed, rounds[0]], after, first)
            if of_update(update) or lost:
                found.append(Collapse(method, seed, round, tuple(signs), cause(update, signs)))
                break
    return found


def _is_uniform(metrics: Mapping[str, float]) -> bool:
    limit = metrics.get("entropy_limit", 0.0)
    return limit > 0 and metrics.get("entropy", 0.0) > UNIFORM * limit


def _has_lost(now: Mapping[str, float], first: Mapping[str, float]) -> bool:
    return first["success"] >= FEWEST_SUCCESSES and now["success"] <= LOST * first["success"]


def _wide(metrics: pd.DataFrame, stage: str, key: str) -> dict[tuple[str, int, int], dict[str, float]]:
    """The metrics of a stage by (`key`, seed, round)."""
    found: dict[tuple[str, int, int], dict[str, float]] = {}
    rows = metrics[(metrics["stage"] == stage) & metrics[key].notna()]
    for name, seed, round, metric, value in zip(
        *(rows[column] for column in (key, "seed", "round", "name", "value")), strict=True
    ):
        found.setdefault((str(name), int(seed), int(round)), {})[str(metric)] = float(value)
    return found
