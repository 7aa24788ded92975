"""Rounds of a run in one process: the same artifacts as job by job, and nothing is made twice."""

from __future__ import annotations

import hashlib
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from snakemake.iocontainers import Wildcards

from tests import tiny
from turncredit.config import merge
from turncredit.config.stages import stages
from turncredit.data import tables
from turncredit.errors import OutOfTime
from turncredit.pipeline import blocks, failures, loop
from turncredit.pipeline import rounds as fused
from turncredit.pipeline.all_jobs import made_paths, read_paths
from turncredit.pipeline.job import JobKeys, Store
from turncredit.pipeline.plan import Plan, load
from turncredit.pipeline.playing import plays

ROUNDS = [1, 2]
#: a method that reads turns alone, one with measures, one with labels, one whose model learns from rounds before, a
#: critic's, three that read turns a second time, one with a model of its own, one with continuations, one with forks
METHODS = (
    "gigpo", "has_progressive", "triage", "has_turnrd", "ppo", "progress_advantage", "hcapo", "istar", "vine", "tree",
)  # fmt: skip
VINE = {"base": "vineppo", "continuations": {"per_state": 2}}
TREE = {"base": "carl", "forks": {"per_task": 2}}


@pytest.fixture(scope="module")
def shared(world, tmp_path_factory) -> Path:
    """The tiny world, with the labels and hidden states of round 1 that methods share. Tests must not change it."""
    results = tmp_path_factory.mktemp("shared") / "results"
    shutil.copytree(world.plan.results, results)
    plan = planned(results)
    turns = plan.turns_at("triage", 0, 1)
    for stage, at in (
        ("label", plan.keys_of("labels", turns, "triage")),
        ("hiddens", plan.keys_of("hiddens", turns, "has_turnrd")),
        ("hiddens", plan.keys_of("hiddens", turns, "ppo")),
        ("logprobs", plan.keys_of("logprobs", turns, "progress_advantage")),
        ("logprobs", plan.keys_of("logprobs", turns, "hcapo")),
        ("continuations", plan.keys_of("continuations", turns, "vine")),
        ("forks", plan.keys_of("forks", turns, "tree")),
    ):
        load(stage).run(plan.job(stage, at))
    return results


def planned(results: Path, **changes) -> Plan:
    given = {"methods": list(METHODS), "define": {"vine": VINE, "tree": TREE}, "rounds": 2}
    return Plan(tiny.experiment(**merge(given, changes)), results)


@pytest.fixture
def results(shared, tmp_path) -> Path:
    """A copy of the shared artifacts."""
    return Path(shutil.copytree(shared, tmp_path / "results"))


