"""The audit's graph: every method's credit on one run's rollouts, what it shares with the runs, what it refuses."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests import tiny
from tests.pipeline.test_dag import TINY, counts, options
from turncredit.config import from_mapping, load, merge
from turncredit.config.stages import artifacts
from turncredit.credit.parts.configured import compared_methods
from turncredit.data import tables
from turncredit.pipeline import checks, rounds
from turncredit.pipeline.plan import Plan

ROOT = Path(__file__).resolve().parents[2]
#: of two rounds of a run, by a closed-form method, a learned one and a critic
AUDIT = {
    "rounds": [1, "last"],
    "methods": ["mine", "turn_value", "ppo"],
    "pages": 2,
    "branch": {"turns": 6, "min_continuations": 2, "max_continuations": 4, "reference_continuations": 2},
}


def arguments(alpha: float = 0.5, **changes: Any) -> list[str]:
    """Run the audit of turn_value."""
    define = {"mine": {"base": "has_progressive", "params": {"alpha": alpha}}}
    audited = {"methods": ["turn_value"], "define": define, "audit": merge(AUDIT, changes), "target": "audit"}
    return ["--cores", "2", *TINY, *options(audited)]


def credits_on(run: str, *methods: str, rounds: tuple[int, ...] = (1, 2)) -> list[str]:
    """The credits of these methods on the turns of a run."""
    turns = [tiny.keys(run, round=round) for round in rounds]
    return [tiny.LAYOUT.path("credits", keys, method=method) for keys in turns for method in methods]


def test_models_of_rounds_that_are_not_audited_are_made_for_those_that_are(snakemake):
    late = "audit={rounds: [3], methods: [flat_grpo, turn_value, ppo]}"
    targets = credits_on("flat_grpo", "flat_grpo", "turn_value", "ppo", rounds=(3,))
    jobs = counts(snakemake("-n", *targets, *TINY, "--config", "rounds=3", "tasks={eval: 12}", late))
    assert jobs["credit_model"] == 2 * 3
    assert jobs["values"] == 1 + 3
    # The run learned from its own credit in three rounds; a critic learns from its own of the rounds before.
    assert jobs["credit"] == 3 + 1 + 3
    assert jobs["hiddens"] == 3


def test_a_model_may_read_the_policy_of_the_round(snakemake):
    define = "define={mine: {base: turn_value, model: {hidden_policy: current, hidden_position: action}}}"
    run = snakemake("-n", *credits_on("flat_grpo", "mine", rounds=(2,)), *TINY, "--config", define)
    second = tiny.path("hiddens", "flat_grpo", round=2, hidden_policy="current", hidden_position="action")
    for path in (second, tiny.path("hiddens", hidden_policy="sft", hidden_position="action")):
        assert path in run.stdout + run.stderr
    assert counts(run)["hiddens"] == 2


def test_rollouts_of_several_runs_are_audited_and_the_first_rounds_once():
    plan = Plan(tiny.experiment(methods=["flat_grpo", "rloo"], audit={"run": ["rloo", "flat_grpo"], "rounds": [1, 2]}))
    assert [(at.policy, at.round) for at in plan.audited] == [(tiny.SHARED, 1), ("rloo", 2), ("flat_grpo", 2)]


def test_the_policies_behind_several_audited_runs_are_kept(snakemake):
    audit = {"run": ["rloo", "flat_grpo"], "rounds": [3], "methods": ["flat_grpo"]}
    config = {"rounds": 3, "tasks": {"eval": 12}, "keep_policies": "last", "methods": ["flat_grpo", "rloo", "gigpo"]}
    assert counts(snakemake("-n", *TINY, *options({**config, "audit": audit})))["update_kept"] == 2 + 3
    plan = Plan(tiny.experiment(**config, audit=audit))
    deleted = {name: rounds.passing_policies(plan, name, 0, range(1, 4)) for name in plan.experiment.methods}
    assert {name: len(paths) for name, paths in deleted.items()} == {"flat_grpo": 1, "rloo": 1, "gigpo": 2}


#: The first and the last round of the seeds that the default audits: the first one.
BOTH_ENDS = {"rounds": [1, "last"]}


def test_an_inherited_audit_follows_the_methods_the_rounds_and_the_seeds_of_who_inherits_it():
    default = yaml.safe_load((ROOT / "config.yaml").read_text())
    mine = from_mapping(merge(default, {"methods": ["sft", "rloo"], "rounds": 5, "seeds": [7, 8], "audit": BOTH_ENDS}))
    assert mine.audit.runs == ("rloo",)
    assert mine.audited_rounds() == [(7, 1), (7, 5)]
    assert set(compared_methods(mine)) == {"rloo", "flat_grpo", "random_credit", "oracle_progress"}
    assert from_mapping(merge(default, {"methods": ["sft"]})).audited_rounds() == []
    assert from_mapping(mine.model_dump(mode="json")) == mine


def test_an_audit_that_names_no_methods_leaves_out_those_that_credit_forks():
    experiment = tiny.experiment(methods=["flat_grpo", "carl", "rloo"], audit={"rounds": [1]})
    assert Plan(experiment).audit_methods == ["flat_grpo", "rloo", "random_credit", "oracle_progress"]
    checks.check(experiment)


def test_without_an_audit_no_method_is_compared_even_if_some_are_named():
    """A default configuration's `audit.methods` stays behind where `audit: {rounds: []}` turns the audit off."""
    named = {"methods": ["gigpo", "carl", "gigpo"]}
    assert compared_methods(tiny.experiment(audit={"rounds": [], **named})) == []
    assert compared_methods(tiny.experiment(audit={"rounds": [1], **named})) == ["gigpo", "carl"]
    checks.check(tiny.experiment(audit={"rounds": [], **named}))


