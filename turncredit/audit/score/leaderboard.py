"""The scores of all methods, best mean cosine first."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np

from turncredit.audit.score.card import ROLLOUTS, Card, Summary, score, summarise
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


class Leaderboard(NamedTuple):
    """The methods that were scored, best first, and why the others were not (method, reason)."""

    scored: tuple[Scored, ...]
    left_out: tuple[tuple[Method, str], ...]


def leaderboard(
    methods: Iterable[Method] = tuple(METHODS.values()),
    *,
    worlds: Sequence[str] = tuple(WORLDS),
    rollouts: int = ROLLOUTS,
    seed: int = 0,
    density: float = DENSITY,
    progress: Callable[[str], None] | None = None,
) -> Leaderboard:
    """Score the methods; `progress` is called with a method's name before it is scored."""
    score_one = partial(score, worlds=worlds, rollouts=rollouts, seed=seed, density=density)
    flat = score_one(METHODS[BASELINE])
    scored, left_out = [], []
    for method in methods:
        if (reason := can_score(method)) is not None:
            left_out.append((method, reason))
            continue
        if progress is not None:
            progress(method.name)
        card = flat if method.name == BASELINE else score_one(method)
        scored.append(Scored(method, card, summarise(card, flat)))
    scored.sort(key=lambda one: (-round(np.nan_to_num(one.summary.cosine, nan=-2.0), 2), one.method.name))
    return Leaderboard(tuple(scored), tuple(left_out))
