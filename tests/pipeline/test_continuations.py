"""Continuations and forks in the pipeline: who plays and shares them, what makes them run again; once for real."""

from __future__ import annotations

import pytest

from tests import tiny
from tests.pipeline.test_dag import TINY, counts
from turncredit.data import tables

DEFINE = "define={two: {base: vineppo, continuations: {per_state: 2}}}"


@pytest.mark.long
@pytest.mark.slow
def test_a_run_learns_from_continuations_and_only_their_own_settings_play_them_again(snakemake, workdir):
    arguments = (*TINY, "--config", DEFINE, "methods=[two]", "rollout={tasks: 2, group_size: 2}")
    run = snakemake("--cores", "1", *arguments)
    assert run.returncode == 0, run.stdout + run.stderr
    shared = "sft-t2k2T1.0"
    for policy, round_ in ((shared, 1), ("two", 2)):
        keys = {"policy": policy, "round": round_}
        turns, played, credits = (
            tables.read(workdir / tiny.path(name, "two", continuations="k2", **keys))
            for name in ("turns", "continuations", "credits")
        )
        for table in (played, credits):
            assert all(table.column(key).equals(turns.column(key)) for key in tables.KEYS)
        assert set(played.column("policy_id").to_pylist()) == {"sft" if round_ == 1 else "two/seed0/round01"}
        assert set(credits.column("continuations").to_pylist()) == {2.0}
        metrics = tiny.measured(workdir, "continuations", continuations="k2", **keys)
        assert metrics["continuations"] == 2 * turns.num_rows
    invariants = tables.read(workdir / tiny.path("invariants", "two")).to_pylist()
    assert all(row["holds"] for row in invariants), invariants
    assert {"same_keys", "reproduced"} <= {row["name"] for row in invariants}
    assert set(counts(snakemake("-n", *arguments, "resources={continuations: {threads: 2}}"))) <= {
        "config", "report", "track",
    }  # fmt: skip
    more = (*TINY, "--config", DEFINE.replace("per_state: 2", "per_state: 3"), *arguments[-2:])
    again = counts(snakemake("-n", *more))
    assert (again["continuations"], again["rollout"]) == (2, 1)


@pytest.mark.long
@pytest.mark.slow
def test_a_run_learns_from_a_tree_and_its_forks_are_paid_and_checked(snakemake, workdir):
    define = "define={tree: {base: carl, rollout: {group_size: 1}, forks: {per_task: 3}}}"
    run = snakemake("--cores", "1", *TINY, "--config", define, "methods=[flat_grpo,tree]", "rollout={tasks: 2}")
    assert run.returncode == 0, run.stdout + run.stderr
    for policy, round_ in (("sft-t2k1T1.0", 1), ("tree", 2)):
        keys = {"policy": policy, "round": round_}
        turns, forks, credits = (
            tables.read(workdir / tiny.path(name, "tree", forks="n3", **keys)) for name in ("turns", "forks", "credits")
        )
        assert credits.num_rows == turns.num_rows + forks.num_rows
        assert len(set(forks.column("rollout_id").to_pylist())) == 2 * 3
        assert tiny.measured(workdir, "forks", forks="n3", **keys)["turns"] == forks.num_rows
    # As many rollouts as flat GRPO's two groups of four, so as many optimiser steps.
    assert tiny.measured(workdir, "update", "tree")["steps"] == tiny.measured(workdir, "update", "flat_grpo")["steps"]
    invariants = tables.read(workdir / tiny.path("invariants", "tree")).to_pylist()
    assert all(row["holds"] for row in invariants), invariants
    assert {"same_keys", "reproduced", "steps", "logprobs"} <= {row["name"] for row in invariants}
    spent = tables.read(workdir / tiny.path("summary")).to_pylist()
    numbers = {(row["row"], row["column"]): row["value"] for row in spent if row["table"] == "spending"}
    assert numbers["tree", "environment"] > numbers["tree", "forks"] > 0
