"""Credit assignment: pure functions from a table of turns to an advantage (and its components) for each turn.

`METHODS` are the built-in ones; `resolve` knows those of installed packages and of files as well.
"""

from turncredit.credit.catalogue import builtin
from turncredit.credit.compose import Method, Part, compute
from turncredit.credit.resolving import resolve

METHODS = builtin().methods

__all__ = ["METHODS", "Method", "Part", "compute", "resolve"]