def test_the_large_audit_compares_every_method_whose_columns_the_rollouts_have():
    from turncredit.credit import METHODS

    experiment = load([ROOT / "config.yaml", ROOT / "config" / "audit.yaml"])
    subgoals = {name for name, method in METHODS.items() if any("subgoal" in part.columns for part in method.parts)}
    assert subgoals == {"hipif", "hipif_gigpo"}
    assert set(compared_methods(experiment)) <= set(METHODS) - subgoals
    assert len(compared_methods(experiment)) >= 30


@pytest.fixture(scope="module")
def audited(pipeline, started, tmp_path_factory) -> Path:
    """Two rounds of turn_value, and their audit with three methods."""
    folder = started(tmp_path_factory.mktemp("audited"))
    run = pipeline.run(folder, *arguments())
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def tables_of(folder: Path) -> dict[str, float]:
    """When each table was written."""
    found = sorted((folder / "results" / "tiny").rglob("*.parquet"))
    return {str(path.relative_to(folder)): path.stat().st_mtime for path in found}


@pytest.mark.slow
def test_the_audited_credit_of_the_runs_own_method_is_the_file_that_the_run_learned_from(audited):
    own = credits_on("turn_value", "turn_value")
    assert [str(path.relative_to(audited)) for path in sorted(audited.rglob("credits/turn_value.parquet"))] == sorted(
        own
    )
    assert tiny.job_inputs(audited, "update", "turn_value")["credits"] == own[0]
    for round, path in enumerate(own, start=1):
        assert path in tiny.job_inputs(audited, "fidelity", "turn_value", round=round)["credits"]
    assert tables.read(audited / own[1], "credits").column("value").null_count == 0


@pytest.mark.slow
def test_every_method_credits_the_same_turns_and_a_critic_learns_from_its_own_credits_of_them(audited):
    methods = ("mine", "turn_value", "ppo")
    turns = tables.read(audited / tiny.path("turns", "turn_value", round=2), "turns")
    for method, path in zip(methods, credits_on("turn_value", *methods, rounds=(2,)), strict=True):
        credits = tables.read(audited / path, "credits")
        assert set(credits.column("method").to_pylist()) == {method}
        assert all(credits.column(key).equals(turns.column(key)) for key in tables.KEYS)
    read = tiny.job_inputs(audited, "credit_model", "ppo", round=2, policy="turn_value")
    assert read["credits"] == [tiny.path("credits", "ppo")]
    assert read["previous"] == [tiny.path("model", "ppo")]
    assert read["turns"] == [tiny.path("turns")]


@pytest.mark.slow
def test_an_audited_round_has_truth_credit_fidelity_gradients_leaks_invariants_and_pages(audited):
    for round in (1, 2):
        for name in ("branches", "fidelity", "gradients", "leaks", "rollout_invariants"):
            path = audited / tiny.path(name, "turn_value", round=round)
            assert tables.read(path, artifacts()[name].schema).num_rows > 0, name
        assert "<script" in (audited / tiny.path("pages", "turn_value", round=round)).read_text()
        fidelity = tables.read(audited / tiny.path("fidelity", "turn_value", round=round), "fidelity")
        assert set(fidelity.column("method").to_pylist()) == {"mine", "turn_value", "ppo"}


@pytest.mark.slow
def test_a_round_is_branched_from_its_own_states_and_only_its_own_settings_branch_it_again(pipeline, audited):
    path = audited / tiny.path("branches", "turn_value", round=2)
    frame = tables.read(path, "branches").to_pandas()
    assert len(frame) >= 6
    assert frame.replayed.all()
    assert set(frame.policy_id) == {"turn_value/seed0/round01"}
    assert set(tables.metadata(path)["inputs"]) == {"policy", "tasks", "turns", "measures"}
    assert counts(pipeline.run(audited, "-n", *arguments(methods=["rloo", "ppo"], pages=3)))["branch"] == 0
    assert counts(pipeline.run(audited, "-n", *arguments(branch={"target_se": 0.2})))["branch"] == 2


@pytest.mark.slow
def test_a_second_run_of_the_audit_does_nothing(pipeline, audited):
    run = pipeline.run(audited, "-n", *arguments())
    assert "Nothing to be done" in run.stdout + run.stderr


@pytest.mark.slow
def test_a_changed_parameter_of_a_method_repeats_its_credit_and_what_compares_it_and_no_branching(
    pipeline, audited, tmp_path
):
    pipeline.link(tmp_path)
    for name in ("results", ".snakemake"):
        shutil.copytree(audited / name, tmp_path / name, symlinks=True)
    before = tables_of(tmp_path)
    run = pipeline.run(tmp_path, *arguments(0.9))
    assert run.returncode == 0, run.stdout + run.stderr
    changed = {name for name, time in tables_of(tmp_path).items() if before.get(name) != time}
    compare = {
        tiny.path(name, "turn_value", round=round)
        for round in (1, 2)
        for name in ("fidelity", "gradients", "rollout_invariants")
    }
    assert changed == {*credits_on("turn_value", "mine"), *compare}
