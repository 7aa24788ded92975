"""Modules that moved in version 0.4 can still be imported by their old names, with a warning, until version 0.5."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import CodeType, ModuleType
from typing import Any

#: old name -> new name, of modules that the documentation of version 0.3 named
MOVED = {
    "turncredit.tables": "turncredit.data.tables",
    "turncredit.turns": "turncredit.data.turns",
    "turncredit.words": "turncredit.data.env_wording",
    "turncredit.credit.compose": "turncredit.credit.parts.compose",
    "turncredit.integrations": "turncredit.bridges",
    "turncredit.importers": "turncredit.bridges.importers",
}


def new_name(name: str) -> str | None:
    """The new name of a module; None if it has not moved."""
    for old, new in MOVED.items():
        if name == old or name.startswith(f"{old}."):
            return new + name.removeprefix(old)
    return None


class _Moved(MetaPathFinder, Loader):
    """Finds a module by its old name, and loads the one with the new name."""

    def find_spec(self, name: str, _path: Sequence[str] | None, _target: ModuleType | None = None) -> ModuleSpec | None:
        new = new_name(name)
        return None if new is None else ModuleSpec(name, self, origin=new)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        warnings.warn(f"{spec.name} is now {spec.origin}", DeprecationWarning, stacklevel=2)
        module = import_module(str(spec.origin))
        spec.loader_state = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        spec: Any = module.__spec__
        module.__spec__ = spec.loader_state

    def get_code(self, name: str) -> CodeType:
        """The module's code, for `python -m OLD_NAME`."""
        found: Any = find_spec(str(new_name(name)))
        code: CodeType = found.loader.get_code(found.name)
        return code


def install() -> None:
    """Let the import system know the old names."""
    if not any(isinstance(finder, _Moved) for finder in sys.meta_path):
        sys.meta_path.insert(0, _Moved())