def content(plan: Plan) -> dict[str, str]:
    """The hash of every file below the experiment's folder that is an artifact, by its path there."""
    root = plan.layout.root
    return {
        str(path.relative_to(root)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(root.rglob("*"))
        if path.is_file() and not {"logs", "metrics"} & set(path.relative_to(root).parts)
    }


def job_by_job(plan: Plan, method: str) -> None:
    """Every stage of the rounds from files to files, as jobs of their own run."""
    for stage, at in loop.block(plan, method, 0, ROUNDS):
        load(stage).run(plan.job(stage, at, store=Store()))


def times(plan: Plan) -> dict[str, int]:
    """When each artifact was written."""
    return {name: os.stat(plan.layout.root / name).st_mtime_ns for name in content(plan)}


@pytest.mark.parametrize("method", METHODS)
def test_one_process_makes_the_same_bytes_as_a_process_for_each_stage(shared, tmp_path, method):
    apart, together = (planned(Path(shutil.copytree(shared, tmp_path / name))) for name in ("apart", "together"))
    job_by_job(apart, method)
    fused.run_rounds(together, method, 0, ROUNDS)
    made = content(together)
    assert len(made) > len(content(planned(shared)))
    assert made == content(apart)


def test_metrics_and_logs_are_those_of_the_stages(results):
    plan = planned(results)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    steps = loop.block(plan, "gigpo", 0, ROUNDS)
    assert [stage for stage, _ in steps].count("update") == 2
    measured = {stage for stage, _, _ in plan.layout.find_metrics()}
    assert {stage for stage, _ in steps} <= measured


def test_what_is_there_is_not_made_again(results):
    plan = planned(results)
    fused.run_rounds(plan, "has_turnrd", 0, ROUNDS)
    before = times(plan)
    fused.run_rounds(planned(results), "has_turnrd", 0, ROUNDS)
    assert times(plan) == before


def test_a_lost_artifact_is_made_again_and_what_follows_from_it_is_left_alone(results):
    plan = planned(results)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    before, was = times(plan), content(plan)
    lost = Path(plan.layout.path("credits", plan.turns_at("gigpo", 0, 1).keys, method="gigpo"))
    lost.unlink()
    fused.run_rounds(planned(results), "gigpo", 0, ROUNDS)
    assert content(plan) == was
    changed = {name for name, time in times(plan).items() if before[name] != time}
    assert changed == {str(lost.relative_to(plan.layout.root))}


def test_a_change_of_the_configuration_makes_again_what_reads_it_and_what_follows(results):
    fused.run_rounds(planned(results), "gigpo", 0, ROUNDS)
    before = times(planned(results))
    changed = planned(results, update={"lr": 1e-4})
    fused.run_rounds(changed, "gigpo", 0, ROUNDS)
    after = times(changed)
    again = {name for name in after if after[name] != before[name]}
    kept = {name for name in after if name.startswith("rollouts/sft-") or "round01/credits" in name}
    assert kept
    assert not again & kept
    assert {"runs/gigpo/seed0/round01/updates.parquet", "rollouts/gigpo/seed0/round02/turns.parquet"} <= again


def test_a_damaged_artifact_is_made_again(results):
    plan = planned(results)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    was = content(plan)
    updates = Path(plan.layout.path("updates", method="gigpo", seed=0, round=1))
    updates.write_bytes(updates.read_bytes()[:100])
    fused.run_rounds(planned(results), "gigpo", 0, ROUNDS)
    assert content(plan) == was


def test_a_stage_that_fails_ends_the_job_and_the_next_try_goes_on_from_there(results, monkeypatch):
    plan = planned(results)
    whole = planned(Path(shutil.copytree(results, results.parent / "whole")))
    fused.run_rounds(whole, "gigpo", 0, ROUNDS)
    evaluate = load("eval").run

    def fails_in_round_2(job):
        if job.at.round == 2:
            raise ValueError("the machine is on fire")
        return evaluate(job)

    monkeypatch.setitem(stages(), "eval", replace(stages()["eval"], run=fails_in_round_2))
    with pytest.raises(SystemExit) as ended:
        fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    assert ended.value.code == 1
    before = times(plan)
    monkeypatch.setitem(stages(), "eval", replace(stages()["eval"], run=evaluate))
    fused.run_rounds(planned(results), "gigpo", 0, ROUNDS)
    assert content(plan) == content(whole)
    assert {name: time for name, time in times(plan).items() if name in before} == before


def test_with_keep_policies_last_only_the_last_policy_stays_and_a_second_run_makes_nothing(results):
    plan = planned(results, keep_policies="last")
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    policies = [located.keys["round"] for located in plan.layout.find("policy")]
    assert policies == [2]
    before = times(plan)
    fused.run_rounds(planned(results, keep_policies="last"), "gigpo", 0, ROUNDS)
    assert times(plan) == before


def test_an_evaluation_on_other_games_makes_the_policy_again_that_was_deleted(results):
    before = planned(results, keep_policies="last")
    fused.run_rounds(before, "gigpo", 0, ROUNDS)
    was = content(before)
    plan = planned(results, keep_policies="last", eval={"games": 2})
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    now = content(plan)
    assert {name.rsplit("/", 1)[-1] for name in was if was[name] != now.get(name)} == {
        "evals.parquet",
        "invariants.parquet",
    }
    assert [tables.read(found.path, "evals").num_rows for found in plan.layout.find("evals", method="gigpo")] == [2, 2]
    assert [located.keys["round"] for located in plan.layout.find("policy")] == [2]


def test_the_policy_that_sampled_an_audited_round_stays(results):
    audit = {"run": "gigpo", "rounds": [2], "methods": ["gigpo"]}
    plan = planned(results, keep_policies="last", audit=audit)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    assert [located.keys["round"] for located in plan.layout.find("policy")] == [1, 2]


def test_the_weights_of_a_run_are_read_from_disk_once(results, monkeypatch):
    from turncredit.policy import models
    from turncredit.policy.engines import ragged

    read = []
    load_model, read_weights = models.load_model, ragged.read_weights
    monkeypatch.setattr(models, "load_model", lambda *a, **k: read.append("model") or load_model(*a, **k))
    monkeypatch.setattr(ragged, "read_weights", lambda *a: read.append("engine") or read_weights(*a))
    plan = planned(results)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    # Once for the first update. The policies after it are in memory: they play, and are checked, from there.
    assert read[: read.index("model") + 1] == ["model"]
    sampled = [stage for stage, _ in loop.block(plan, "gigpo", 0, ROUNDS) if stage in {"rollout", "eval"}]
    assert len(sampled) == 3
    assert "engine" not in read


def test_a_stage_that_starts_vllm_finds_no_weights_in_memory(tmp_path, monkeypatch):
    """vLLM takes nearly all of a GPU, and does not start where this process still has an updated model there."""
    weights, found = SimpleNamespace(there=False), []
    weights.release = lambda: setattr(weights, "there", False)

    def run(_plan, job):
        found.append((job.stage, weights.there))
        weights.there = True
        job.store.put_policy("a folder", weights)

    monkeypatch.setattr(fused, "run_stage", run)
    fused.run_rounds(planned(tmp_path, policy={"engine": "vllm"}), "gigpo", 0, [1])
    assert found == [("credit", False), ("update", True), ("eval", False)]


@pytest.mark.parametrize(
    ("rollout", "games", "slots"),
    [({"tasks": 4, "group_size": 2, "slots": 256}, 16, 16), ({"tasks": 8, "group_size": 8, "slots": 256}, 16, 64)],
)
def test_a_jobs_engine_has_room_for_its_largest_stage_but_for_no_more_than_the_slots(rollout, games, slots):
    given = {"eval": {"games": games, "every": 1}, "tasks": {"train": 16, "eval": 64}}
    plan = Plan(tiny.experiment(rollout=rollout, **given))
    assert fused.most_slots(plan, "flat_grpo") == slots
    narrow = Plan(tiny.experiment(rollout={**rollout, "slots": 8}, **given))
    assert fused.most_slots(narrow, "flat_grpo") == 8


@pytest.mark.parametrize("method", ["vineppo", "carl"])
def test_a_jobs_engine_has_room_for_continuations_and_forks_from_its_start(method):
    """Else it would start again in the middle of each round."""
    plan = Plan(tiny.experiment(methods=[method], rollout={"tasks": 4, "group_size": 2, "slots": 256}))
    assert fused.most_slots(plan, method) == 256


def test_the_vllm_of_a_job_sleeps_while_other_stages_run_and_ends_before_a_judge_is_served(tmp_path, monkeypatch):
    happened = []

    class Engine:
        def __init__(self, **_):
            pass

        def sleep(self):
            happened.append("sleeps")

        def end(self):
            happened.append("ends")

    def run(_plan, job):
        happened.append(job.stage)
        if plays(job.stage):
            engines.add(job.store.policy("a folder", dtype="float32", engine="vllm").running)

    engines = set()
    monkeypatch.setattr(fused, "run_stage", run)
    monkeypatch.setattr("turncredit.policy.engines.vllm.Engine", Engine)
    judge = {"kind": "llm", "serve": {"python": "python"}}
    fused.run_rounds(planned(tmp_path, policy={"engine": "vllm"}, judge=judge, methods=["triage"]), "triage", 0, [1, 2])
    assert len(engines) == 1
    assert [what for what in happened if what != "measures"] == [
        *("credit", "update", "eval", "sleeps"),
        *("rollout", "sleeps", "ends", "label", "sleeps", "credit", "update", "eval", "sleeps", "invariants"),
    ]


def test_a_blocks_job_waits_for_what_is_shared_or_for_the_round_before():
    plan = Plan(tiny.experiment(methods=["gigpo"], rounds=2), "results")
    first = blocks.inputs_of_block(plan, "gigpo", 0, [1])
    assert plan.sft_policy(JobKeys()) in first
    assert plan.layout.path("turns", plan.turns_at("gigpo", 0, 1).keys) in first
    before = plan.layout.path("policy", method="gigpo", seed=0, round=1)
    assert blocks.inputs_of_block(plan, "gigpo", 0, [2]) == [before, plan.layout.path("tasks", split="eval")]


@pytest.mark.parametrize("per_job", [1, 2, 3])
def test_every_file_that_rounds_read_is_named_by_their_job_or_by_one_before(per_job):
    """Also where the first evaluation is that of round 4: nothing before has read its games."""
    plan = Plan(
        tiny.experiment(
            methods=["gigpo"], rounds=6, eval={"every": 6, "games": 2}, granularity="round", rounds_per_job=per_job
        )
    )
    # The policy that round 1's rollouts, an input, were sampled by has played the training games.
    known = {plan.layout.path("tasks", split="train")}
    for block in plan.experiment.blocks():
        steps = loop.block(plan, "gigpo", 0, block)
        known |= {
            *blocks.inputs_of_block(plan, "gigpo", 0, block),
            *(path for step in steps for path in made_paths(plan, step)),
        }
        read = {path for step in steps for path in read_paths(plan, step).values()}
        assert not read - known


def test_threads_that_a_job_is_given_on_the_command_line_are_for_all_its_stages(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(fused, "run_stage", lambda _, job: ran.append(job.threads))
    fused.run_rounds(planned(tmp_path), "gigpo", 0, [1], threads=8)  # --set-threads rounds=8
    assert set(ran) == {8}


def test_a_damaged_input_ends_a_job_of_rounds_with_one_line(results, capfd):
    plan = planned(results)
    damaged = Path(plan.sft_policy(JobKeys(method="gigpo"))) / "provenance.json"
    damaged.write_text("{")
    with pytest.raises(SystemExit) as ended:
        fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    assert ended.value.code == failures.USER_ERROR
    (line,) = set(capfd.readouterr().err.splitlines())
    assert f"{damaged}: not readable; `turncredit check --repair` removes what must be made again" in line


@pytest.mark.parametrize(
    ("resources", "threads"),
    [
        ({"update": {"threads": 4}}, {1, 4}),
        ({"rounds": {"threads": 4}}, {4}),
        ({"update": {"threads": 4}, "rounds": {"runtime": 90}}, {1, 4}),
        ({}, {1}),
    ],
)
def test_a_stage_uses_the_threads_that_its_job_asks_for(tmp_path, monkeypatch, resources, threads):
    plan = Plan(tiny.experiment(methods=["gigpo"], rounds=1, resources=resources), tmp_path)
    asked = blocks.resource_of_block(plan, "gigpo", 0, [1])
    ran = []
    monkeypatch.setattr(fused, "run_stage", lambda _, job: ran.append(job.threads))
    fused.run_rounds(plan, "gigpo", 0, [1], threads=asked.threads)
    assert set(ran) == threads


def test_a_job_of_rounds_has_the_gpus_of_its_stages_where_only_its_time_is_given():
    judge = {"kind": "llm", "serve": {"python": "python"}}
    resources = {"label": {"gpu": 2}, "rounds": {"runtime": 600}}
    plan = Plan(tiny.experiment(methods=["triage"], judge=judge, granularity="run", resources=resources), "results")
    assert blocks.resource_of_block(plan, "triage", 0, [1, 2]).gpu == 2
    given = {**resources, "rounds": {"gpu": 1}}
    plan = Plan(tiny.experiment(methods=["triage"], judge=judge, granularity="run", resources=given), "results")
    assert blocks.resource_of_block(plan, "triage", 0, [1, 2]).gpu == 1


def test_what_resources_rounds_leaves_out_is_what_its_stages_ask_for():
    resources = {"rollout": {"runtime": 90, "threads": 8}, "update": {"runtime": 200, "mem_mb": 50000}}
    derived, given = (
        blocks.resource_of_block(
            Plan(tiny.experiment(methods=["gigpo"], rounds=2, granularity="run", resources=wanted), "results"),
            "gigpo",
            0,
            [2],
        )
        for wanted in (resources, {**resources, "rounds": {"threads": 2}})
    )
    assert derived.runtime >= 290
    assert derived.mem_mb == 50000
    assert given == derived.model_copy(update={"threads": 2})


def test_the_last_rounds_job_ends_with_the_runs_invariants():
    plan = Plan(tiny.experiment(methods=["gigpo"], rounds=2), "results")
    assert loop.block(plan, "gigpo", 0, [2])[-1] == ("invariants", JobKeys(method="gigpo", seed=0))
    assert "invariants" not in dict(loop.block(plan, "gigpo", 0, [1]))
    apart = Plan(tiny.experiment(methods=["gigpo"], rounds=2, granularity="round"), "results")
    assert "invariants" not in dict(loop.block(apart, "gigpo", 0, [2]))


def test_provenance_is_that_of_a_job_of_its_own(results):
    plan = planned(results)
    fused.run_rounds(plan, "gigpo", 0, ROUNDS)
    for stage, at in loop.block(plan, "gigpo", 0, ROUNDS):
        job = plan.job(stage, at)
        assert job.is_made(), (stage, at)
        for path in job.output.values():
            made = tables.metadata(path) if path.endswith(".parquet") else None
            assert made is None or made["config"].items() >= at.keys.items()


@pytest.mark.parametrize("rounds", [[1], [1, 2]])
def test_the_inputs_of_another_seed_are_those_of_the_first_with_its_own_seed(rounds):
    plan = planned(Path("results"), seeds=[0, 3], audit={"run": "gigpo"})
    for method in METHODS:
        assert blocks.inputs_by_seed(plan, method, rounds)(3) == blocks.inputs_of_block(plan, method, 3, rounds)


def test_a_stage_that_would_not_end_within_the_time_limit_is_not_begun():
    """By the time that it took in an earlier round of the attempt."""
    now = [0.0]
    limit = fused.TimeLimit(1000.0, lambda: now[0])

    def run(stage, seconds):
        with limit.within(stage):
            now[0] += seconds

    for stage in ("rollout", "update"):
        run(stage, 400.0)
    with pytest.raises(OutOfTime, match=r"^stopped .*: 200 s are left for rollout, which took 400 s in an earlier"):
        run("rollout", 400.0)
    with pytest.raises(OutOfTime, match=r"200 s are left for update, which took 400 s"):
        run("update", 400.0)
    for stage in ("credit", "eval"):  # not known from an earlier round
        run(stage, 70.0)
    with pytest.raises(OutOfTime, match=r"60 s are left for credit, which took 70 s"):
        run("credit", 70.0)
    assert now == [940.0]
    late = fused.TimeLimit(10.0, lambda: 9.0)
    with late.within("rollout"):  # the first stage of an attempt: else none would ever get on
        pass


def test_a_job_of_rounds_that_stops_in_time_goes_on_in_its_next_attempt(results, tmp_path, monkeypatch, capfd):
    """It ends as an update that stops: the attempt uses up no retry, and the artifacts are the same."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 30)))
    plan = planned(results)
    steps = loop.block(plan, "gigpo", 0, ROUNDS)
    job = SimpleNamespace(
        config=plan.experiment.model_dump(mode="json"),
        output=[Path(plan.layout.path("policy", method="gigpo", seed=0, round=2))],
        wildcards=Wildcards(fromdict={"method": "gigpo", "seed": "0", "round": "02"}),
        params={"rounds": ROUNDS},
        resources={},
        threads=1,
        rule="rounds",
    )

    def made():
        return [plan.job(*step).is_made() for step in steps]

    with pytest.raises(SystemExit, match=str(failures.OUT_OF_TIME)):
        fused.run(job)
    assert made() == [True] + [False] * (len(steps) - 1)
    keys = {name: str(key) for name, key in job.wildcards.items()}
    assert failures.stops("rounds", keys, str(plan.layout.root), since=0.0) == 1
    assert "rounds gigpo seed0 round02: stopped before the job's time limit" in capfd.readouterr().err
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(int(time.time() + 3600)))
    fused.run(job)
    assert all(made())
    assert failures.stops("rounds", keys, str(plan.layout.root), since=0.0) == 0
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""  # it asks for no GPU


def test_a_file_that_appears_late_is_left_to_snakemake_which_waits_for_it_and_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(fused, "run_rounds", lambda *_, **__: None)
    there = tmp_path / "results" / "tiny" / "policy"
    there.mkdir(parents=True)
    os.utime(there, (1.0, 1.0))
    job = SimpleNamespace(
        config=tiny.mapping(),
        output=[there.with_name("late.parquet"), there],
        wildcards=Wildcards(fromdict={"method": "gigpo", "seed": "0"}),
        params={"rounds": [1]},
        resources={},
        threads=1,
        rule="rounds_01_01_1",
    )
    fused.run(job)
    assert there.stat().st_mtime > 1.0


def test_each_seed_reads_its_own_rollouts_also_where_their_folder_is_a_link_to_another_disk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = Plan(tiny.experiment(seeds=[0, 1], methods=["flat_grpo"], granularity="run"))
    plan.layout.root.mkdir(parents=True)
    (tmp_path / "scratch").mkdir()
    (plan.layout.root / "rollouts").symlink_to(tmp_path / "scratch")
    rounds = plan.experiment.blocks()[0]
    assert blocks.inputs_by_seed(plan, "flat_grpo", rounds)(1) == blocks.inputs_of_block(plan, "flat_grpo", 1, rounds)
