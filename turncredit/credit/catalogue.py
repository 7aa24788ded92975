"""All methods and parts: those declared in this package's files, and those of installed packages.

A file of this package declares its parts in `PARTS` and its named methods in `METHODS`, beside the functions. There is
no other list: a new built-in method is its file. The files are found by looking into the package's folder, so that this
also works in a checkout that has not been installed again.

Another installed package brings a method by an entry point of the group `turncredit.methods`, whose name is the
method's and whose value is a `Method`:

    [project.entry-points."turncredit.methods"]
    novelty = "my_package.novelty:NOVELTY"

It is imported when it is asked for or listed, and not before; an error in it is one line that names its package.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from typing import NamedTuple

from turncredit.credit.parts.compose import Kind, Method, Part
from turncredit.data import plugins
from turncredit.errors import UserError, nearest

GROUP = "turncredit.methods"
KINDS: tuple[Kind, ...] = ("shaper", "estimator", "turn_term", "normaliser")


class Declared(NamedTuple):
    """What the files of this package declare, by name."""

    methods: dict[str, Method]
    parts: dict[Kind, dict[str, Part]]


@cache
def builtin() -> Declared:
    """The built-in methods by name with the bounds last, and the parts that methods can be composed of, by kind."""
    package = import_module("turncredit.credit")
    machinery = ("catalogue", "configured", "library", "resolving")
    names = [
        module.name
        for module in pkgutil.iter_modules(package.__path__)
        if not module.ispkg and module.name not in machinery
    ]
    modules = [import_module(f"{package.__name__}.{name}") for name in (*names, "parts.whiten")]
    methods: list[Method] = [method for module in modules for method in getattr(module, "METHODS", ())]
    parts: list[Part] = [part for module in modules for part in getattr(module, "PARTS", ())]
    _check_unique([method.name for method in methods])
    _check_unique([part.name for part in parts])
    methods.sort(key=lambda method: (method.role == "bound", method.name))
    parts.sort(key=lambda part: part.name)
    return Declared(
        {method.name: method for method in methods},
        {kind: {part.name: part for part in parts if part.kind == kind} for kind in KINDS},
    )


def find(name: str) -> Method:
    """The method called `name`, built in or from an installed package.

    Raises UserError for an unknown name, with the nearest one, and for an installed method that is broken.
    """
    builtins = builtin().methods
    if name in builtins:
        return builtins[name]
    if name not in plugins.installed(GROUP):
        hint = nearest(name, [*builtins, *plugins.installed(GROUP)])
        own = " (a function of your own is FILE.py:FUNCTION)" if ":" in name else ""
        raise UserError(f"unknown method '{name}'{hint}; `turncredit methods` lists them{own}")
    return _load(name)


def installed() -> Iterator[tuple[str, Method | UserError]]:
    """The methods of installed packages by name; for a broken one, its error."""
    for name in sorted(plugins.installed(GROUP)):
        try:
            yield name, _load(name)
        except UserError as error:
            yield name, error


def _load(name: str) -> Method:
    method = plugins.load("method", GROUP, {}, name)
    where = f"method '{name}': {plugins.described(plugins.installed(GROUP)[name][0])}"
    if name in builtin().methods:
        raise UserError(f"{where} has the name of a built-in method, which takes precedence")
    if not isinstance(method, Method):
        raise UserError(f"{where} is of type {type(method).__name__}, not turncredit.credit.Method")
    if method.name != name:
        raise UserError(f"{where} is called '{method.name}'; the entry point and the method must have the same name")
    return method


def _check_unique(names: list[str]) -> None:
    twice = [name for name in names if names.count(name) > 1]
    if twice:
        raise ValueError(f"turncredit.credit declares '{twice[0]}' more than once")
