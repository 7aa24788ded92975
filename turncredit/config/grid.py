"""Grids: a method of `define` with a `grid` stands for one method for every combination of its values."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

#: what a method of `define` can have, and so what a grid can vary; keys of other sections are the whole experiment's
_BLOCKS = ("params", "model", "rollout", "update", "continuations", "forks")
_ALONE = ("base", "credit", "agent")


def expanded(data: Mapping[str, Any]) -> dict[str, Any]:
    """`data`, a configuration, with every method that has a grid replaced by those that it stands for.

    So are their names in `methods`, `audit.methods` and `audit.run`. A method is called by the grid's name with each
    key and its value: `tuned_lr_0_0001`. Raises ValueError for unknown keys, an empty grid, and two equal names.
    """
    define = data.get("define")
    entries = dict(define) if isinstance(define, Mapping) else {}
    grids = {
        name: list(_methods(name, entry))
        for name, entry in entries.items()
        if isinstance(entry, Mapping) and entry.get("grid")
    }
    if not grids:
        return dict(data)
    methods: dict[str, Any] = {}
    for name, entry in entries.items():
        for method, its in grids.get(name, [(name, entry)]):
            if method in methods:
                raise ValueError(
                    f"define.{name}: two methods are called '{method}'; give the values of the grid names, "
                    "KEY: {NAME: VALUE}"
                )
            methods[method] = its
    names = {name: [method for method, _ in methods_of_it] for name, methods_of_it in grids.items()}
    out = {**data, "define": methods}
    for section, key in ((out, "methods"), *_audit(out)):
        listed = section.get(key)
        if isinstance(listed, list | tuple):
            section[key] = [method for name in listed for method in names.get(str(name), [name])]
        elif isinstance(listed, str) and listed in names:
            section[key] = names[listed]
    return out


def _audit(out: dict[str, Any]) -> Iterator[tuple[dict[str, Any], str]]:
    if isinstance(out.get("audit"), Mapping):
        out["audit"] = dict(out["audit"])
        yield from ((out["audit"], key) for key in ("methods", "run"))


def _methods(name: str, entry: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """The methods that the entry `name` stands for, as (name, entry)."""
    where = f"define.{name}.grid"
    for key in entry["grid"] if isinstance(entry["grid"], Mapping) else ():
        _check_key(str(key), where)
    rest = {key: value for key, value in entry.items() if key != "grid"}
    for labels, values in combinations(entry["grid"], where):
        method = rest
        for key, value in values:
            method = with_value(method, key.split("."), value)
        yield "_".join([name, *labels]), method


def combinations(grid: Any, where: str) -> Iterator[tuple[list[str], list[tuple[str, Any]]]]:
    """Every combination of the values of `grid`, found at `where`: their parts of a name, and (key, value) of each.

    A value is named by its own name, if it has one, else by the key's last word and the value: `lr_0_0001`.
    """
    if not isinstance(grid, Mapping):
        raise ValueError(f"{where}: write KEY: [VALUE, ...], such as update.lr: [1.0e-4, 3.0e-4]")
    for key, values in grid.items():
        if not isinstance(values, list | tuple | Mapping) or not values:
            raise ValueError(f"{where}.{key}: give a list of values, or a mapping of names to values")
        if isinstance(values, Mapping) and not all(type(name) in (str, int, float) for name in values):
            raise ValueError(f"{where}.{key}: a value's name must be a word or a number; put on and off in quotes")
    for combination in itertools.product(*(_named(str(key), values) for key, values in grid.items())):
        yield [label for _, label, _ in combination], [(key, value) for key, _, value in combination]


def _check_key(key: str, where: str) -> None:
    block, _, inside = key.partition(".")
    if (block in _BLOCKS and inside) or key in _ALONE:
        return
    raise ValueError(
        f"{where}: '{key}' is not a key of a method; a grid varies {', '.join(_ALONE)}, and keys of "
        f"{', '.join(_BLOCKS)}. Vary any other key in a sweep of experiments (docs/configuration.md)"
    )


def _named(key: str, values: Any) -> list[tuple[str, str, Any]]:
    """Each value as (key, its part of the method's name, value): its own name, or the key's last word and the value."""
    if isinstance(values, Mapping):
        return [(key, _spelled(name), value) for name, value in values.items()]
    word = "" if key in _ALONE else f"{_spelled(key.rpartition('.')[2])}_"
    return [(key, word + _spelled(value), value) for value in values]


def _spelled(value: Any) -> str:
    """A value as part of a name; a number in one way, however it is written and whether it comes from a file or not."""
    with suppress(TypeError, ValueError):
        value = value if isinstance(value, bool) else f"{float(value):.12g}"
    return re.sub("[^A-Za-z0-9]+", "_", str(value)).strip("_").lower()


def with_value(entry: Mapping[str, Any], path: list[str], value: Any) -> dict[str, Any]:
    """`entry` with `value` at `path`."""
    first, *rest = path
    inside = entry.get(first)
    return {**entry, first: with_value(inside if isinstance(inside, Mapping) else {}, rest, value) if rest else value}
