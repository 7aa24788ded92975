"""A method's credit on recorded rollouts against their true advantage: agreement with its noise ceiling, and leaks.

The true advantages are estimates, so the truth itself would not score 1. Each number stands beside the ceiling: what
the truth would score against such an estimate. The ceilings of `rank` and `alignment` are from the two halves of the
continuations, those of `sign` and `top` are simulated (`turncredit.audit.noise_ceiling`).

Unlike in the exact worlds, the expected gradient is not compared: the few hundred rollouts of a round do not show its
direction (docs/score_data.md).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from time import perf_counter
from typing import NamedTuple

import numpy as np

from turncredit.audit.fidelity_measures import bias, group_of_rollout, rank_correlation, sign_agreement
from turncredit.audit.noise_ceiling import Measure, ceilings
from turncredit.audit.score.identification import furthest, in_deviations
from turncredit.audit.score.rollout_set import Part, RolloutSet
from turncredit.audit.score.running import TWO_CREDITS, advantages_of_table, explained, same
from turncredit.audit.scored_turns import Scored
from turncredit.credit.parts.compose import Method
from turncredit.data.seeding import derive_seed
from turncredit.errors import UserError
from turncredit.stats.bootstrap import Resamples, Statistic, ratio, sums_by

#: Bootstrap resamples of the task groups.
RESAMPLES = 2000


class Agreement(NamedTuple):
    """A number, its 95% interval over task groups, and what the truth itself would score; NaN where there is none."""

    value: float
    low: float
    high: float
    ceiling: float


class Share(NamedTuple):
    """A share of the variance over the scored turns: the credit's, and the true advantage's."""

    credit: float
    truth: float


@dataclass(frozen=True)
class PartScore:
    """A method on one part of a set.

    rank        Spearman's correlation within rollouts, mean with the weight n - 1; constant credit has 0
    sign        share of turns whose |A*| is above its standard error and whose credit has its sign; 0 is half right
    top         share of rollouts in which the turn whose credit is furthest from the rollout's mean is the one whose A*
                is; ties are shared
    chance      the same for a turn picked at random
    alignment   cosine of credit and A* over turns: that of their gradients, if no two turns shared a parameter
    between     share of the variance that is between rollouts, which says nothing of turns
    by_turn     share of the variance that the turn's number explains
    refused     mean credit of refused actions less that of A*, each in deviations (no ceiling: right is 0)
    dead        largest credit in a group whose rollouts all have the same return, in deviations of the credit; NaN if
                the part has no such group
    """

    part: str
    world: str
    turns: int
    groups: int
    rank: Agreement
    sign: Agreement
    top: Agreement
    chance: float
    alignment: Agreement
    between: Share
    by_turn: Share
    refused: Agreement
    dead: float


@dataclass(frozen=True)
class RolloutScore:
    """A method on a set of rollouts: each part, the means over parts, and the parts that were left out with the reason.

    `seconds` is what all parts together took, of `turns` turns.
    """

    set: str
    version: str
    digest: str
    parts: tuple[PartScore, ...]
    left_out: tuple[tuple[str, str], ...]
    rank: Agreement
    sign: Agreement
    top: Agreement
    chance: float
    alignment: Agreement
    seconds: float
    turns: int


def top(x_N: np.ndarray, scored: Scored) -> Statistic:
    """Share of rollouts whose turn furthest from the mean by credit is the one by A*; ties are shared."""
    found_N, true_N = (furthest(in_deviations(y_N), scored.rollout_N, scored.rollouts) for y_N in (x_N, scored.truth_N))
    columns = (np.ones(len(scored)), found_N, true_N, found_N & true_N)
    n_R, found_R, true_R, both_R = sums_by(scored.rollout_N, scored.rollouts, *columns).T
    differs_R = true_R < n_R
    hit_R = np.divide(both_R, found_R, out=np.zeros(scored.rollouts), where=found_R > 0)
    sums_GK = sums_by(group_of_rollout(scored), scored.groups, differs_R * hit_R, differs_R)
    return Statistic(sums_GK, ratio, int(n_R[differs_R].sum()))


def alignment(x_N: np.ndarray, scored: Scored) -> Statistic:
    """The cosine of credit and A* over the scored turns; 0 for a credit of zeros."""
    sums = sums_by(scored.group_N, scored.groups, x_N * scored.truth_N, x_N**2, scored.truth_N**2)

    def cosine(sums: np.ndarray) -> np.ndarray:
        xa, xx, aa = np.moveaxis(sums, -1, 0)
        size = np.sqrt(xx * aa)
        return np.divide(xa, size, out=np.where(aa > 0, 0.0, np.nan), where=size > 0)

    return Statistic(sums, cosine, len(scored))


#: The measures, by the name of their field.
MEASURES: dict[str, Measure] = {
    "rank": rank_correlation,
    "sign": sign_agreement,
    "top": top,
    "alignment": alignment,
}
#: Those whose ceiling is from the agreement of the two halves of the continuations, by Spearman and Brown's formula.
FROM_HALVES = ("rank", "alignment")


@cache
def _yardstick(part: Part, seed: int) -> tuple[Resamples, dict[str, float]]:
    """What all methods share: the resamples of the part's groups, and the measures' ceilings."""
    draws = Resamples(part.scored.groups, RESAMPLES, derive_seed("score set", part.name, seed))
    found = ceilings(part.scored, draws, seed, MEASURES, by_halves=FROM_HALVES)
    return draws, {name: one.value for name, one in found.items()}


def score_rollouts(method: Method, of: RolloutSet, *, seed: int = 0) -> RolloutScore | str:
    """The method's score on the parts that have what it reads; the reason where there is none.

    Raises UserError for a method that gives the same turns two different credits.
    """
    scores: list[PartScore] = []
    left_out: list[tuple[str, str]] = []
    value_PB: list[dict[str, np.ndarray]] = []
    seconds, turns = 0.0, 0
    for part in of.parts:
        lacks = of.lacks(method, part)
        if lacks is None:
            start = perf_counter()
            try:
                credit_N = _credit(method, part, of, seed)
            except UserError as error:
                lacks = str(error)
        if lacks is not None:
            left_out.append((part.name, lacks))
            continue
        seconds, turns = seconds + perf_counter() - start, turns + len(part.turns)
        if not scores and not same(credit_N, _credit(method, part, of, seed)):
            raise UserError(f"{method.name}: {TWO_CREDITS}")
        one, value_MB = _score(part, credit_N, seed)
        scores.append(one)
        value_PB.append(value_MB)
    if not scores:
        return left_out[0][1] if left_out else "the set has no parts"
    means = {
        name: _mean([getattr(one, name) for one in scores], [value_MB[name] for value_MB in value_PB], scores)
        for name in MEASURES
    }
    chance = float(np.mean([one.chance for one in scores]))
    return RolloutScore(
        set=of.name,
        version=of.version,
        digest=of.digest,
        parts=tuple(scores),
        left_out=tuple(left_out),
        chance=chance,
        seconds=seconds,
        turns=turns,
        **means,
    )


def _credit(method: Method, part: Part, of: RolloutSet, seed: int) -> np.ndarray:
    return advantages_of_table(method, part.turns, of.side_of(method, part), seed)


def _score(part: Part, credit_N: np.ndarray, seed: int) -> tuple[PartScore, dict[str, np.ndarray]]:
    """The part's score, and each measure in each resample."""
    scored = part.scored
    x_N = part.of_scored(credit_N)
    draws, ceiling = _yardstick(part, seed)
    statistics = {name: measure(x_N, scored) for name, measure in MEASURES.items()}
    value_MB = dict(zip(statistics, draws.values_of(list(statistics.values())), strict=True))
    numbers = {
        name: Agreement(one.value, *draws.interval(value_MB[name], one.groups), ceiling[name])
        for name, one in statistics.items()
    }
    one = PartScore(
        part.name,
        str(part.about["world"]),
        len(scored),
        scored.groups,
        **numbers,
        chance=top(np.zeros(len(scored)), scored).value,
        between=Share(explained(x_N, scored.rollout_N), explained(scored.truth_N, scored.rollout_N)),
        by_turn=Share(explained(x_N, scored.turn_N), explained(scored.truth_N, scored.turn_N)),
        refused=_refused(x_N, scored, draws),
        dead=_dead(part, credit_N),
    )
    return one, value_MB


