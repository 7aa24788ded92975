"""Credit assignment: pure functions from a table of turns to an advantage (and its components) for each turn.

`METHODS` are the built-in ones; `resolve` knows those of installed packages and of files as well. The package can be
called: `from turncredit import credit; credit(turns, method="scpo")` (`turncredit.credit.library`).
"""

import sys
from types import ModuleType
from typing import Any

import pyarrow as pa

from turncredit.credit import library
from turncredit.credit.catalogue import builtin
from turncredit.credit.parts.compose import Method, Part, compute
from turncredit.credit.resolving import resolve

METHODS = builtin().methods

__all__ = ["METHODS", "Method", "Part", "compute", "resolve"]


class _Package(ModuleType):
    """This package as a callable: `from turncredit import credit; credit(turns)`."""

    def __call__(self, turns: Any, method: Any, **options: Any) -> pa.Table:
        return library.credit(turns, method, **options)


_Package.__call__.__doc__ = library.credit.__doc__
_Package.__call__.__wrapped__ = library.credit  # type: ignore[attr-defined]
sys.modules[__name__].__class__ = _Package
