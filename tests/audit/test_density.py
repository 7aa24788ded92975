"""The share of turns that carry the true advantage, from noisy estimates of it (benchmarks/density.py)."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import density as bench
from turncredit.audit.score import rollout_set


def estimates(truth_N: np.ndarray, se: float, rng: np.random.Generator) -> list[np.ndarray]:
    """Two halves' estimates of these advantages, whose mean has the standard error `se`."""
    return [truth_N + rng.normal(0, se * np.sqrt(2), len(truth_N)) for _ in range(2)]


@pytest.mark.parametrize("rho", [0.05, 0.2, 1.0])
def test_the_density_is_the_share_of_turns_that_have_an_advantage_whatever_the_noise(rho):
    rng = np.random.default_rng(1)
    truth_N = np.where(rng.random(200_000) < rho, rng.choice([-0.3, 0.3], 200_000), 0.0)
    group_N = np.arange(200_000) // 100
    for se in (0.02, 0.08):
        found = bench.density(*estimates(truth_N, se, rng), np.full(200_000, se), group_N)
        assert found.rho == pytest.approx(rho, rel=0.1)
        assert found.low < rho < found.high
        assert found.size == pytest.approx(0.3 * np.sqrt(rho), rel=0.05)


def test_without_any_advantage_the_density_is_not_known():
    zero_N = np.zeros(10)
    assert np.isnan(bench.density(zero_N, zero_N, zero_N, np.arange(10)).rho)


def test_the_table_has_a_row_for_each_part_of_the_set(capsys):
    bench.main()
    rows = capsys.readouterr().out.splitlines()[2:]
    assert [row.split()[1] for row in rows] == [part.name for part in rollout_set.built_in().parts]
