"""Plug-ins by name: built-in ones, those that installed packages bring (entry points), and files of one's own."""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import ModuleType
from typing import Any

from turncredit.errors import UserError, nearest


def load(kind: str, group: str, built_in: Mapping[str, str], name: str) -> Any:
    """What is called `name`: from `built_in` (name -> `module:attribute`), else from the entry points of `group`.

    The built-in table makes a plain checkout work, where nothing is installed; no package can replace one of its names.
    Raises UserError for an unknown name, with the nearest, and for a package that can't be imported.
    """
    if name in built_in:
        module, _, attribute = built_in[name].partition(":")
        return getattr(import_module(module), attribute) if attribute else import_module(module)
    installed = _installed(group)
    if name not in installed:
        names = sorted({*built_in, *installed})
        raise UserError(f"unknown {kind} '{name}'{nearest(name, names)}; there are: {', '.join(names)}")
    point = installed[name]
    package = point.dist.name if point.dist else "unknown"
    try:
        return point.load()
    except Exception as error:  # anything may go wrong in a package of somebody else's
        raise UserError(
            f"{kind} '{name}': {point.value} of the package {package} cannot be imported: {_short(error)}"
        ) from error


def from_file(kind: str, path: str | Path) -> ModuleType:
    """The module in a file of one's own, imported once a process. Raises UserError where that is impossible."""
    path = Path(path)
    if not path.is_file():
        raise UserError(f"{path}: no such file; {kind} of your own is the path of a Python file")
    # Under one name wherever it is imported, so that what it makes can be sent from process to process.
    name = f"turncredit_user_{path.stem}_{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"
    if name in sys.modules:
        return sys.modules[name]
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pydantic look their own module up
    try:
        spec.loader.exec_module(module)
    except Exception as error:  # anything may go wrong in a file of the user's; all of it is theirs to mend
        del sys.modules[name]
        raise UserError(f"{path}: cannot be imported: {_short(error)}") from error
    return module


@cache
def _installed(group: str) -> dict[str, EntryPoint]:
    return {point.name: point for point in entry_points(group=group)}


def _short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"
