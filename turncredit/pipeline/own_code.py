"""Which code a method or a credit model is made of, where it is not this package's: an edit makes other credits.

A user's own file is identified by its content and that of the files beside it that it imports; a module of an installed
package by its content and the package's version. What that module imports is not looked at, but for modules in which a
part's function is defined.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.metadata import packages_distributions, version
from types import ModuleType
from typing import Any

from turncredit.credit.models.protocol import load_kind
from turncredit.credit.parts.compose import Method
from turncredit.credit.parts.lookup import GROUP, SLOTS, builtin, module_of
from turncredit.data import plugins
from turncredit.data.own_imports import own_imports
from turncredit.data.provenance import file_hash


def code_of_method(definition: str | Mapping[str, Any], method: Method) -> str | None:
    """What identifies the code of `method`, which a configuration defines so; None for one of built-in parts."""
    functions = [sys.modules.get(module_of(part.function)) for part in method.parts]
    return _identified([*map(_module_named, _names(definition)), *functions])


def code_of_model(kind: str) -> str | None:
    """What identifies the code of a kind of credit model; None for a built-in one."""
    made = load_kind(kind)
    own = plugins.own_file(kind)
    named = plugins.from_file("a credit model", own[0]) if own else sys.modules.get(kind)
    return _identified([named, sys.modules.get(type(made).__module__)])


def own_files(definition: str | Mapping[str, Any]) -> list[str]:
    """The user's own files that a method is defined by, each once: its own, then those of parts that are put in."""
    found = [plugins.own_file(name) for name in _names(definition)]
    return list(dict.fromkeys(str(own[0]) for own in found if own))


def _names(definition: str | Mapping[str, Any]) -> list[str]:
    """What a definition names: a method or a file, and the parts that it puts in."""
    entry: Mapping[str, Any] = {"base": definition} if isinstance(definition, str) else definition
    params = entry.get("params") or {}
    chosen = [entry.get("base"), entry.get("credit"), *(params.get(slot) for slot in SLOTS)]
    return [str(name) for one in chosen for name in (one if isinstance(one, list | tuple) else [one]) if name]


def _module_named(name: str) -> ModuleType | None:
    """The module of a user's file, or of a method of an installed package, which has been imported."""
    if own := plugins.own_file(name):
        return plugins.from_file("a method", own[0])
    if name in builtin().methods or name not in plugins.installed(GROUP):
        return None
    return sys.modules.get(plugins.installed(GROUP)[name][0].module)


def _identified(modules: Iterable[ModuleType | None]) -> str | None:
    """`my_package 1.2 3fa9c0...` for each module that is not this package's; without a package only the hash."""
    files = {}
    for module in modules:
        name = module.__name__.partition(".")[0] if module else "turncredit"
        if name == "turncredit" or not (file := getattr(module, "__file__", None)):
            continue
        files[file] = _package(name)
        if name.startswith(plugins.USER):
            files |= dict.fromkeys(own_imports(file), "")
    return ", ".join(f"{package}{file_hash(file)}" for file, package in files.items()) or None


@cache
def _package(module: str) -> str:
    """The installed package that brings a top-level module, with its version and a space; empty for a file's."""
    names = packages_distributions().get(module, ()) if not module.startswith(plugins.USER) else ()
    return next((f"{name} {version(name)} " for name in names), "")
