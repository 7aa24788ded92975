"""Sweeps: a configuration with a `sweep` stands for several experiments, listed by name or the cells of a grid."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import combinations as pairs
from itertools import product
from typing import Any

from turncredit.config.grid import combinations, with_value
from turncredit.config.merging import merge
from turncredit.data.counts import number_of

#: Keys that name an experiment or its sweep, and so cannot be varied.
_NOT_VARIED = ("experiment", "sweep")
#: The most characters of an experiment's name: it is a folder's, in which others have names, too.
_LONGEST = 100


def experiments(data: Mapping[str, Any], keys: Collection[str], name: str) -> dict[str, dict[str, Any]]:
    """The keys that each experiment of the sweep in `data`, a configuration, sets, by name; none without a sweep.

    An experiment's name is the configuration's, or `name`, with its name in `sweep.experiments` and each key that the
    grid varies with its value: `size_long_hidden_64`. `keys` are those of a configuration. Raises ValueError for keys,
    values and names that are not valid.
    """
    sweep = data.get("sweep")
    if not isinstance(sweep, Mapping) or not (sweep.get("grid") or sweep.get("experiments")):
        return {}
    grid, where = sweep.get("grid") or {}, "sweep.grid"
    if isinstance(grid, Mapping):
        _check_keys(grid, keys, where)
        _check_independent(grid, where)
    out: dict[str, dict[str, Any]] = {}
    for (listed, changed), (labels, values) in product(_listed(sweep, keys), combinations(grid, where)):
        experiment = "_".join([str(data.get("experiment", name)), *listed, *labels])
        if experiment in out:
            raise ValueError(
                f"sweep: two experiments are called '{experiment}'; give their values names, KEY: {{NAME: VALUE}}"
            )
        if len(experiment) > _LONGEST:
            raise ValueError(
                f"sweep: the name '{experiment[:40]}...' has {len(experiment)} characters, more than {_LONGEST}; give "
                "the values short names, KEY: {NAME: VALUE}"
            )
        own = (with_value({}, key.split("."), value) for key, value in values)
        out[experiment] = merge({"experiment": experiment}, changed, *own)
    return out


def _listed(sweep: Mapping[str, Any], keys: Collection[str]) -> list[tuple[list[str], dict[str, Any]]]:
    """Each of `sweep.experiments`: its part of the name, and the keys that it sets. Without any: one that sets none."""
    listed = sweep.get("experiments") or {}
    if not listed:
        return [([], {})]
    if not isinstance(listed, Mapping):
        raise ValueError("sweep.experiments: write NAME: {KEY: VALUE}, such as wide: {policy.scratch.hidden: 128}")
    out: list[tuple[list[str], dict[str, Any]]] = []
    for name, [(_, given)] in combinations({"experiments": listed}, "sweep"):
        where = f"sweep.experiments.{name[0]}"
        if not isinstance(given, Mapping | None):
            raise ValueError(f"{where}: give the keys that this experiment sets, KEY: VALUE")
        _check_keys(given or (), keys, where)
        each = (with_value({}, str(key).split("."), value) for key, value in (given or {}).items())
        out.append((name, merge({}, *each)))
    return out


def _check_keys(given: Collection[str], keys: Collection[str], where: str) -> None:
    for key in map(str, given):
        first = key.partition(".")[0]
        if first not in keys or first in _NOT_VARIED:
            raise ValueError(
                f"{where}: '{key}' is not a key that can vary; write a key of the configuration, and put a dot between "
                "a block and its key: policy.scratch.hidden: [64, 128]"
            )


def _check_independent(grid: Collection[str], where: str) -> None:
    for one, other in pairs(map(str, grid), 2):
        if f"{one}.".startswith(f"{other}.") or f"{other}.".startswith(f"{one}."):
            raise ValueError(f"{where}: one of '{one}' and '{other}' is inside the other; vary only one of them")


def changes(data: Mapping[str, Any], keys: Collection[str], name: str) -> dict[str, Any]:
    """What the experiment that `sweep.only` names has of its own; nothing without a sweep. Raises ValueError."""
    by_name = experiments(data, keys, name)
    sweep = data.get("sweep")
    only = sweep.get("only") if isinstance(sweep, Mapping) else None
    if not by_name and only is not None:
        raise ValueError(
            f"sweep.only is '{only}', but there is no sweep; add the file that has it, or remove sweep.only"
        )
    if not by_name:
        return {}
    if only is None:
        count = number_of(len(by_name), "experiment")
        raise ValueError(
            f"sweep: the configuration has {count} ({', '.join(by_name)}); choose one with --config "
            "'sweep={only: NAME}', or run them one after another with `turncredit run`"
        )
    if only not in by_name:
        raise ValueError(f"sweep.only is '{only}', which is not in the sweep; choose one of {', '.join(by_name)}")
    return by_name[only]


def chosen(data: Mapping[str, Any], keys: Collection[str], name: str) -> dict[str, Any]:
    """`data` without its sweep: the experiment that `sweep.only` names (`changes`)."""
    own = changes(data, keys, name)
    return merge({key: value for key, value in data.items() if key != "sweep" or not own}, own)
