"""Helpers of the row-by-row forms: rows by rollout and group, means, deviations, returns."""

from __future__ import annotations

import math
from collections import defaultdict

Row = dict
Rows = list[Row]


def rollouts(rows: Rows) -> dict[tuple, list[int]]:
    """(group, rollout) -> its rows' places, turn by turn; groups and rollouts in the order of their ids."""
    places: dict[tuple, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        places[row["group_id"], row["rollout_id"]].append(place)
    return {key: sorted(places[key], key=lambda place: rows[place]["turn"]) for key in sorted(places)}


def groups(rows: Rows) -> dict[object, list[list[int]]]:
    """group -> its rollouts, each a list of places."""
    by_group: dict[object, list[list[int]]] = defaultdict(list)
    for (group, _), places in rollouts(rows).items():
        by_group[group].append(places)
    return dict(by_group)


def own_and_peers(rows: Rows) -> list[tuple[list[int], list[list[int]]]]:
    """For each row: its rollout's places, and those of all rollouts of its group."""
    members, mine = groups(rows), rollouts(rows)
    return [(mine[row["group_id"], row["rollout_id"]], members[row["group_id"]]) for row in rows]


def mean(values: list[float]) -> float:
    return sum(values) / len(values)


def std(values: list[float], ddof: int = 1) -> float:
    if len(values) <= ddof:
        return 0.0
    centre = mean(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - ddof))


def relative(value: float, others: list[float], *, norm: str, ddof: int, eps: float, singleton: str = "zero") -> float:
    if len(others) == 1:
        raw = value / (1 + eps) if norm == "mean_std" else value
        return raw if singleton == "raw" else 0.0
    off = value - mean(others)
    return off / (std(others, ddof) + eps) if norm == "mean_std" else off


def returns(rows: Rows, places: list[int]) -> float:
    return sum(rows[place]["reward"] for place in places)


def step_returns(rows: Rows, gamma: float) -> list[float]:
    """G_t = sum over k of gamma^k r_{t+k}, as the sum it is defined by."""
    out = [0.0] * len(rows)
    for places in rollouts(rows).values():
        for turn, place in enumerate(places):
            out[place] = sum(gamma**k * rows[later]["reward"] for k, later in enumerate(places[turn:]))
    return out
