"""The scores of all methods, best mean cosine first; methods that the exact worlds cannot score come last."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from turncredit.audit.score.agreement import RolloutScore
from turncredit.audit.score.card import ROLLOUTS, Card, Summary, full_card, summarise
from turncredit.audit.score.rollout_set import RolloutSet
from turncredit.audit.score.running import can_score
from turncredit.audit.score.worlds import DENSITY, WORLDS
from turncredit.credit import METHODS
from turncredit.credit.parts.baselines import BASELINE
from turncredit.credit.parts.compose import Method


class Scored(NamedTuple):
    """A method with its card and its numbers over worlds."""

    method: Method
    card: Card
    summary: Summary


def parts_of(one: Scored) -> int:
    """How many parts of the recorded rollouts the method was scored on."""
    return len(one.card.recorded.parts) if isinstance(one.card.recorded, RolloutScore) else 0


class Leaderboard(NamedTuple):
    """The methods that were scored anywhere, best first; why others are not on exact worlds, and on recorded rollouts
    (method, reason)."""

    scored: tuple[Scored, ...]
    left_out: tuple[tuple[Method, str], ...]
    not_recorded: tuple[tuple[Method, str], ...] = ()

    @property
    def on_worlds(self) -> list[Scored]:
        """Those that were scored on exact worlds."""
        return [one for one in self.scored if one.card.worlds]

    @property
    def on_rollouts(self) -> list[Scored]:
        """Those that were scored on recorded rollouts: on the most parts first, then by the best rank correlation.

        Means over different parts do not compare: parts differ more than methods.
        """
        have = [one for one in self.scored if isinstance(one.card.recorded, RolloutScore)]
        return sorted(have, key=lambda one: (-parts_of(one), -round(one.summary.real_rank, 2), one.method.name))


def leaderboard(
    methods: Iterable[Method] = tuple(METHODS.values()),
    *,
    rollout_set: RolloutSet | None = None,
    worlds: Sequence[str] = tuple(WORLDS),
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    density: float = DENSITY,
    progress: Callable[[str], None] | None = None,
) -> Leaderboard:
    """Score the methods; `progress` is called with a method's name before it is scored."""
    score_one = partial(
        full_card, rollout_set=rollout_set, worlds=worlds, rollouts=rollouts, seed=seed, density=density
    )
    flat = score_one(METHODS[BASELINE])
    scored, left_out, not_recorded = [], [], []
    for method in methods:
        if (reason := can_score(method)) is not None:
            left_out.append((method, reason))
        if progress is not None:
            progress(method.name)
        card = flat if method.name == BASELINE else score_one(method)
        if isinstance(card.recorded, str):
            not_recorded.append((method, card.recorded))
        if card.nowhere is None:
            scored.append(Scored(method, card, summarise(card, flat)))
    scored.sort(key=lambda one: (-round(np.nan_to_num(one.summary.cosine, nan=-2.0), 2), one.method.name))
    return Leaderboard(tuple(scored), tuple(left_out), tuple(not_recorded))
