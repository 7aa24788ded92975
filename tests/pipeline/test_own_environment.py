"""An environment of one's own through the whole pipeline: tasks, demonstrations, training, credit, audit, report."""

from __future__ import annotations

import shutil

import pytest

from tests.pipeline.conftest import ROOT
from tests.pipeline.test_dag import counts
from turncredit.data import tables

RUN = ("--configfile", "examples/counting.yaml", "--cores", "1")
pytestmark = pytest.mark.slow


def test_a_file_with_an_environment_runs_through_the_whole_pipeline(snakemake, workdir):
    shutil.copytree(ROOT / "examples", workdir / "examples")
    mine, beside = workdir / "examples" / "counting_env.py", workdir / "examples" / "beside_counting.py"
    mine.write_text(f"{mine.read_text()}\nimport beside_counting\n")
    beside.touch()
    run = snakemake(*RUN)
    assert run.returncode == 0, run.stdout + run.stderr
    results = workdir / "results" / "counting"
    assert (results / "report" / "index.html").exists()
    turns = tables.read(next(results.glob("rollouts/*/seed0/round01/turns.parquet")), "turns").to_pandas()
    assert set(turns.env) == {"counting"}
    words = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine"]
    assert (turns.failed == ~turns.action.isin(words)).all()
    assert not turns[turns.failed].next_observation.str.startswith("you are at").any()
    measures = tables.read(next(results.glob("rollouts/*/seed0/round01/measures.parquet")), "measures").to_pandas()
    assert (measures.rollout_id == turns.rollout_id).all()
    assert measures.progress.notna().all()
    assert measures.distance.isna().all(), "counting has no distance, and nothing needs one"
    branches = tables.read(next(results.glob("rollouts/*/seed0/round01/branches.parquet")), "branches")
    assert all(branches.column("replayed").to_pylist())
    assert branches.column("distance_change").null_count == branches.num_rows
    refused = snakemake(*RUN, "-n", "--config", "methods=[oracle_progress]")
    assert refused.returncode != 0
    assert (
        "config: methods: 'oracle_progress' needs the environment's distance, which 'counting' does not have"
        in refused.stderr
    )
    assert counts(snakemake(*RUN, "-n")) == {}
    beside.write_text("ANYTHING = 1\n")
    assert {"tasks", "demos", "rollout", "eval"} <= counts(snakemake(*RUN, "-n")).keys()
    mine.write_text(mine.read_text().replace("won = self.at == self.last", "won = self.at == self.lost"))
    broken = snakemake(*RUN)
    assert broken.returncode != 0
    line = r"environment 'counting': step() raised AttributeError: 'Counting' object has no attribute 'lost' (task '"
    assert line in broken.stderr + broken.stdout
