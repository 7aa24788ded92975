"""What an experiment that trains on several nodes (`policy.train_nodes`) asks for, where it is refused, its nodes."""

from __future__ import annotations

import pytest

from tests import tiny
from turncredit.cli import plan as cli_plan
from turncredit.config.experiment import ROUNDS
from turncredit.errors import UserError
from turncredit.pipeline import checks, preflight, resources, slurm
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

POLICY = {"train_gpus": 16, "train_nodes": 2, "engine": "vllm", "sample_engines": 4}
SFT = {"epochs": 1.0, "shards": 1}


def experiment(policy=(), **changes):
    return tiny.experiment(**{"policy": {**POLICY, **dict(policy)}, "sft": SFT, **changes})


@pytest.mark.parametrize(
    ("slurm", "gres"),
    [({}, "gpu:8"), ({"gpu_model": "a100"}, "gpu:a100:8"), ({"gres": "gpu:h100"}, "gpu:h100:8")],
)
def test_gpus_of_several_nodes_are_asked_for_by_node(slurm, gres):
    assert resources.gpus_requested(8, slurm, nodes=2) == {"gpu": 0, "nodes": 2, "gres": gres}


def test_only_jobs_that_train_ask_for_several_nodes_with_their_share_of_the_gpus():
    one = experiment()
    jobs = ("sft", "update", ROUNDS, "rollout", "eval", "gradients", "credit")
    assert {job: (one.nodes(job), one.gpus(job)) for job in jobs} == {
        **dict.fromkeys(("sft", "update", ROUNDS), (2, 8)),
        **dict.fromkeys(("rollout", "eval"), (1, 4)),
        "gradients": (1, 1),
        "credit": (1, 0),
    }
    assert (one.all_gpus("update"), one.all_gpus("rollout")) == (16, 4)
    asked = resources.requested(resources.resource(Plan(one), "update"), one.slurm("update"), one.nodes("update"))
    assert {name: asked[name] for name in ("nodes", "gpu", "gres")} == {"nodes": 2, "gpu": 0, "gres": "gpu:8"}
    assert experiment(sft={"epochs": 0, "shards": 1}).nodes("sft") == 1


def test_one_gpu_of_each_node_is_asked_for_too():
    assert experiment({"train_gpus": 2}).gpus("update") == 1


def test_a_node_has_main_memory_for_its_own_processes():
    seven = {"source": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16"}
    host = {nodes: resources.need(Plan(experiment({**seven, "train_nodes": nodes})), "update").host for nodes in (1, 2)}
    assert host[2] == pytest.approx(host[1] / 2, rel=0.05)


@pytest.mark.parametrize("granularity", ["stage", "round"])
def test_the_plan_counts_the_nodes(granularity):
    plan = Plan(experiment({"source": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16"}, granularity=granularity))
    update = next(line for line in cli_plan.lines_of(plan) if line.startswith("update "))
    assert " 2 x 8 " in update
    assert "GPUs: nodes x GPUs of each; main memory is that of each node" in cli_plan.lines_of(plan)
    assert cli_plan.training(plan).gpus == 16 * len(plan.experiment.runs())
    alone = Plan(
        plan.experiment.model_copy(update={"policy": plan.experiment.policy.model_copy(update={"train_nodes": 1})})
    )
    hours = [cli_plan.gpu_hours(one, cli_plan.submitted_jobs(one, cli_plan.every_job(one))) for one in (alone, plan)]
    assert hours[0]["update"] == pytest.approx(hours[1]["update"])


def test_nodes_that_cannot_share_the_gpus_evenly_are_refused():
    with pytest.raises(UserError, match=r"train_gpus is 16, which 3 nodes cannot share evenly"):
        checks.check(experiment({"train_nodes": 3}))


def test_a_generic_resource_other_than_gpus_is_refused():
    checks.check(experiment())
    with pytest.raises(UserError, match=r"jobs of update run on several nodes .* it is nvme:1"):
        checks.check(experiment(resources={"update": {"slurm_gres": "nvme:1"}}))


@pytest.mark.parametrize(
    ("where", "line"),
    [
        (
            preflight.Where(),
            "policy.train_nodes is 2, and needs Slurm and a file system that its nodes share; run with --profile slurm,"
            " or set it to 1",
        ),
        (
            preflight.Where("apptainer", "slurm"),
            "policy.train_nodes is 2, and needs srun, which jobs in an image do not have; use .venv or --sdm conda, or "
            "set it to 1",
        ),
        (preflight.Where("conda", "slurm"), "policy.train_nodes is 2"),
    ],
)
def test_where_jobs_cannot_start_processes_on_other_nodes_none_begins(where, line):
    (found,) = preflight.nodes(Plan(experiment()), ("update",), where)
    assert (found.line, found.fine) == (line, where.deployed == "conda")
    assert not list(preflight.nodes(Plan(experiment()), ("rollout",), where))


@pytest.fixture
def named(tmp_path, monkeypatch):
    """A Slurm job on the nodes a, b and c, in which this process runs on a."""
    (tmp_path / "scontrol").write_text('#!/bin/sh\n[ "$*" = "show hostnames [a-c]" ] && printf "a\\nb\\nc\\n"\n')
    (tmp_path / "scontrol").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    monkeypatch.setenv("SLURM_JOB_NODELIST", "[a-c]")
    monkeypatch.setenv("SLURMD_NODENAME", "a")


@pytest.mark.usefixtures("named")
def test_the_other_nodes_are_those_that_slurm_lists():
    assert slurm.other_nodes(3) == ["b", "c"]
    with pytest.raises(UserError, match=r"policy.train_nodes is 2, and this Slurm job has 3 \(\[a-c\]\)"):
        slurm.other_nodes(2)


def test_outside_of_slurm_there_are_no_other_nodes(monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    with pytest.raises(UserError, match=r"policy.train_nodes is 2, and this is no Slurm job"):
        slurm.other_nodes(2)


def test_a_warm_start_without_epochs_takes_no_other_node(world, tmp_path, monkeypatch):
    monkeypatch.delenv("SLURM_JOB_NODELIST", raising=False)
    changes = {"policy": {"train_gpus": 2, "train_nodes": 2}, "sft": {"epochs": 0, "shards": 1}}
    made = world.run("sft", JobKeys(), tmp_path, changes)
    assert (made.output["policy"] / "model.safetensors").exists()
