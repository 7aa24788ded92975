"""Labels in the graph: who gets them, what is shared, what makes them anew. Dry runs only."""

from __future__ import annotations

from tests import tiny
from tests.pipeline.test_dag import TINY, counts


def test_labels_are_named_after_the_judge_and_can_be_asked_for_by_name(snakemake):
    judge = "judge={kind: llm, model: org/Some-Model_7B}"
    name = tiny.path("labels", judge="some-model-7b-think", ask="role")
    assert counts(snakemake("-n", *TINY, "--config", judge, "methods=[triage]", "--", name))["label"] == 1


def test_a_mistake_in_the_judge_is_one_line_before_any_job(snakemake, workdir):
    run = snakemake("--cores", "1", *TINY, "--config", "methods=[triage]", "judge={window: 6}")
    assert run.returncode == 2
    assert "judge.window: input should be less than or equal to 5" in run.stderr
    assert not (workdir / "results").exists()
