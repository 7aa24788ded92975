"""Sweeps: a configuration with a `sweep` stands for one experiment for every combination of its values."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from turncredit.config.grid import combinations, with_value

#: Keys that name an experiment or its sweep, and so cannot be varied.
_NOT_VARIED = ("experiment", "sweep")


def experiments(data: Mapping[str, Any], keys: Collection[str], name: str) -> dict[str, dict[str, Any]]:
    """The experiments that `data`, a configuration, stands for, by name; none if it has no sweep.

    An experiment's name is the configuration's, or `name`, with each varied key and its value: `size_hidden_64`. `keys`
    are those of a configuration. Raises ValueError for a key that is not one, values that are none, and two experiments
    of one name.
    """
    sweep = data.get("sweep")
    if not isinstance(sweep, Mapping) or not sweep.get("grid"):
        return {}
    where = "sweep.grid"
    for key in sweep["grid"] if isinstance(sweep["grid"], Mapping) else ():
        first = str(key).partition(".")[0]
        if first not in keys or first in _NOT_VARIED:
            raise ValueError(
                f"{where}: '{key}' is not a key that can be varied; write one of a configuration, with those of blocks "
                "after a dot: policy.scratch.hidden: [64, 128]"
            )
    rest = {key: value for key, value in data.items() if key != "sweep"}
    out: dict[str, dict[str, Any]] = {}
    for labels, values in combinations(sweep["grid"], where):
        experiment = "_".join([str(data.get("experiment", name)), *labels])
        if experiment in out:
            raise ValueError(
                f"{where}: there are two experiments '{experiment}'; values can have names, KEY: {{NAME: VALUE}}"
            )
        out[experiment] = {**rest, "experiment": experiment}
        for key, value in values:
            out[experiment] = with_value(out[experiment], key.split("."), value)
    return out


def chosen(data: Mapping[str, Any], keys: Collection[str], name: str) -> dict[str, Any]:
    """`data` without its sweep: the experiment that `sweep.only` names.

    Raises ValueError if it names none of them, or none is named.
    """
    by_name = experiments(data, keys, name)
    if not by_name:
        return dict(data)
    only = data["sweep"].get("only")
    if only is None:
        raise ValueError(
            f"sweep: this stands for {len(by_name)} experiments ({', '.join(by_name)}); `turncredit run` with the same "
            "options runs one after another, --config 'sweep={only: NAME}' chooses one"
        )
    if only not in by_name:
        raise ValueError(f"sweep.only is '{only}'; the experiments are {', '.join(by_name)}")
    return by_name[only]
