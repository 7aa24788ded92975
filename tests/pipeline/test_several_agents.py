"""Two methods with different agents in one experiment: their jobs, and the same bytes whatever one job runs."""

from __future__ import annotations

import json

import pytest

from tests import tiny
from tests.pipeline.test_dag import counts
from tests.pipeline.test_granularity import content
from turncredit.data import tables
from turncredit.policy import tokenizer

#: an agent with a vocabulary of its own, which learns from what any expert writes
AGENT = """
from dataclasses import replace

from turncredit.agents import transcript

AGENT = replace(transcript.AGENT, name="brief", vocabulary=("<brief>",))
"""
AUDIT = "audit={run: brief_value, rounds: [2], methods: [flat_grpo, brief_value], branch: {turns: 2}, pages: 1}"
SETTINGS = (
    *tiny.ARGUMENTS,
    "--config",
    "agents={brief: {name: brief.py}}",
    "define={brief_value: {base: turn_value, agent: brief}}",
    "methods=[flat_grpo,brief_value]",
    "demos={count: 60}",
    "sft={epochs: 4}",
    "tracking={enabled: false}",
)


def test_each_agent_adds_a_warm_start_its_evaluations_and_its_first_rollouts(snakemake, workdir):
    (workdir / "brief.py").write_text(AGENT)
    jobs = counts(snakemake("-n", *SETTINGS))
    assert jobs["base"] == jobs["sft"] == 2
    assert jobs["demos"] == 1
    assert jobs["rollout"] == 2 + 2  # round 1 of each agent, round 2 of each run
    assert jobs["eval"] == (2 + 2) * 2  # of two SFT policies and two runs
    other = counts(snakemake("-n", tiny.path("sft_policy", warm_start="sft_brief"), *SETTINGS))
    assert other == {"tasks": 1, "demos": 1, "base": 1, "sft": 1}
    alone = counts(snakemake("-n", "sft", *tiny.ARGUMENTS))
    assert alone == other


def test_with_jobs_of_whole_runs_each_agent_has_first_rollouts_of_its_own(snakemake, workdir):
    (workdir / "brief.py").write_text(AGENT)
    jobs = counts(snakemake("-n", *SETTINGS, "define={brief_flat: {base: flat_grpo, agent: brief}}",
                            "methods=[flat_grpo,gigpo,brief_flat]", "granularity=run"))  # fmt: skip
    assert jobs["rounds"] == 3
    assert jobs["rollout"] == 2
    assert jobs["eval"] == 2 * 2


@pytest.mark.long
@pytest.mark.slow
def test_two_agents_give_the_same_bytes_job_by_job_and_a_run_at_a_time(pipeline, tmp_path_factory):
    folders = {}
    for granularity in ("stage", "run"):
        folder = folders[granularity] = pipeline.link(tmp_path_factory.mktemp(granularity))
        (folder / "brief.py").write_text(AGENT)
        run = pipeline.run(folder, "--cores", "2", *SETTINGS, AUDIT, f"granularity={granularity}")
        assert run.returncode == 0, run.stdout + run.stderr
    results = {name: folder / "results/tiny" for name, folder in folders.items()}
    assert content(results["stage"]) == content(results["run"])

    shared = tiny.SHARED.replace("sft", "sft_brief")
    folder = folders["stage"]

    def column(name: str, column: str, **keys) -> set:
        return set(tables.read(folder / tiny.path(name, **keys), columns=[column]).column(column).to_pylist())

    first = {"method": "brief_value", "policy": shared}
    assert column("turns", "agent", **first) == {"brief"}
    assert column("turns", "policy_id", **first) == {"sft_brief"}
    assert column("turns", "policy_id", method="flat_grpo") == {"sft"}
    later = {"method": "brief_value", "round": 2}
    assert column("turns", "agent", **later) == {"brief"}
    assert column("hiddens", "policy_id", hidden_policy="sft", hidden_position="observation", **later) == {"sft_brief"}
    assert column("evals", "policy_id", method="sft_brief") == {"sft_brief"}
    encoders = {
        start: tokenizer.load(folder / tiny.path("sft_policy", warm_start=start)) for start in ("sft", "sft_brief")
    }
    assert len(encoders["sft_brief"].encode("<brief>")) == 1 < len(encoders["sft"].encode("<brief>"))
    compared = tables.read(folder / tiny.path("fidelity", policy="brief_value", round=2))
    assert {"flat_grpo", "brief_value"} <= set(compared.column("method").to_pylist())
    checked = [tables.read(path) for path in results["stage"].rglob("invariants.parquet")]
    assert checked
    assert all(all(table.column("holds").to_pylist()) for table in checked)

    provenance = json.loads((folder / tiny.path("sft_policy", warm_start="sft_brief") / "provenance.json").read_text())
    assert provenance["config"]["start"] == "sft_brief"
    again = pipeline.run(folder, "-n", *SETTINGS, AUDIT)
    assert "Nothing to be done" in again.stdout + again.stderr
