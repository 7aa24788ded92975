"""What a score is worth: its numbers against the gains over flat GRPO that were measured in training.

`gains.csv` holds the gains in points of success with their 95% intervals, for methods with the built-in settings. They
are those of the tables in benchmarks/methods/RESULTS.md (household from two SFT policies) and
benchmarks/worlds/RESULTS.md; what is withdrawn there is not here.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.resources import files
from math import isfinite
from typing import NamedTuple

import numpy as np

from turncredit.audit.score.agreement import PartScore, RolloutScore
from turncredit.audit.score.leaderboard import Scored
from turncredit.credit.parts.baselines import BASELINE
from turncredit.stats.levels import LEVEL, holm
from turncredit.stats.rank_correlation import FEWEST_POINTS, spearman

#: The numbers whose worth is asked, and -1 where less is better. What is paid for going on counts by its size.
PARTS = {
    "rank": 1, "sign": 1, "top": 1, "cosine": 1, "worst": 1, "noise": -1, "going_on": -1,
    "real_rank": 1, "real_sign": 1, "real_top": 1, "real_alignment": 1,
}  # fmt: skip


#: What the names of those on recorded rollouts begin with.
RECORDED = "real_"


class Gain(NamedTuple):
    """A gain over flat GRPO in points of success, with its 95% interval."""

    value: float
    low: float
    high: float


class Worth(NamedTuple):
    """What a part says of the gains of one setting, over families of methods.

    rho, low, high, p   Spearman's correlation with its interval
    right               families whose gain has the sign that the others predict (`signs_right`)
    elsewhere           the same with a rule found in the other environments; None without another one
    most                families with the more frequent sign: right without looking at the part
    """

    part: str
    setting: str
    rho: float
    low: float
    high: float
    p: float
    families: int
    right: int
    elsewhere: int | None
    most: int


@cache
def gains() -> dict[str, dict[str, Gain]]:
    """Gains by setting and method. Flat GRPO's is 0 by definition."""
    found: dict[str, dict[str, Gain]] = {}
    text = (files("turncredit.audit.score") / "gains.csv").read_text(encoding="utf-8")
    for row in csv.DictReader(text.splitlines()):
        numbers = (float(row[name]) for name in Gain._fields)
        found.setdefault(row["setting"], {BASELINE: Gain(0, 0, 0)})[row["method"]] = Gain(*numbers)
    return found


def worth(scored: Sequence[Scored]) -> list[Worth]:
    """Each part against the gains of each setting in which enough families were trained. References are left out."""
    out = []
    worlds = {part.world for one in scored for part in _recorded(one)}
    for part, sign in PARTS.items():
        points: dict[str, tuple[np.ndarray, np.ndarray]] = {}
        for setting, gain in gains().items():
            world = _world(setting)
            value = {one.method.name: _value(one, part, world if world in worlds else None) for one in scored}
            heads = _heads(one for one in scored if one.method.name in gain and isfinite(value[one.method.name]))
            if len(heads) >= FEWEST_POINTS:
                x = np.array([sign * value[one.method.name] for one in heads])
                points[setting] = x, np.array([gain[one.method.name].value for one in heads])
        for setting, (x, y) in points.items():
            others = [points[other] for other in points if _world(other) != _world(setting)]
            signs = signs_right(x, y), signs_elsewhere(x, y, others), max(int((y > 0).sum()), int((y <= 0).sum()))
            out.append(Worth(part, setting, *spearman(x, y), len(x), *signs))
    return out


def _world(setting: str) -> str:
    """The world of a setting of the gains: `household 1` and `household 2` are of one."""
    return environment_of(setting).lower().replace("-", "")


def environment_of(setting: str) -> str:
    """The name of a setting's environment, as tables have it: `household` of `household 2`."""
    return setting.split(maxsplit=1)[0]


def signs_right(x: np.ndarray, y: np.ndarray) -> int:
    """How many y have the sign that is predicted from x, each with a rule found on the others.

    The rule is "above a threshold the gain is positive": the threshold between two neighbouring x that is right most
    often, the lowest one of equals. That more x is better is given, not found.
    """
    everyone = np.arange(len(x))
    return sum(
        bool((x[one] > _threshold(x[others], y[others])) == (y[one] > 0))
        for one in everyone
        for others in [everyone != one]
    )


def signs_elsewhere(x: np.ndarray, y: np.ndarray, others: Sequence[tuple[np.ndarray, np.ndarray]]) -> int | None:
    """How many y have the sign that is predicted from x with the rule found in other environments; None without any.

    x, y    of one environment's families
    others  those of each other environment; the rule is that of `signs_right`, found on all of them together
    """
    if not others:
        return None
    place = _threshold(*(np.concatenate(column) for column in zip(*others, strict=True)))
    return int(((x > place) == (y > 0)).sum())


def _threshold(x: np.ndarray, y: np.ndarray) -> float:
    places = np.unique(x)
    between = np.concatenate([[-np.inf], (places[1:] + places[:-1]) / 2, [np.inf]])
    right = [int(((x > place) == (y > 0)).sum()) for place in between]
    return float(between[int(np.argmax(right))])


def _heads(scored: Iterable[Scored]) -> list[Scored]:
    """One method for each family: the one with the family's name, else the first."""
    heads: dict[str, Scored] = {}
    for one in scored:
        family = one.method.family or one.method.name
        if one.method.role != "reference" and (family not in heads or one.method.name == family):
            heads[family] = one
    return list(heads.values())


def _recorded(one: Scored) -> tuple[PartScore, ...]:
    found = one.card.recorded
    return found.parts if isinstance(found, RolloutScore) else ()


def _value(one: Scored, part: str, world: str | None) -> float:
    """The number of a method; on recorded rollouts over this world's parts, NaN where the method has none.

    world  None: the set does not have the setting's world, so the mean over all parts counts
    """
    value = float(getattr(one.summary, part))
    if part.startswith(RECORDED) and world is not None:
        name = part.removeprefix(RECORDED)
        of_world = [getattr(each, name).value for each in _recorded(one) if each.world == world]
        return float(np.mean(of_world)) if of_world else np.nan
    if part == "going_on":
        return abs(value)
    return 1e9 if part == "noise" and value == np.inf else value  # the last rank


def part_name(part: str) -> str:
    """A part in words: `real_top` is top on recorded rollouts."""
    name = part.removeprefix(RECORDED).replace("_", " ")
    return f"{name} on recorded rollouts" if part.startswith(RECORDED) else name


def _place(one: Worth) -> str:
    return f"{part_name(one.part)} in {one.setting}"


def verdict(found: Sequence[Worth]) -> str:
    """In one sentence, which parts predict gains."""
    if not found:
        return "Too few of these families were trained to say what the numbers are worth."
    corrected = holm({_place(one): one.p for one in found})
    clear = [_place(one) for one in found if one.low > 0]
    shown = [name for name in clear if corrected[name] < 1 - LEVEL]
    rho = {_place(one): f"{one.rho:+.2f}" for one in found}
    if shown:
        named = ", ".join(f"{name} ({rho[name]})" for name in shown)
        return f"Shown to predict gains, with p corrected for {len(found)} correlations (Holm): {named}."
    none = f"None of the {len({one.part for one in found})} numbers is shown to predict gains in training."
    if not clear:
        return none
    named = ", ".join(f"{name} ({rho[name]}, p {corrected[name]:.2f})" for name in clear)
    return f"{none} With an interval above zero: {named}; p is corrected for {len(found)} correlations (Holm)."
