"""The level of all intervals, and half the width of one around a mean with a standard error."""

from __future__ import annotations

from turncredit.stats.distributions import normal_quantile, student_quantile

LEVEL = 0.95


def normal_half(error: float, level: float = LEVEL) -> float:
    """Half the interval around a mean whose standard error is known: 1.96 errors at the level .95."""
    return normal_quantile(0.5 + level / 2) * error


def student_half(error: float, df: float, level: float = LEVEL) -> float:
    """Half the interval where the standard error is itself estimated, with `df` degrees of freedom (Student's t)."""
    return student_quantile(df, 0.5 + level / 2) * error
