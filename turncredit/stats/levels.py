"""The level of all intervals, and half the width of one around a mean with a standard error."""

from __future__ import annotations

from typing import overload

import numpy as np
from scipy.special import ndtri, stdtrit

LEVEL = 0.95


@overload
def normal_half(error: float, level: float = LEVEL) -> float: ...
@overload
def normal_half(error: np.ndarray, level: float = LEVEL) -> np.ndarray: ...
def normal_half(error: float | np.ndarray, level: float = LEVEL) -> float | np.ndarray:
    """Half the interval around a mean whose standard error is known: 1.96 errors at the level .95."""
    return float(ndtri(0.5 + level / 2)) * error


def student_half(error: float, freedom: float, level: float = LEVEL) -> float:
    """Half the interval where the standard error is itself estimated, with so many degrees of freedom (Student's t)."""
    return float(stdtrit(freedom, 0.5 + level / 2)) * error