def _dead(part: Part, credit_N: np.ndarray) -> float:
    view = part.view
    dead_N = view.restore(view.dead_G[view.group_N])
    return float(np.abs(credit_N[dead_N]).max() / (credit_N.std() or 1.0)) if dead_N.any() else np.nan


def _refused(x_N: np.ndarray, scored: Scored, draws: Resamples) -> Agreement:
    code_N, names = scored.labels.get("action", (np.zeros(0), []))
    refused_N = code_N == names.index("invalid") if names else np.zeros(len(scored), dtype=bool)
    if not refused_N.any():
        return Agreement(*[float("nan")] * 4)
    statistic = bias(x_N, scored, refused_N)
    return Agreement(statistic.value, *draws.interval(draws.values(statistic), statistic.groups), 0.0)


def _mean(numbers: Sequence[Agreement], value_PB: Sequence[np.ndarray], scores: Sequence[PartScore]) -> Agreement:
    """The mean over parts, whose task groups are resampled independently: no game is in two parts of the package's set.

    In a set of one's own, parts may share games. In version 1 of the package's set, where two policies played the same
    ones, drawing their groups together made the errors of eight methods' mean rank correlations at most 9% larger.
    """
    groups = sum(one.groups for one in scores)
    any_part = Resamples(groups, RESAMPLES, 0)  # only for the interval's level
    low, high = any_part.interval(np.mean(value_PB, axis=0), groups)
    value, ceiling = (float(np.mean([getattr(one, name) for one in numbers])) for name in ("value", "ceiling"))
    return Agreement(value, low, high, ceiling)
