"""The normal distribution and Student's t, in the standard library: scipy would be a third of a small installation."""

from __future__ import annotations

import math
from functools import lru_cache
from statistics import NormalDist

#: The quantile of the standard normal distribution at a probability in (0, 1).
normal_quantile = NormalDist().inv_cdf

#: Steps after which the continued fraction or Newton's method is given up; both need a few dozen.
MOST_STEPS = 10_000
#: A difference that is rounding alone.
PRECISION = 1e-16


def normal_cdf(x: float) -> float:
    """The probability of a standard normal number up to x."""
    return 0.5 * math.erfc(-x / math.sqrt(2))


def student_cdf(df: float, t: float) -> float:
    """The probability of a number up to t, of Student's t with `df` > 0 degrees of freedom; NaN if one of them is NaN.

    Half the regularised incomplete beta function I_x(df / 2, 1 / 2) at x = df / (df + t^2) is the tail beyond |t|
    (DLMF 8.17).
    """
    if math.isnan(df) or math.isnan(t):
        return math.nan
    if math.isinf(df):
        return normal_cdf(t)
    tail = 0.5 if t == 0 else 0.5 * _incomplete_beta(df / 2, 0.5, df / (df + t * t), t * t / (df + t * t))
    return tail if t < 0 else 1 - tail


@lru_cache(maxsize=1024)
def student_quantile(df: float, p: float) -> float:
    """The t up to which Student's t with `df` > 0 degrees of freedom has the probability p in (0, 1); NaN for a NaN.

    Newton's method from 0, on the side where the distribution is concave, so that each step stays short of the root.
    """
    if math.isnan(df) or math.isnan(p):
        return math.nan
    if math.isinf(df):
        return normal_quantile(p)
    tail, t = min(p, 1 - p), 0.0
    log_scale = -0.5 * math.log(df) - _log_beta(df / 2, 0.5)
    for _ in range(MOST_STEPS):
        density = math.exp(log_scale - (df + 1) / 2 * math.log1p(t * t / df))
        step = (student_cdf(df, -t) - tail) / density
        t += step
        if step <= 2 * PRECISION * t:
            break
    return -t if p < 0.5 else t


def _incomplete_beta(a: float, b: float, x: float, rest: float) -> float:
    """I_x(a, b), where `rest` is 1 - x, by its continued fraction (DLMF 8.17.22), on the side where that converges."""
    if x <= 0 or rest <= 0:
        return 0.0 if x <= 0 else 1.0
    if x > (a + 1) / (a + b + 2):
        return 1 - _incomplete_beta(b, a, rest, x)
    log_x, log_rest = (math.log(one) if one < other else math.log1p(-other) for one, other in ((x, rest), (rest, x)))
    return math.exp(a * log_x + b * log_rest - _log_beta(a, b)) / (a * _fraction(a, b, x))


def _fraction(a: float, b: float, x: float) -> float:
    """The continued fraction 1 + d_1 / (1 + d_2 / (1 + ...)), evaluated from the front (Lentz 1976)."""
    value = numerator = 1.0
    denominator = 0.0
    for step in range(1, MOST_STEPS):
        m = step // 2
        if step % 2:
            d = -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))
        else:
            d = m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
        denominator = 1 / (1 + d * denominator)
        numerator = 1 + d / numerator
        value *= numerator * denominator
        if abs(numerator * denominator - 1) < 4 * PRECISION:
            break
    return value


def _log_beta(a: float, b: float) -> float:
    """log B(a, b), where one of both is 1/2; the quotient of large gamma functions by its series (DLMF 5.11.13)."""
    large, half = max(a, b), min(a, b)
    if large < 100:
        return math.lgamma(a) + math.lgamma(b) - math.lgamma(a + b)
    inverse = 1 / large
    quotient = 1 - inverse / 8 * (1 - inverse / 16 * (1 + 5 * inverse / 8 * (1 - 21 * inverse / 160)))
    return math.lgamma(half) - 0.5 * math.log(large) - math.log(quotient)
