"""Every method of `turncredit methods` in the real pipeline: one round of each, in one run of Snakemake."""

from __future__ import annotations

import numpy as np
import pytest

from tests.pipeline.test_dag import TINY
from turncredit import tables
from turncredit.credit import METHODS

#: they read the subgoals that their own agent writes, and the agents here write none; tests/credit/test_hipif.py runs
#: them on tables that have the columns
WITHOUT_AN_AGENT = {"hipif", "hipif_gigpo"}
IN_THE_PIPELINE = [name for name in METHODS if name not in WITHOUT_AN_AGENT]
SHARED = "results/tiny/sft/rollouts/t4k4T1.0/seed0"
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(pipeline, tmp_path_factory):
    """The first round of every method, from the rollouts to the update and what must hold of it."""
    folder = pipeline.link(tmp_path_factory.mktemp("methods"))
    wanted = [f"results/tiny/runs/{method}/seed0/invariants.parquet" for method in IN_THE_PIPELINE]
    settings = ("rounds=1", f"methods=[{','.join(IN_THE_PIPELINE)}]", "audit={rounds: []}")
    run = pipeline.run(folder, *TINY, "--cores", "2", "--config", *settings, "--", "results/tiny/config.json", *wanted)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.parametrize("method", IN_THE_PIPELINE)
def test_a_method_credits_a_round_and_the_policy_learns_from_it(finished, method):
    at = finished / "results" / "tiny" / "runs" / method / "seed0" / "round01"
    turns = tables.read(finished / SHARED / "turns.parquet", "turns")
    credits = tables.read(at / "credits.parquet", "credits")
    assert all(credits.column(key).equals(turns.column(key)) for key in tables.KEYS)
    advantage = credits.column("advantage").to_numpy()
    assert np.isfinite(advantage).all()
    assert advantage.any()
    steps = tables.read(at / "updates.parquet", "updates")
    assert steps.num_rows > 0
    assert np.isfinite(steps.column("loss").to_numpy()).all()
    assert (at / "policy" / "model.safetensors").exists()
    found = tables.read(at.parent / "invariants.parquet", "invariants").to_pylist()
    assert [row["detail"] for row in found if not row["holds"]] == []
    assert {"reproduced", "same_keys", "logprobs", "made_from"} <= {row["name"] for row in found}


def test_the_command_finds_the_invariants_of_all_of_them_to_hold(pipeline, finished):
    run = pipeline.python(finished, "-c", "from turncredit.cli.main import main; main()", "check", "results/tiny")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"in {len(IN_THE_PIPELINE)} rounds: all hold" in run.stdout
