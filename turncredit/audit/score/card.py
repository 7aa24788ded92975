"""A method's card: its identification and validity in every exact world, its traits, its agreement with A* on recorded
rollouts, and a few numbers over worlds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import isfinite
from typing import Any, NamedTuple

import numpy as np

from turncredit.audit.score.agreement import MEASURES, RolloutScore, score_rollouts
from turncredit.audit.score.blocks import Measured
from turncredit.audit.score.groups import Groups, draw, enumerate_groups
from turncredit.audit.score.identification import Identification, identification
from turncredit.audit.score.probes import TIMED, Traits, traits
from turncredit.audit.score.rollout_set import RolloutSet
from turncredit.audit.score.running import advantages, can_score
from turncredit.audit.score.validity import Validity, going_on, validity
from turncredit.audit.score.worlds import DENSITY, WORLDS, process
from turncredit.credit.parts.compose import Method
from turncredit.data.tables import MEASURED
from turncredit.errors import UserError

#: Rollouts of a group, and the one at which identification is measured and methods are compared.
SIZES = (4, 8, 16)
SIZE = 8
#: Rollouts drawn in each world for each size, where groups are not enumerated.
ROLLOUTS = 8192
#: Seconds that all worlds together may take.
PATIENCE = 600.0
#: In the worst world the expected gradient of a valid method has at least this cosine.
VALID = 0.98


class Credited(NamedTuple):
    """A decision: what is seen, the action, its visits in a rollout, its true advantage, and its mean credit at the
    best scale."""

    observation: str
    action: str
    visits: float
    truth: float
    credit: float


@dataclass(frozen=True)
class WorldScore:
    """A method in one world: identification for groups of `SIZE`, the others for groups of each size."""

    world: str
    difficulty: str
    identification: Identification
    validity: dict[int, Validity]
    going_on: dict[int, Measured]
    decisions: tuple[Credited, ...]

    @property
    def matters(self) -> bool:
        """Whether any turn matters here: elsewhere the policy gradient is zero, and only going on is measured."""
        return isfinite(self.validity[SIZE].scale.value)


class LeftOut(NamedTuple):
    """A world in which a method is not scored, and why."""

    world: str
    reason: str


@dataclass(frozen=True)
class Card:
    """Everything that is known about a method. `density` is that of decisive turns in the world `dead`.

    lacks       what the exact worlds lack of what it reads: then there are no worlds and no traits
    recorded    its score on recorded rollouts, or why there is none; None where no set was given
    """

    method: str
    about: str
    worlds: tuple[WorldScore, ...]
    left_out: tuple[LeftOut, ...]
    traits: Traits | None
    continuations: int | None
    rollouts: int
    seed: int
    density: float
    lacks: str | None = None
    recorded: RolloutScore | str | None = None

    @property
    def nowhere(self) -> str | None:
        """Why the method is scored nowhere; None where it is."""
        if self.lacks is None or isinstance(self.recorded, RolloutScore):
            return None
        return "; on recorded rollouts: ".join(filter(None, (self.lacks, self.recorded)))

    def scored(self) -> list[WorldScore]:
        """The worlds in which some turn matters."""
        return [one for one in self.worlds if one.matters]


class Summary(NamedTuple):
    """A few numbers over worlds, for groups of 8; NaN where there is none.

    rank, sign, top   means over worlds; `chance` is that of `top` for a turn picked at random
    cosine            mean over the worlds in which the expected gradient is distinguishable from zero
    worst, where      the smallest cosine and its world, among the same worlds
    noise             rollouts that are needed, as a multiple of flat GRPO's: geometric mean over worlds; infinite
                      where in some world the expected gradient does not point along the policy gradient
    going_on          deviations that are paid for going on where it changes nothing; right is 0
    going_on_paid     the same where turns are paid before the end
    real_rank, real_sign, real_top, real_alignment      on recorded rollouts: means over their parts
    """

    rank: float
    sign: float
    top: float
    chance: float
    cosine: float
    worst: float
    where: str
    noise: float
    going_on: float
    going_on_paid: float
    real_rank: float
    real_sign: float
    real_top: float
    real_alignment: float


def full_card(method: Method, rollout_set: RolloutSet | None = None, **settings: Any) -> Card:
    """The card of a method with its score on recorded rollouts; the settings are those of `score`.

    A method that the exact worlds cannot score is scored on the rollouts alone. Raises UserError for what `score`
    refuses, but not for what the worlds and the set lack: the card says so.
    """
    lacks = can_score(method)
    if lacks is None:
        card = score(method, **settings)
    else:
        used = {"rollouts": ROLLOUTS, "seed": 0, "density": DENSITY} | settings
        used.pop("worlds", None)
        card = Card(method.name, method.summary, (), (), None, method.continuations, **used, lacks=lacks)
    if rollout_set is None:
        return card
    return replace(card, recorded=score_rollouts(method, rollout_set, seed=card.seed))


def score(
    method: Method,
    *,
    worlds: Sequence[str] = tuple(WORLDS),
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    density: float = DENSITY,
) -> Card:
    """The card of a method.

    Raises UserError for a method that reads what the exact worlds do not have, raises, returns another shape or NaN,
    gives the same turns different credits, or takes minutes.
    """
    lacks = can_score(method)
    if lacks is not None:
        raise UserError(f"{method.name}: {lacks}")
    found = traits(method)
    _check_time(method, found, worlds, rollouts, density)
    read = {*found.reads, *method.reads}
    left_out = [one for name in worlds if (one := _unmeasured(read, name, density)) is not None]
    apart = {one.world for one in left_out}
    scores = [_world(method, found, name, rollouts, seed, density) for name in worlds if name not in apart]
    about = method.continuations, rollouts, seed, density
    return Card(method.name, method.summary, tuple(scores), tuple(left_out), found, *about)


def _check_time(method: Method, found: Traits, worlds: Sequence[str], rollouts: int, density: float) -> None:
    turns = sum(process(name, density).visits_S.sum() for name in worlds) * rollouts * len(SIZES)
    seconds = found.seconds * turns / (TIMED[0] * TIMED[1])
    if seconds > PATIENCE:
        fewer = max(int(rollouts * PATIENCE / seconds / 4), 64)
        raise UserError(
            f"{method.name}: takes {found.seconds:.1f} s for {TIMED[0]} rollouts of {TIMED[1]} turns, so about "
            f"{seconds / 60:.0f} min for the worlds; vectorise it, or score fewer rollouts (--rollouts {fewer})"
        )


def _unmeasured(read: set[str], name: str, density: float) -> LeftOut | None:
    """Why a method that reads progress or distance is not scored in this world; None where it is."""
    wanted = next((column for column in MEASURED if column in read), None)
    if wanted is None or process(name, density).world.progress is not None:
        return None
    return LeftOut(name, f"does not measure {wanted.removesuffix('_before')}")


def _world(method: Method, found: Traits, name: str, rollouts: int, seed: int, density: float) -> WorldScore:
    exact = process(name, density)
    validities: dict[int, Validity] = {}
    paid: dict[int, Measured] = {}
    whole = found.enumerable and not method.continuations  # which are drawn, too
    for size in SIZES:
        groups = (enumerate_groups(exact, size) if whole else None) or draw(exact, size, rollouts, seed)
        credit_N = advantages(method, groups, seed)
        validities[size], paid[size] = validity(groups, credit_N), going_on(groups, credit_N)
        if size == SIZE:
            identified = identification(groups, credit_N)
            decisions = _decisions(groups, credit_N, validities[size].scale.value)
    return WorldScore(name, exact.world.difficulty, identified, validities, paid, decisions)


def _decisions(groups: Groups, credit_N: np.ndarray, scale: float) -> tuple[Credited, ...]:
    """Each decision's mean credit over its visits, divided by the scale where that is positive."""
    exact = groups.process
    weight_N = groups.weight_G[groups.group_N]
    count_D = np.bincount(groups.decision_N, weight_N, len(exact.actions))
    mean_D = np.bincount(groups.decision_N, weight_N * credit_N, len(exact.actions)) / np.where(count_D > 0, count_D, 1)
    # A credit's mean in a state moves no logit of it: only differences between a state's actions do.
    mean_S = np.bincount(exact.state_D, exact.policy_D * mean_D)
    own_D = (mean_D - mean_S[exact.state_D]) / (scale if scale > 0 else 1.0)
    return tuple(
        Credited(
            exact.world.observe(exact.states[exact.state_D[number]]),
            exact.actions[number],
            float(count_D[number] / groups.size),
            float(exact.truth_D[number]),
            float(own_D[number]),
        )
        for number in np.flatnonzero(count_D > 0).tolist()
    )


