"""Every method against its row-by-row form, which is written from the equations in plain Python."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from benchmarks.credit import reference, synthetic
from benchmarks.credit import run as benchmark
from turncredit.credit import METHODS, compute, resolve


@pytest.mark.parametrize("name", sorted(reference.METHODS))
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_method_agrees_with_its_row_by_row_form(name: str, seed: int) -> None:
    made = synthetic.rows(groups=5, size=4, turns=12, seed=seed)
    shuffled = [made[place] for place in np.random.default_rng(seed).permutation(len(made))]
    table, side = synthetic.tables(shuffled)
    got = compute(table, METHODS[name], side)["advantage"].to_numpy()
    np.testing.assert_allclose(got, reference.METHODS[name](shuffled), rtol=1e-9, atol=1e-9)


def test_carls_row_by_row_form_takes_rollouts_of_any_length() -> None:
    """As benchmarks/credit/run.py has them: as a recursion over turns it ended there at Python's limit."""
    made = synthetic.rows(groups=1, size=3, turns=400, equal_length=True)
    table, side = synthetic.tables(made)
    got = compute(table, METHODS["carl"], side)["advantage"].to_numpy()
    np.testing.assert_allclose(got, reference.carl(made), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", sorted(reference.METHODS))
def test_the_benchmark_gives_a_row_by_row_form_all_columns_that_it_reads(name: str) -> None:
    made = synthetic.rows(groups=2, size=4, turns=6, equal_length=True)
    form = reference.METHODS[name]
    read = pa.Table.from_pylist(made).select(benchmark.columns_read(form, made))
    assert form(read.to_pylist()) == form(made)


def test_the_benchmarks_larger_tables_are_tables_of_turns_for_every_method() -> None:
    table, side = benchmark.repeated(20_000)
    assert table.num_rows == 20_000
    credits = compute(table, METHODS["carl"], side)
    assert len(set(credits["rollout_id"].to_pylist())) == 400


def test_every_named_method_has_a_row_by_row_form_or_a_test_file_of_its_name() -> None:
    tested = {path.stem.removeprefix("test_") for path in Path(__file__).parent.glob("test_*.py")}
    assert set(METHODS) <= set(reference.METHODS) | tested
    assert set(reference.METHODS) <= set(METHODS)


@pytest.mark.parametrize("norm", ["mean", "mean_std"])
@pytest.mark.parametrize("weighting", ["rollout", "row"])
@pytest.mark.parametrize("singleton", ["zero", "raw"])
def test_gigpo_with_the_invalid_penalty_agrees_under_all_conventions(norm: str, weighting: str, singleton: str) -> None:
    made = synthetic.rows(groups=4, size=3, turns=9, seed=4) + [
        {**row, "group_id": "alone", "rollout_id": "alone-0"} for row in synthetic.rows(1, 1, 3, 5, equal_length=True)
    ]
    table, side = synthetic.tables(made)
    params = {"shapers": ["invalid_penalty"], "norm": norm, "weighting": weighting, "singleton": singleton}
    got = compute(table, resolve({"base": "gigpo", "params": params}), side)["advantage"].to_numpy()
    bonus = reference.invalid_bonus(made)
    want = reference.gigpo(
        made, norm=norm, weighting=weighting, singleton=singleton, step_bonus=bonus, score_bonus=bonus
    )
    np.testing.assert_allclose(got, want, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize(
    ("name", "params", "form"),
    [
        ("hcapo", {"turn_norm": "position"}, {"position": True}),
        ("hcapo", {"turn_norm": "position", "smoothing": 0.3}, {"position": True, "smoothing": 0.3}),
        ("istar_code", {"baseline": "turns"}, {"first_turn": False}),
        ("igpo", {"gamma": 0.7}, {"gamma": 0.7}),
        ("trace", {"gamma": 0.7}, {"gamma": 0.7}),
    ],
)
def test_other_readings_of_a_paper_agree_with_their_row_by_row_forms(name: str, params: dict, form: dict, seed: int):
    made = synthetic.rows(groups=5, size=4, turns=12, seed=seed)
    table, side = synthetic.tables(made)
    got = compute(table, resolve({"base": name, "params": params}), side)["advantage"].to_numpy()
    np.testing.assert_allclose(got, reference.METHODS[name](made, **form), rtol=1e-9, atol=1e-9)
