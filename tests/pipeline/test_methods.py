"""Every method of `turncredit methods` in the real pipeline: one round of each, in one run of Snakemake."""

from __future__ import annotations

import numpy as np
import pytest

from tests import tiny
from tests.pipeline.test_dag import TINY
from turncredit.config.layout import forks_name
from turncredit.credit import METHODS
from turncredit.data import tables
from turncredit.data.turns import with_forks

#: They read what the household or the transcript agent does not have: subgoals of the agent hipif
#: (tests/agents/test_hipif_stages.py runs it), gold answers of Search-QA (tests/training/test_gold_answers.py).
ELSEWHERE = {"hipif", "hipif_gigpo", "hiper", "igpo", "trace", "delta_belief", "lotapo"}
IN_THE_PIPELINE = [name for name in METHODS if name not in ELSEWHERE]
pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def finished(pipeline, started, tmp_path_factory):
    """The first round of every method, from the rollouts to the update and what must hold of it."""
    folder = started(tmp_path_factory.mktemp("methods"))
    wanted = [tiny.path("invariants", method) for method in IN_THE_PIPELINE]
    # A job for each round: a third faster. Rules of single stages run in test_learned.py and test_end_to_end.py.
    settings = ("rounds=1", f"methods=[{','.join(IN_THE_PIPELINE)}]", "audit={rounds: []}", "granularity=round")
    run = pipeline.run(folder, *TINY, "--cores", "2", "--config", *settings, "--", tiny.path("config"), *wanted)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.parametrize("method", IN_THE_PIPELINE)
def test_a_method_credits_a_round_and_the_policy_learns_from_it(finished, method):
    turns, credits, steps, invariants = (
        tables.read(finished / tiny.path(name, method), name) for name in ("turns", "credits", "updates", "invariants")
    )
    if METHODS[method].forks:
        forks = tiny.path("forks", method, forks=forks_name(METHODS[method].forks))
        turns = with_forks(turns, tables.read(finished / forks, "forks"))
    assert all(credits.column(key).equals(turns.column(key)) for key in tables.KEYS)
    advantage = credits.column("advantage").to_numpy()
    assert np.isfinite(advantage).all()
    assert advantage.any()
    assert steps.num_rows > 0
    assert np.isfinite(steps.column("loss").to_numpy()).all()
    assert (finished / tiny.path("policy", method) / "model.safetensors").exists()
    found = invariants.to_pylist()
    assert [row["detail"] for row in found if not row["holds"]] == []
    assert {"reproduced", "same_keys", "logprobs", "made_from"} <= {row["name"] for row in found}


def test_the_command_finds_the_invariants_of_all_of_them_to_hold(pipeline, finished):
    run = pipeline.python(finished, "-c", "from turncredit.cli.main import main; main()", "check", "results/tiny")
    assert run.returncode == 0, run.stdout + run.stderr
    assert f"in {len(IN_THE_PIPELINE)} rounds of all runs: all hold" in run.stdout
