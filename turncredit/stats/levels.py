"""The level of all intervals, half the width of one around a mean with a standard error, and p for many comparisons."""

from __future__ import annotations

from collections.abc import Mapping
from math import isnan

from turncredit.stats.distributions import normal_quantile, student_quantile

LEVEL = 0.95


def normal_half(error: float, level: float = LEVEL) -> float:
    """Half the interval around a mean whose standard error is known: 1.96 errors at the level .95."""
    return normal_quantile(0.5 + level / 2) * error


def student_half(error: float, df: float, level: float = LEVEL) -> float:
    """Half the interval where the standard error is itself estimated, with `df` degrees of freedom (Student's t)."""
    return student_quantile(df, 0.5 + level / 2) * error


def holm(p_values: Mapping[str, float]) -> dict[str, float]:
    """Holm's (1979) step-down adjustment of p-values: one comparison per entry; NaN stays NaN, and counts as one."""
    finite = sorted((p, name) for name, p in p_values.items() if not isnan(p))
    out = dict(p_values)
    largest = 0.0
    for rank, (p, name) in enumerate(finite):
        largest = max(largest, min(1.0, (len(p_values) - rank) * p))
        out[name] = largest
    return out
