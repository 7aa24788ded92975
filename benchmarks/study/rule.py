"""How a gain depends on a property of the setting: a meta-regression over settings, each with its standard error.

The gain of setting k is X_k b + u_k + e_k: e_k is its own error, whose variance is known, and u_k what else sets
settings apart, with the variance tau^2. tau^2 is Paule and Mandel's (1982): the residuals are then as large as they
should be. The interval is Knapp and Hartung's (2003): Student's t with settings less coefficients as degrees of
freedom, so settings are the units however many seeds and games each has. As in Roever, Knapp and Friede (2015) it is
never narrower than the settings' own errors make it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from turncredit.stats.distributions import student_cdf
from turncredit.stats.levels import student_half

#: With fewer settings beyond the coefficients than this, no rule is fitted.
FEWEST_BEYOND = 4
#: Halvings of the interval that tau^2 lies in.
_HALVINGS = 100


class Rule(NamedTuple):
    """A slope with its 95% interval and two-sided p.

    intercept, slope   gain = intercept + slope * x; the intercept is NaN where each world has its own
    covariance         of (intercept, slope); None where each world has its own intercept
    tau                standard deviation of what sets settings apart beside x and their own errors
    df                 degrees of freedom
    """

    slope: float
    low: float
    high: float
    p: float
    intercept: float
    covariance: np.ndarray | None
    tau: float
    settings: int
    df: int

    def band(self, x_N: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(mean, low, high) of the fitted mean gain at each x. Raises ValueError where each world has an intercept."""
        if self.covariance is None:
            raise ValueError("the rule has an intercept for each world: it has no band")
        design_N2 = np.stack([np.ones_like(x_N), x_N], axis=1)
        mean_N = design_N2 @ np.array([self.intercept, self.slope])
        error_N = np.sqrt(np.einsum("np,pq,nq->n", design_N2, self.covariance, design_N2))
        half_N = error_N * student_half(1.0, self.df)
        return mean_N, mean_N - half_N, mean_N + half_N


def fit(x_K: np.ndarray, gain_K: np.ndarray, error_K: np.ndarray, world_K: Sequence[str] | None = None) -> Rule | None:
    """The rule over K settings; None with too few of them, or where x does not vary.

    world_K   gives each world an intercept of its own: the slope then compares settings of one world only
    """
    if world_K is None:
        intercepts_KW = np.ones((len(x_K), 1))
    else:
        intercepts_KW = (np.array(world_K)[:, None] == np.array(sorted(set(world_K)))).astype(float)
    design_KP = np.column_stack([intercepts_KW, x_K])
    df = len(x_K) - design_KP.shape[1]
    if df < FEWEST_BEYOND or np.linalg.matrix_rank(design_KP) < design_KP.shape[1]:
        return None
    tau_squared = _between(design_KP, gain_K, error_K, df)
    b_P, covariance_PP, lack = _weighted(design_KP, gain_K, error_K**2 + tau_squared)
    covariance_PP = covariance_PP * max(1.0, lack / df)
    error = float(np.sqrt(covariance_PP[-1, -1]))
    half = student_half(error, df)
    slope = float(b_P[-1])
    alone = world_K is None
    return Rule(
        slope,
        slope - half,
        slope + half,
        2 * student_cdf(df, -abs(slope) / error),
        float(b_P[0]) if alone else float("nan"),
        covariance_PP if alone else None,
        float(np.sqrt(tau_squared)),
        len(x_K),
        df,
    )


def mean(gain_K: np.ndarray, error_K: np.ndarray) -> tuple[float, float, float] | None:
    """(mean over settings, low, high), weighted and with an interval as `fit`'s; None with fewer than two settings."""
    df = len(gain_K) - 1
    if df < 1:
        return None
    ones_K1 = np.ones((len(gain_K), 1))
    b_1, covariance_11, lack = _weighted(ones_K1, gain_K, error_K**2 + _between(ones_K1, gain_K, error_K, df))
    half = student_half(float(np.sqrt(covariance_11[0, 0] * max(1.0, lack / df))), df)
    return float(b_1[0]), float(b_1[0]) - half, float(b_1[0]) + half


def reliability(x_K: np.ndarray, error_K: np.ndarray) -> float:
    """The share of x's variance between settings that is not error of x: a slope is too small by about this factor."""
    variance = float(np.var(x_K, ddof=1)) if len(x_K) > 1 else 0.0
    return max(0.0, 1 - float(np.mean(error_K**2)) / variance) if variance > 0 else float("nan")


def _between(design_KP: np.ndarray, y_K: np.ndarray, error_K: np.ndarray, df: int) -> float:
    """Paule and Mandel's tau^2: where the weighted squared residuals sum to their degrees of freedom; 0 if below."""

    def excess(tau_squared: float) -> float:
        return _weighted(design_KP, y_K, error_K**2 + tau_squared)[2] - df

    low, high = 0.0, float(np.var(y_K)) + float(np.max(error_K**2))
    if excess(low) <= 0:
        return 0.0
    while excess(high) > 0:
        high *= 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        low, high = (middle, high) if excess(middle) > 0 else (low, middle)
    return high


def _weighted(design_KP: np.ndarray, y_K: np.ndarray, variance_K: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """(coefficients, their covariance, weighted sum of squared residuals) of least squares with these variances."""
    weighted_KP = design_KP / variance_K[:, None]
    covariance_PP = np.linalg.inv(design_KP.T @ weighted_KP)
    b_P = covariance_PP @ (weighted_KP.T @ y_K)
    residual_K = y_K - design_KP @ b_P
    return b_P, covariance_PP, float((residual_K**2 / variance_K).sum())
