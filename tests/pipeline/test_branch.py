"""Branching in the pipeline: what it needs, what makes it run again, and one real run."""

from __future__ import annotations

from tests import tiny
from tests.pipeline.test_dag import TINY, counts
from turncredit.data import tables

BRANCHES = tiny.path("branches", "flat_grpo", round=2)
SMALL = "turns: 8, min_continuations: 4, max_continuations: 6, reference_continuations: 2"


def audit(settings: str = SMALL, more: str = "") -> tuple[str, str]:
    return "--config", f"audit={{rounds: [2], branch: {{{settings}}}{more}}}"


def test_a_round_is_branched_on_the_runs_rollouts_alone(snakemake):
    alone = counts(snakemake("-n", BRANCHES, *TINY))
    assert alone == {
        **dict.fromkeys(("tasks", "demos", "base", "sft", "measures", "credit", "update", "branch"), 1),
        "rollout": 2,
    }


def test_a_round_is_branched_and_only_its_own_settings_branch_it_again(snakemake, started, tmp_path):
    workdir = started(tmp_path)
    run = snakemake("--cores", "1", BRANCHES, *TINY, *audit())
    assert run.returncode == 0, run.stdout + run.stderr
    frame = tables.read(workdir / BRANCHES, "branches").to_pandas()
    assert len(frame) >= 8
    assert frame.replayed.all()
    assert set(frame.policy_id) == {"flat_grpo/seed0/round01"}
    made_by = tables.metadata(workdir / BRANCHES)
    assert set(made_by["inputs"]) == {"policy", "tasks", "turns", "measures"}
    assert not counts(snakemake("-n", BRANCHES, *TINY, *audit(more=", pages: 3, methods: [rloo]")))
    assert counts(snakemake("-n", BRANCHES, *TINY, *audit(f"{SMALL}, target_se: 0.2"))) == {"branch": 1}
