"""The normal distribution and Student's t, against scipy's."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm
from scipy.stats import t as student

from turncredit.stats.distributions import normal_cdf, normal_quantile, student_cdf, student_quantile

DEGREES = st.one_of(st.integers(1, 2000).map(float), st.floats(0.5, 1e5))
PROBABILITIES = st.floats(1e-6, 1 - 1e-6)


@given(DEGREES, st.floats(-40, 40))
def test_students_cdf_is_scipys(df: float, x: float) -> None:
    assert student_cdf(df, x) == pytest.approx(student.cdf(x, df), rel=1e-9, abs=1e-15)


@given(DEGREES, PROBABILITIES)
def test_students_quantile_is_scipys_and_has_the_probability_that_was_asked_for(df: float, p: float) -> None:
    found = student_quantile(df, p)
    assert found == pytest.approx(student.ppf(p, df), rel=1e-8, abs=1e-9)
    assert student_cdf(df, found) == pytest.approx(p, rel=1e-12)


@given(PROBABILITIES, st.floats(-8, 8))
def test_the_normal_distribution_is_scipys(p: float, x: float) -> None:
    assert normal_quantile(p) == pytest.approx(norm.ppf(p), rel=1e-12, abs=1e-14)
    assert normal_cdf(x) == pytest.approx(norm.cdf(x), rel=1e-12)


def test_student_with_endless_degrees_of_freedom_is_normal_and_what_is_no_number_stays_none() -> None:
    assert student_quantile(math.inf, 0.975) == pytest.approx(1.959963984540054, rel=1e-12)
    assert student_cdf(math.inf, 1.96) == normal_cdf(1.96)
    assert math.isnan(student_quantile(math.nan, 0.975))
    assert math.isnan(student_cdf(3, math.nan))


@pytest.mark.parametrize(("df", "known"), [(1, 12.706204736), (2, 4.302652730), (9, 2.262157163), (120, 1.979930405)])
def test_the_quantiles_of_printed_tables_come_out(df: int, known: float) -> None:
    assert student_quantile(df, 0.975) == pytest.approx(known, rel=1e-9)
