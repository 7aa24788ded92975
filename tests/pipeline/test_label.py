"""Labels in the graph: who gets them, what is shared, what makes them anew. Dry runs only."""

from __future__ import annotations

from tests import tiny
from tests.pipeline.test_dag import TINY, counts


def test_methods_that_ask_the_same_share_the_labels_of_shared_rollouts(snakemake):
    methods = "methods=[flat_grpo,triage,triage_no_regression,triage_scalar,has_judge]"
    jobs = counts(snakemake("-n", *TINY, "--config", methods, "seeds=[0,1]", "rounds=2"))
    # In round 1 role, progress and score of two seeds' rollouts; in round 2 each run's own, but flat_grpo reads none.
    assert jobs["label"] == 3 * 2 + 4 * 2


def test_without_a_method_that_reads_them_there_are_no_labels(snakemake):
    assert "label" not in counts(snakemake("-n", *TINY))


def test_labels_are_named_after_the_judge_and_can_be_asked_for_by_name(snakemake):
    judge = "judge={kind: llm, model: org/Some-Model_7B}"
    name = tiny.path("labels", judge="some-model-7b-think", ask="role")
    assert counts(snakemake("-n", *TINY, "--config", judge, "methods=[triage]", "--", name))["label"] == 1


def test_a_mistake_in_the_judge_is_one_line_before_any_job(snakemake, workdir):
    run = snakemake("--cores", "1", *TINY, "--config", "methods=[triage]", "judge={window: 6}")
    assert run.returncode == 2
    assert "judge.window: input should be less than or equal to 5" in run.stderr
    assert not (workdir / "results").exists()
