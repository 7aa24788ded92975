"""Credit assignment: pure functions from a table of turns to an advantage (and its components) for each turn."""

from turncredit.credit.compose import Method, Part, compute
from turncredit.credit.methods import METHODS
from turncredit.credit.resolving import resolve

__all__ = ["METHODS", "Method", "Part", "compute", "resolve"]
