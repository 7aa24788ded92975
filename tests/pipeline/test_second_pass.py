"""Methods that read turns a second time in the graph: what is shared, what is made; and once for real."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests import tiny
from tests.pipeline.test_dag import TINY
from turncredit.data import tables

METHODS = ("progress_advantage", "hcapo", "istar")
LISTED = f"methods=[{', '.join(METHODS)}]"


@pytest.fixture(scope="module")
def read_again(pipeline, started, tmp_path_factory) -> Path:
    """Two rounds of each method with their invariants; istar's and progress_advantage's credit on hcapo's round 2."""
    folder = started(tmp_path_factory.mktemp("second"))
    whole = [tiny.LAYOUT.path("invariants", method=method, seed=0) for method in METHODS]
    others = [tiny.LAYOUT.path("credits", policy="hcapo", seed=0, round=2, method=name) for name in METHODS]
    run = pipeline.run(folder, "--cores", "2", *TINY, "--config", LISTED, "--", *whole, *others)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


@pytest.mark.parametrize("method", METHODS)
def test_its_rounds_run_and_every_invariant_holds(read_again, method):
    found = tables.read(read_again / tiny.LAYOUT.path("invariants", method=method, seed=0), "invariants").to_pylist()
    assert [row for row in found if not row["holds"]] == []
    assert {row["round"] for row in found if row["name"] == "reproduced"} == {1, 2}
    assert {row["round"] for row in found if row["name"] == "same_keys"} == {1, 2}


def test_from_round_2_on_the_second_pass_has_something_to_say(read_again):
    readers = {"progress_advantage": "sft", "hcapo": "hindsight", "istar": "implicit-istar"}
    for method, reader in readers.items():
        measured = tiny.measured(read_again, "logprobs", method, round=2, scorer=reader)
        assert measured["log_ratio_rms"] > 1e-4, method
        assert measured["tokens"] > 0
    assert tiny.measured(read_again, "implicit_model", "istar", round=2)["pairs"] > 0


def test_a_methods_credit_on_another_runs_turns_has_a_model_of_that_runs_rollouts(read_again):
    inputs = tiny.job_inputs(read_again, "implicit_model", "istar", round=2, policy="hcapo")
    assert inputs["turns"] == tiny.path("turns", "hcapo", round=2)
    credits = [
        tables.read(read_again / tiny.LAYOUT.path("credits", policy="hcapo", seed=0, round=2, method=name), "credits")
        for name in METHODS
    ]
    advantages = [table.column("advantage").to_numpy() for table in credits]
    assert all(np.isfinite(one).all() for one in advantages)
    assert len({one.tobytes() for one in advantages}) == len(METHODS)
