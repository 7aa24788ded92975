"""The entry point of a job's script: what it checks before its work, and what it leaves when it fails."""

from __future__ import annotations

import os
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from tests import tiny
from turncredit.config.stages import stages
from turncredit.data.provenance import file_hash
from turncredit.errors import OutsideFault
from turncredit.pipeline import failures, job_script
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan


def snakemake(**changes):
    """Snakemake's object for the job of the stage `config`, which reads nothing and needs no GPU."""
    plan = Plan(tiny.experiment())
    output = {**plan.outputs("config", JobKeys()), "metrics": plan.metrics("config", JobKeys())}
    given = {
        "rule": "config",
        "params": {"config": plan.slice("config", JobKeys()).model_dump(mode="json")},
        "config": tiny.mapping(),
        "input": {},
        "output": output,
        "wildcards": {},
        "log": ["results/tiny/logs/config.log"],
        "threads": 1,
        "resources": {"gpu": 0},
    }
    return SimpleNamespace(**{**given, **changes})


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # as it was, after a job that hides GPUs
    return tmp_path


def test_a_job_that_asked_for_a_gpu_and_sees_none_fails_before_its_work_and_is_not_tried_again(folder, capfd):
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(SystemExit, match="2"):
        job_script.run("config", snakemake(resources={"gpu": 1}))
    lines = set(capfd.readouterr().err.splitlines())  # on the terminal and in the log
    assert len(lines) == 1
    assert lines.pop().startswith("config: asks for 1 GPU on ")
    assert not (folder / "results/tiny/config.json").exists()
    assert [(one.rule, one.status) for one in failures.failures_in("results/tiny")] == [("config", failures.USER_ERROR)]
    job_script.run("config", snakemake())
    assert (folder / "results/tiny/config.json").exists()
    assert failures.failures_in("results/tiny") == []


@pytest.mark.parametrize(
    ("resources", "visible"),
    [
        ({"gpu": 0}, ""),
        ({"gpu": 0, "slurm_extra": "--mail-type=FAIL"}, ""),
        ({"gpu": 0, "gres": "gpu:1"}, "0"),
        ({"gpu": 0, "gres": "shard:1"}, "0"),
        ({"gpu": 0, "slurm_extra": "--gpus-per-node=1"}, "0"),
        ({"gpu": 1}, "0"),
    ],
)
def test_a_job_sees_a_gpu_only_if_it_asks_for_one(resources, visible):
    """On a machine with a GPU every job would compute on the first one, and open a context there."""
    seen = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(job_script.preflight, "check_gpu", lambda *_: seen.append(os.environ["CUDA_VISIBLE_DEVICES"]))
        job_script.run("config", snakemake(resources=resources))
    assert seen == [visible]


@pytest.mark.parametrize(("variable", "offline"), [("SLURM_JOB_ID", "1"), ("NOT_ON_A_CLUSTER", None)])
def test_on_a_node_of_slurm_hub_models_are_read_from_the_cache_alone(monkeypatch, variable, offline):
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    monkeypatch.setenv(variable, "17")
    monkeypatch.setattr(os, "environ", {**os.environ})
    job_script.set_environment()
    found = os.environ.get("HF_HUB_OFFLINE")
    assert found == offline


def test_what_vllm_compiles_is_kept_in_the_working_folder_unless_it_is_told_otherwise(monkeypatch, tmp_path):
    names = ("VLLM_CACHE_ROOT", "TRITON_CACHE_DIR", "VLLM_NO_USAGE_STATS")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(os, "environ", {"TRITON_CACHE_DIR": "/scratch/triton"})
    job_script.set_environment()
    kept = str(tmp_path / ".snakemake/turncredit-compiled/vllm")
    assert [os.environ[name] for name in names] == [kept, "/scratch/triton", "1"]


@pytest.mark.parametrize(("visible", "method"), [("MIG-8ad21c4e", "spawn"), ("0", None), ("GPU-8ad21c4e,1", None)])
def test_on_a_part_of_a_gpu_vllm_does_not_fork_its_process(monkeypatch, visible, method):
    """There torch has asked CUDA for the number of devices, after which no forked process can use one."""
    monkeypatch.setattr(os, "environ", {"CUDA_VISIBLE_DEVICES": visible})
    job_script.set_environment()
    assert os.environ.get("VLLM_WORKER_MULTIPROC_METHOD") == method


def test_a_result_is_made_from_a_users_file_as_it_was_before_the_work(folder, monkeypatch):
    own = folder / "own.py"
    own.write_text("def own(turns):\n    return turns.reward_N\n")
    plan = Plan(tiny.experiment(define={"own": {"credit": "own.py"}}, methods=["own"]))
    job = replace(plan.job("credit", JobKeys(policy="own", method="own", seed=0, round=2)), input={"method": "own.py"})
    before, recorded = [], []

    def work(job):
        before.append(file_hash(own))
        own.write_text(f"{own.read_text()}# an edit, while the job runs\n")
        recorded.append(job.provenance()["inputs"]["method"])
        return {}

    monkeypatch.setitem(stages(), "credit", replace(stages()["credit"], run=work))
    for _ in range(2):  # in a job of several rounds, which keeps hashes
        job_script.run_job(job)
    assert recorded == before
    assert len(set(before)) == 2


@pytest.mark.parametrize("prefix", ["", ".snakemake/storage/s3/bucket/", ".snakemake/storage/s3/results/results/"])
@pytest.mark.parametrize("experiment", ["tiny", "results"])
def test_the_experiments_folder_is_found_below_any_storage(prefix, experiment):
    plan = Plan(tiny.experiment(experiment=experiment), f"{prefix}results")
    for stage, at in every_job(plan):
        output = {**plan.outputs(stage, at), "metrics": plan.metrics(stage, at)}
        described = job_script.Description(stage, stage, {}, {}, {}, output)
        assert described.experiment_folder == plan.layout.root


def test_a_fault_from_outside_is_one_line_with_a_status_of_its_own(monkeypatch, capfd):
    def work(_job):
        raise OutsideFault("the server is gone")

    monkeypatch.setitem(stages(), "config", replace(stages()["config"], run=work))
    with pytest.raises(SystemExit, match=f"^{failures.OUTSIDE_FAULT}$"):
        job_script.run("config", snakemake())
    assert set(capfd.readouterr().err.splitlines()) == {"config: the server is gone"}  # on the terminal and in the log
    assert [one.status for one in failures.failures_in("results/tiny")] == [failures.OUTSIDE_FAULT]


def test_a_gpu_whose_memory_is_full_is_one_line_that_says_what_to_lower(capfd):
    """With the words of torch 2.13."""
    said = (
        "CUDA out of memory. Tried to allocate 20.00 GiB. GPU 0 has a total capacity of 79.18 GiB of which 3.32 GiB is "
        "free. Of the allocated memory 72.00 GiB is allocated by PyTorch"
    )

    def work():
        raise torch.OutOfMemoryError(said)

    settings = {"update": {"tokens_per_pass": 10**6}}
    output = Plan(tiny.experiment(**settings)).outputs("update", JobKeys(method="flat_grpo", seed=0, round=1))
    described = job_script.Description("update", "update", {}, tiny.mapping(**settings), {}, output, log="update.log")
    with pytest.raises(SystemExit, match="1"):
        job_script.carry_out(described, work)
    assert capfd.readouterr().err.splitlines()[-1] == (
        "update: CUDA out of memory. Tried to allocate 20.00 GiB; lower update.tokens_per_pass; the traceback is in "
        "update.log"
    )