def summarise(card: Card, flat: Card) -> Summary:
    """The numbers over worlds of a card; `flat` is flat GRPO's with the same settings."""
    scored = card.scored()
    found = [one.identification for one in scored]
    cosine = {one.world: one.validity[SIZE].cosine.value for one in scored}
    known = {world: value for world, value in cosine.items() if isfinite(value)}
    where = min(known, key=lambda world: known[world]) if known else ""
    real = card.recorded if isinstance(card.recorded, RolloutScore) else None
    needed_flat = {one.world: one.validity[SIZE].rollouts for one in flat.scored()}
    needed = [one.validity[SIZE].rollouts / needed_flat[one.world] for one in scored]
    paid = {one.world: one.going_on[SIZE].value for one in card.worlds}
    return Summary(
        rank=_mean([one.rank.value for one in found]),
        sign=_mean([one.sign.value for one in found]),
        top=_mean([one.top.value for one in found]),
        chance=_mean([one.chance.value for one in found]),
        cosine=_mean(list(known.values())),
        worst=known.get(where, np.nan),
        where=where,
        noise=float(np.exp(_mean([float(np.log(ratio)) for ratio in needed]))),
        going_on=paid.get("stop", np.nan),
        going_on_paid=paid.get("stop_paid", np.nan),
        **{f"real_{name}": getattr(real, name).value if real else np.nan for name in MEASURES},
    )


def _mean(values: list[float]) -> float:
    return float(np.mean(values)) if values else np.nan


def as_json(card: Card, summary: Summary) -> dict[str, Any]:
    """The card as JSON values; a number that is missing or infinite is null."""
    return _plain({"summary": summary._asdict(), **asdict(card)})


def _plain(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _plain(one) for key, one in value.items()}
    if isinstance(value, Measured | Credited) or hasattr(value, "_asdict"):
        return _plain(value._asdict())
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, np.bool_ | np.floating):
        value = value.item()
    return None if isinstance(value, float) and not isfinite(value) else value
