"""Reflexion in the pipeline: the prompting baselines as an evaluation, and methods that train with it."""

from __future__ import annotations

import pytest

from tests import tiny
from turncredit.data import tables
from turncredit.data.transcript_markers import FAILED
from turncredit.views.sql import answer

PROMPTING = ("--configfile", tiny.CONFIG, "config/prompting.yaml")
TRAINING = (
    "define={two: {base: vineppo, continuations: {per_state: 2}}}",
    "methods=[gigpo,two]",
    "rollout={tasks: 2, group_size: 3}",
)


@pytest.mark.long
@pytest.mark.slow
def test_lessons_and_later_trials_are_evaluated_and_trained_on(snakemake, workdir):
    small = ("--config", "experiment=tiny", "eval={games: 6}", "tracking={enabled: false}")
    run = snakemake("--cores", "1", *PROMPTING, *small)
    assert run.returncode == 0, run.stdout + run.stderr
    assert (workdir / tiny.path("report")).exists()
    evals = tables.read(workdir / tiny.path("evals", "sft"), "evals").to_pandas()
    assert evals.trials.max() == 3
    assert (evals.success | (evals.trials == 3)).all()
    assert not list(workdir.rglob("turns.parquet")), "nothing is sampled to train on"
    # The query of docs/agents.md: no other experiment has the column.
    query = (
        "SELECT mode, avg((success AND trials <= 1)::int) AS react, avg(success::int) AS reflexion FROM evals "
        "GROUP BY mode ORDER BY mode"
    )
    assert answer(query, workdir / "results" / "tiny").to_pylist() == [
        {"mode": mode, "react": (played.success & (played.trials == 1)).mean(), "reflexion": played.success.mean()}
        for mode, played in evals.groupby("mode")
    ]
    assert set(evals["mode"]) == {"sampled", "greedy"}

    run = snakemake("--cores", "1", *PROMPTING, *small, *TRAINING)
    assert run.returncode == 0, run.stdout + run.stderr
    turns = tables.read(workdir / tiny.path("turns", "gigpo", policy="sft-t2k3T1.0"), "turns").to_pandas()
    lessons = turns[turns.lesson_cut.notna()]
    assert len(lessons) > 0
    assert lessons.observation.str.endswith(FAILED).all()
    assert (lessons.response_ids.map(len) > 0).all()
    for method in ("gigpo", "two"):
        invariants = tables.read(workdir / tiny.path("invariants", method)).to_pylist()
        assert all(row["holds"] for row in invariants), invariants
        assert {"success", "reproduced", "logprobs"} <= {row["name"] for row in invariants}
        credits = tables.read(workdir / tiny.path("credits", method, policy="sft-t2k3T1.0"), "credits")
        assert credits.num_rows == len(turns), "a lesson has an advantage like every turn"
