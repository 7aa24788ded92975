"""What would stop jobs is said in one line before the first of them."""

from __future__ import annotations

import getpass
import importlib.machinery
import importlib.metadata
import importlib.util
import json
import math
import os
import re
import shutil
import subprocess
import sys
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from tests import presets, tiny
from tests.helpers import as_if_simulators_were_here
from turncredit.cli import doctor
from turncredit.config import from_mapping
from turncredit.errors import UserError
from turncredit.pipeline import checks, failures, machine, partitions, preflight
from turncredit.pipeline.failures import NodeFault
from turncredit.pipeline.learned_models import shapes
from turncredit.pipeline.partitions import Asked
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.preflight import Where, refuse
from turncredit.policy import cuda_driver, hub
from turncredit.policy.base import fetch_base

ROOT = Path(__file__).resolve().parents[2]
#: one of each paper and kind
PRESETS = (
    "qwen2.5-1.5b", "webshop", "own_agent", "continuations", "prompting", "audit", "has_table2", "hipif_table1_7b",
    "triage_table3", "triage_table10", "mgr_table1", "scpo_table1_1p5b",
)  # fmt: skip
STAGES = ("base", "sft", "rollout", "credit", "update", "eval", "invariants")
VLLM = {"policy": {"engine": "vllm"}}


def plan_of(**changes):
    return Plan(tiny.experiment(**changes))


@pytest.fixture
def installed(monkeypatch):
    """Which packages can be imported, and the version of torch."""
    packages, versions = {"peft"}, {"torch": "2.13.0+cu130"}
    real = importlib.util.find_spec
    spec = importlib.machinery.ModuleSpec("x", None)
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name: (spec if name in packages else None) if name in ("vllm", "peft") else real(name),
    )
    monkeypatch.setattr(importlib.metadata, "version", versions.__getitem__)
    return packages, versions


def stand_in(folder, name, script):
    """A program of this name in a folder."""
    (folder / name).write_text(f"#!/bin/sh\n{script}\n", encoding="utf-8")
    (folder / name).chmod(0o755)


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """A folder with stand-ins for conda, Apptainer and a C compiler, the only one on PATH."""
    folder = tmp_path / "programs"
    folder.mkdir()
    stand_in(folder, "conda", "echo conda 26.1.0")
    stand_in(folder, "apptainer", "echo apptainer version 1.4.5")
    stand_in(folder, "cc", "echo cc 14.2")
    monkeypatch.setenv("PATH", str(folder))
    return folder


def test_a_plain_experiment_is_not_refused():
    assert refuse(plan_of(), STAGES, Where()) == []


def test_what_stops_snakemake_itself_is_found_beside_missing_data_and_packages(monkeypatch, tmp_path):
    """All of them are listed: none hides another."""
    (tmp_path / "home").write_text("a file", encoding="utf-8")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.setattr(sys, "executable", "/my projects/.venv/bin/python")
    plan = plan_of(env={"household": {"source": "real", "data_root": "nowhere"}}, **VLLM)
    failed = [line for fine, line in preflight.findings(plan, STAGES, Where()) if fine is False]
    wanted = ("Snakemake cannot write its cache", "has a space in it", "no folder nowhere", "vllm is not installed")
    assert [part for part, line in zip(wanted, failed, strict=False) if part in line] == list(wanted)


def test_a_user_id_without_a_name_gets_one(monkeypatch):
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(os, "getuid", lambda: 54321)
    with pytest.raises((KeyError, OSError), match=r"54321|No username"):
        getpass.getuser()
    machine.name_the_user()
    assert getpass.getuser() == "uid54321"


def test_without_torch_jobs_that_read_a_policy_are_refused_with_the_extra_that_brings_it(monkeypatch):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "torch" else real(name))
    with pytest.raises(
        UserError,
        match=r"^the package torch is not installed in .*; pip install 'turncredit\[train\]' there, or add --s",
    ):
        refuse(plan_of(), STAGES, Where())


@pytest.mark.parametrize(
    ("sdm", "program", "missing"),
    [
        ("conda", "conda", "no conda is on PATH; install Miniforge "),
        ("apptainer", "apptainer", "no apptainer or singularity is on PATH; install Apptainer "),
    ],
)
def test_environments_are_refused_where_the_program_that_makes_them_is_missing(programs, sdm, program, missing):
    def found():
        return list(preflight.deployment(plan_of(), STAGES, Where(sdm)))

    [(fine, line)] = found()
    assert fine
    assert line.startswith(f"--sdm {sdm}: {program} ")
    stand_in(programs, program, "exit 1")
    [(fine, line)] = found()
    assert fine is False
    assert line.startswith(f"--sdm {sdm}: `{program} --version` fails; install ")
    (programs / program).unlink()
    stand_in(programs, "mamba", "echo mamba 2.0")  # Snakemake does not run it
    with pytest.raises(UserError, match=f"^--sdm {sdm}: missing: {missing}"):
        refuse(plan_of(), STAGES, Where(sdm))


def test_singularity_serves_where_apptainer_is_missing(programs):
    (programs / "apptainer").rename(programs / "singularity")
    stand_in(programs, "singularity", "echo singularity-ce version 4.3.1")
    [finding] = preflight.deployment(plan_of(), STAGES, Where("apptainer"))
    assert finding == (True, "--sdm apptainer: singularity-ce version 4.3.1")


@pytest.mark.parametrize("deployed", ["", "image"])
def test_jobs_without_environments_of_snakemake_need_no_program_that_makes_them(deployed):
    assert list(preflight.deployment(plan_of(), STAGES, Where(deployed))) == []


@pytest.mark.usefixtures("programs")
def test_vllm_that_is_not_there_is_refused_before_the_warm_start(installed):
    with pytest.raises(UserError, match=r"^policy.engine: vllm: the package vllm is not installed in .*--sdm conda"):
        refuse(plan_of(**VLLM), STAGES, Where(executor="other"))
    assert refuse(plan_of(**VLLM), ("sft", "update"), Where(executor="other")) == []
    assert refuse(plan_of(**VLLM), STAGES, Where("conda", executor="other")) == []
    installed[0].add("vllm")
    assert refuse(plan_of(**VLLM), STAGES, Where(executor="other")) == []


@pytest.mark.usefixtures("programs")
def test_a_build_of_torch_for_cpus_is_refused_where_jobs_ask_for_gpus(installed):
    asking = plan_of(resources={"update": {"gpu": 1}})
    installed[1]["torch"] = "2.13.0+cpu"
    every = ("sft", "rollout", "update", "eval", "invariants")
    instead = re.escape(f"set resources: {{{', '.join(f'{name}: {{gpu: 0}}' for name in every)}}}")
    with pytest.raises(UserError, match=rf"^{', '.join(every)} ask for GPUs, but torch .*, or {instead}$"):
        refuse(asking, STAGES, Where(executor="other"))
    one = plan_of(resources={name: {"gpu": int(name == "update")} for name in every})
    with pytest.raises(UserError, match=r"^update asks for a GPU, but torch .* set resources: {update: {gpu: 0}}$"):
        refuse(one, STAGES, Where(executor="other"))
    assert refuse(asking, STAGES, Where("conda", executor="other")) == []
    assert refuse(plan_of(), STAGES, Where()) == []


@pytest.mark.parametrize(("limit", "said"), [(0, "--resources gpu=0"), (8, "--resources gpu=8"), (None, "no limit")])
def test_several_jobs_on_the_first_gpu_of_one_machine_are_refused(limit, said):
    where = Where(asked=(Asked("update", gpus=1),), gpu_limit=limit)
    (found,) = preflight.one_gpu_job_at_a_time(plan_of(), STAGES, where)
    assert found.line.startswith(
        f"update asks for a GPU, and with {said} several such jobs would run on this machine's "
    )
    assert "give --resources gpu=1 " in found.line
    for fine in ({"gpu_limit": 1}, {"executor": "slurm"}, {"asked": (Asked("update"),)}):
        assert list(preflight.one_gpu_job_at_a_time(plan_of(), STAGES, replace(where, **fine))) == []


def test_a_model_that_lockstep_does_not_read_is_refused_before_any_job(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "gemma3_text"}))
    wrong = plan_of(policy={"source": str(tmp_path)})
    with pytest.raises(UserError, match=r"^policy.engine: the lockstep engine does not read .*'gemma3_text'"):
        refuse(wrong, STAGES, Where())
    other = plan_of(policy={"source": str(tmp_path), "engine": "transformers"})
    assert not [one for one in preflight.engines(other, STAGES, Where()) if not one.fine]


def test_weights_that_cannot_be_fetched_are_refused_where_they_are_named(monkeypatch):
    asked = []

    def snapshot(name, *, local_files_only=False, **_):
        asked.append((name, local_files_only))
        if local_files_only:
            raise LocalEntryNotFoundError("not in the cache")
        raise OSError("Network is unreachable")

    import huggingface_hub
    from huggingface_hub.errors import LocalEntryNotFoundError

    monkeypatch.setattr(huggingface_hub, "snapshot_download", snapshot)
    hub = plan_of(policy={"source": "Qwen/Qwen2.5-1.5B-Instruct"})
    with pytest.raises(UserError, match=r"^policy.source 'Qwen/.*cannot be fetched \(Network is unreachable\)$"):
        refuse(hub, STAGES, Where())
    assert [local for _, local in asked] == [True, False]  # the network only for what the cache lacks
    asked.clear()
    refuse(hub, ("update", "eval"), Where())  # the base model is there
    assert asked == []


def model_folder(folder, *weights, index=None):
    """A model's folder: its files of weights, and an index that names these parts."""
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_text("{}")
    for name in weights:
        save_file({"weight": np.zeros(8, np.float32)}, folder / name)
    if index is not None:
        (folder / hub.INDEX).write_text(json.dumps({"weight_map": {str(at): name for at, name in enumerate(index)}}))
    return folder


PARTS = ("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors")


@pytest.mark.parametrize(
    ("weights", "index", "lack"),
    [
        ((), None, "model.safetensors or model.safetensors.index.json"),
        (("adapter_model.safetensors",), None, "model.safetensors or model.safetensors.index.json"),
        (("model.safetensors",), None, None),
        (PARTS[:1], PARTS, f"{PARTS[1]}, one of 1 missing parts of its weights"),
        ((), PARTS, f"{PARTS[0]}, one of 2 missing parts of its weights"),
        (PARTS, PARTS, None),
    ],
)
def test_a_folder_without_all_weights_is_no_model(tmp_path, weights, index, lack):
    model_folder(tmp_path, *weights, index=index)
    assert hub.lacking(tmp_path, "policy") == lack


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json"])
def test_a_policys_folder_has_a_configuration_and_a_tokenizer(tmp_path, name):
    (model_folder(tmp_path, "model.safetensors") / name).unlink()
    assert hub.lacking(tmp_path, "policy") == name


def test_a_copy_that_was_cut_short_is_no_model(tmp_path):
    file = model_folder(tmp_path, *PARTS, index=PARTS) / PARTS[1]
    file.write_bytes(file.read_bytes()[:-1])
    assert hub.lacking(tmp_path, "policy") == f"whole {PARTS[1]}"
    (tmp_path / hub.INDEX).write_text('{"weight_map"')
    assert hub.lacking(tmp_path, "policy") == f"whole {hub.INDEX}"


def test_a_judges_server_reads_other_formats_than_policies(tmp_path):
    for name in ("params.json", "consolidated.bin", "tekken.json"):
        (tmp_path / name).touch()
    assert hub.lacking(tmp_path, "judge") is None
    (tmp_path / "consolidated.bin").unlink()
    assert hub.lacking(tmp_path, "judge") == "*.safetensors or *.bin or *.pt"
    assert hub.lacking(tmp_path, "scorer") == "config.json"


def test_a_folder_that_is_no_whole_model_is_refused_before_any_job_and_by_the_first(tmp_path):
    folder = str(model_folder(tmp_path))
    where = rf"^policy\.source '{folder}' has no model\.safetensors or .*; copy the whole model, or save it "
    with pytest.raises(UserError, match=where):
        refuse(plan_of(policy={"source": folder, "engine": "transformers"}), STAGES, Where())
    with pytest.raises(UserError, match=where):
        fetch_base(folder, None, tmp_path)
    others = {
        "judge.model": {"judge": {"kind": "llm", "serve": {"python": "python"}, "model": folder}},
        "define.near.params.scorer": {
            "define": {"near": {"base": "scpo", "params": {"scorer": f"bi-encoder:{folder}"}}}
        },
    }
    for key, changes in others.items():
        (found,) = preflight.weights(plan_of(**changes), ("label", "credit"), Where())
        assert (found.fine, found.line.startswith(f"{key} '{folder}' has no ")) == (False, True)


def test_every_pretrained_model_that_a_stage_reads_is_looked_at_first():
    judged = tiny.experiment(
        judge={"kind": "llm", "serve": {"python": "python"}, "model": "org/judge"},
        define={"near": {"base": "scpo", "params": {"scorer": "cross-encoder:org/ranker"}}},
        policy={"source": "org/policy"},
    )
    found = list(preflight.models_read(judged, (*STAGES, "label")))
    assert {name for _, name, _, _ in found} == {"org/policy", "org/judge", "org/ranker"}
    assert list(preflight.models_read(judged, ("update",))) == []


def test_too_little_time_is_a_warning_that_names_what_is_estimated(tmp_path):
    seven = {"source": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16", "engine": "transformers"}
    for runtime, fine in ((1, None), (10_000, True)):
        asked = {"rollout": {"gpu": 1, "runtime": runtime}}
        plan = Plan(tiny.experiment(policy=seven, rollout={"group_size": 4096}, resources=asked), tmp_path)
        (found,) = preflight.time(plan, STAGES, Where())
        assert found.fine is fine
        assert found.line.startswith("time: rollout takes about ") is (fine is None)


def test_too_little_disk_or_memory_is_a_warning_that_names_both_numbers(monkeypatch, tmp_path):
    seven = {"source": "Qwen/Qwen2.5-7B-Instruct", "dtype": "bfloat16", "engine": "transformers"}
    plan = Plan(tiny.experiment(policy=seven, resources={"update": {"gpu": 1}}), tmp_path)
    monkeypatch.setattr(preflight, "weights", lambda *_: iter(()))
    lines = [one.line for one in preflight.memory(plan, STAGES, Where(executor="other")) if one.fine is None]
    assert any(line.startswith("memory: update takes about ") for line in lines)
    usage = shutil.disk_usage(tmp_path)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=10**9))
    disk = next(preflight.disk(plan, STAGES, Where()))
    assert disk.fine is None
    assert "GB more, and" in disk.line
    assert "has 1 GB; keep_policies: last takes less" in disk.line


def test_environments_of_snakemake_that_lack_a_simulators_package_are_named(tmp_path, monkeypatch):
    """On the nodes every job that plays would fail, although the package is in .venv."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "envs_conda").mkdir()
    core, rollout = (tmp_path / f"envs_conda/{name}.post-deploy.sh" for name in ("core", "gpu-rollout"))
    for script in (core, rollout):
        script.write_text("python -m pip install -e .\n")

    def lines(deployed="conda", engine="vllm", name="virtualhome"):
        plan = plan_of(env={"name": name}, policy={"engine": engine})
        return [one.line for one in preflight.environments_package(plan, STAGES, Where(deployed))]

    (line,) = lines()
    assert line.startswith(
        "env.virtualhome: envs_conda/core.post-deploy.sh and envs_conda/gpu-rollout.post-deploy.sh do not install the "
        "package virtualhome, which jobs need with --sdm conda; add it there"
    )
    assert lines("") == lines("image") == lines(name="household") == []
    core.write_text("python -m pip install --no-deps virtualhome==2.3.0\n")
    assert lines(engine="lockstep") == []
    (line,) = lines()
    assert line.startswith("env.virtualhome: envs_conda/gpu-rollout.post-deploy.sh does not install the package")
    rollout.write_text(core.read_text())
    assert lines() == []


def test_a_judge_is_not_served_in_an_environment_without_vllm():
    judge = {"kind": "llm", "serve": {"python": "python"}}
    images = Where(deployed="conda")
    apart, together = plan_of(judge=judge), plan_of(judge=judge, granularity="run")
    assert all(one.fine for one in preflight.engines(apart, ("label",), images))
    refused = [one.line for one in preflight.engines(together, ("label",), images) if one.fine is False]
    assert [line[: line.index(",")] for line in refused] == ["judge.serve: with granularity run"]
    own = plan_of(judge={**judge, "serve": {"python": "/opt/vllm/bin/python"}}, granularity="run")
    assert all(one.fine for one in preflight.engines(own, ("label",), images))


#: as `sinfo --exact` lists them: partition, GPUs, limit of time, memory in MB, cores
CPU, GPU = "cpu*|(null)|1-00:00:00|64000|32", "gpu|gpu:a100:4(S:0-1)|infinite|512000|64"


def slurm_says(monkeypatch, sinfo, accounts=()):
    """Stand-ins for Slurm's commands."""
    monkeypatch.setattr(shutil, "which", lambda name: f"/usr/bin/{name}")
    monkeypatch.setattr(partitions, "printed", lambda *command: list(sinfo if command[0] == "sinfo" else accounts))


def found_by_slurm(plan, where):
    """What the check of Slurm finds, as the doctor asks for it."""
    where = where if where.asked is not None else replace(where, asked=doctor.asked_by_rules(plan, where))
    return list(preflight.slurm(plan, ("update",), where))


def refused_for(asked, *sinfo):
    """Why such a job cannot run in these partitions; None if it can."""
    with pytest.MonkeyPatch.context() as patch:
        slurm_says(patch, sinfo)
        return partitions.refusal(asked, partitions.listed())


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (
            Where(executor="slurm", partitions=("gpuu",)),
            "slurm_partition is 'gpuu', which Slurm does not have; there are cpu, gpu",
        ),
        (
            Where(executor="slurm", partitions=("cpu",)),
            "[a-z]+ asks for a GPU, and no node of the partition cpu has one",
        ),
        (
            Where(executor="slurm", partitions=("gpu",), accounts=("nobody",)),
            "slurm_account is 'nobody', and .* use lab",
        ),
    ],
)
def test_a_partition_or_account_that_slurm_does_not_have_is_refused(monkeypatch, where, said):
    slurm_says(monkeypatch, [CPU, GPU], ["lab"])
    plan = plan_of(resources={"update": {"gpu": 1}})
    found = [one for one in found_by_slurm(plan, where) if one.fine is False]
    assert re.match(said, found[0].line)
    for partition in ("gpu", "cpu,gpu"):
        right = Where(executor="slurm", partitions=(partition,), accounts=("lab",))
        assert [one.fine for one in found_by_slurm(plan, right)] == [True]


UPDATE = Asked("update", gpus=1, minutes=60, mem_mb=1000, cores=1)


@pytest.mark.parametrize(
    ("where", "partition"),
    [
        (Where(executor="slurm", asked=(UPDATE,)), "default partition cpu"),
        (
            Where(executor="slurm", partitions=("gpu",), own=(("update", "slurm_partition", "cpu"),)),
            "partition cpu",
        ),
        (
            Where(executor="slurm", partitions=("cpu", "gpu"), asked=(UPDATE._replace(partition="cpu"),)),
            "partition cpu",
        ),
    ],
)
def test_a_job_with_a_gpu_in_a_partition_without_one_is_refused_though_another_has_gpus(monkeypatch, where, partition):
    slurm_says(monkeypatch, [CPU, GPU])
    plan = plan_of(resources={"update": {"gpu": 1}})
    (found,) = found_by_slurm(plan, where)
    assert found.fine is False
    assert re.match(f"update asks for a GPU, and no node of the {partition} has one .*update:", found.line)


@pytest.mark.parametrize(
    "where",
    [
        Where(executor="slurm", partitions=("cpu", "gpu"), asked=(UPDATE._replace(partition="gpu"),)),
        Where(executor="slurm", partitions=("cpu",), asked=()),
    ],
)
def test_rules_without_gpus_may_be_in_a_partition_without_them(monkeypatch, where):
    slurm_says(monkeypatch, [CPU, GPU])
    plan = plan_of(resources={"update": {"gpu": 1}})
    assert [one.fine for one in found_by_slurm(plan, where)] == [True]


@pytest.mark.parametrize("order", [1, -1])
def test_a_partition_of_nodes_with_and_without_gpus_has_gpus(monkeypatch, order):
    slurm_says(monkeypatch, ["mixed|gpu:a100:2|infinite|64000|8", "mixed|(null)|infinite|64000|8"][::order])
    plan = plan_of(resources={"update": {"gpu": 1}})
    assert [one.fine for one in found_by_slurm(plan, Where(executor="slurm"))] == [True]


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"minutes": 1441}, "1,441 minutes, and a job in the default partition cpu gets 1,440 at most (sinfo); set "
         "resources.update.runtime to less, or name another with --set-resources update:slurm_partition=..."),
        ({"mem_mb": 64001}, "64,001 MB of memory, and no node of the default partition cpu has more than 64,000 "
         "(sinfo); set resources.update.mem_mb to less, or name another with --set-resources "
         "update:slurm_partition=..."),
        ({"cores": 33}, "33 cores, and no node of the default partition cpu has more than 32 (sinfo); set "
         "resources.update.threads to less, or name another with --set-resources update:slurm_partition=..."),
        ({"partition": "gpu", "gpus": 8}, "8 GPUs, and no node of the partition gpu has more than 4 (sinfo); set "
         "resources.update.gpu to less, or name another with --set-resources update:slurm_partition=..."),
    ],
)  # fmt: skip
def test_a_job_that_is_longer_or_larger_than_its_partition_allows_is_refused(more, said):
    fits = Asked("update", minutes=1440, mem_mb=64000, cores=32)
    assert refused_for(fits, CPU, GPU) is None
    assert refused_for(fits._replace(**more), CPU, GPU) == f"update asks for {said}"
    either = fits._replace(partition="cpu,gpu", **{name: value for name, value in more.items() if name == "minutes"})
    assert refused_for(either, CPU, GPU) is None


def test_a_job_has_to_fit_one_kind_of_node_as_a_whole():
    small, large = "all*|gpu:4|infinite|64000|8", "all*|(null)|infinite|512000|64"
    assert refused_for(UPDATE, small, large) is None
    assert refused_for(UPDATE._replace(gpus=0, mem_mb=500_000), small, large) is None
    assert refused_for(UPDATE._replace(mem_mb=500_000), small, large) == (
        "update asks for a GPU, 60 minutes, 500,000 MB of memory, 1 core, and no node of the default partition all "
        "offers all of it (sinfo); name another with --set-resources update:slurm_partition=..."
    )


def test_the_largest_memory_for_a_job_is_of_nodes_that_have_the_rest(monkeypatch):
    small, large = "all*|gpu:4|infinite|64000|8", "all*|(null)|infinite|512000|64"
    slurm_says(monkeypatch, [small, large, "other|(null)|infinite|900000|64"])
    evaluation = Asked("eval", cores=1, mem_mb=10**6)
    known = partitions.listed()
    assert partitions.largest_memory([UPDATE, evaluation], known) == {"update": 64000, "eval": 512000}
    assert partitions.largest_memory([evaluation, evaluation._replace(gpus=1)], known) == {"eval": 64000}
    assert partitions.largest_memory([evaluation._replace(partition="all,other")], known) == {"eval": 900_000}
    nowhere = [UPDATE._replace(gpus=8), evaluation._replace(partition="no")]
    assert partitions.largest_memory(nowhere, known) == {"update": math.inf, "eval": math.inf}


@pytest.mark.parametrize(
    "unknown",
    [
        "cpu*|(null)|infinite|64000+|8+",  # nodes differ
        "cpu*|(null)|infinite|0|0",  # none is listed: a cloud's that are switched off
        "cpu*|(null)|n/a|9999999|9999",
        "no answer",
    ],
)
def test_what_sinfo_does_not_say_is_no_reason_to_refuse(unknown):
    large = Asked("update", minutes=10**5, mem_mb=10**6, cores=1000)
    assert refused_for(large, unknown) is None


@pytest.mark.parametrize(
    ("limit", "minutes"),
    [("30:00", 30), ("2:00:00", 120), ("1-00:00:00", 1440), ("10-12:30:00", 15150), ("infinite", math.inf)],
)
def test_limits_of_time_are_read_as_sinfo_writes_them(limit, minutes):
    assert partitions.minutes_in(limit) == minutes


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("(null)", 0), ("gpu:4", 4), ("gpu:a100:4(S:0-1)", 4), ("gpu:a100:2,gpu:v100:2", 4),
        ("gpu:a100:8(S:0,1),mps:800", 8), ("gpu:a100_3g.20gb:2,nic:1", 2), ("gpu", 1), ("tmpdisk:100", 0),
    ],
)  # fmt: skip
def test_gpus_of_a_node_are_read_as_sinfo_writes_them(gres, gpus):
    assert partitions.gpus_in(gres) == gpus


def test_a_job_of_several_rounds_asks_for_the_sum_and_is_refused_where_that_is_too_long(monkeypatch):
    slurm_says(monkeypatch, ["cpu*|(null)|2:00:00|64000|8"])
    where = Where(executor="slurm")
    (found,) = found_by_slurm(plan_of(granularity="run"), where)
    assert re.match(
        r"rounds asks for [\d,]+ minutes, and a job in the default partition cpu gets 120 at most "
        r"\(sinfo\); put fewer rounds into a job \(.*rounds_per_job\), set resources\.rounds\.runtime to less, or ",
        found.line,
    )
    bounded = plan_of(granularity="run", resources={"rounds": {"runtime": 120}})
    assert [one.fine for one in found_by_slurm(bounded, where)] == [True]


def test_what_a_profile_gives_a_rule_is_what_it_asks_for(monkeypatch):
    slurm_says(monkeypatch, ["cpu*|(null)|2:00:00|64000|8"])
    long = plan_of(resources={"update": {"runtime": 200}})
    given = ("update", "runtime", "100")
    assert [one.fine for one in found_by_slurm(long, Where(executor="slurm"))] == [False]
    assert [one.fine for one in found_by_slurm(long, Where(executor="slurm", own=(given,)))] == [True]
    unread = ("update", "runtime", "2h")
    assert [one.fine for one in found_by_slurm(long, Where(executor="slurm", own=(unread,)))] == [True]


def test_a_job_that_asked_for_a_gpu_and_sees_none_ends_with_one_line():
    preflight.check_gpu("update", 0)
    preflight.check_gpu("label", 1)
    if torch.cuda.is_available():
        pytest.skip("there is a GPU here")
    with pytest.raises(UserError, match=r"^asks for 1 GPU on .* sees none .*resources\.update\.gpu to 0$"):
        preflight.check_gpu("update", 1)


def test_a_job_that_sees_fewer_gpus_than_it_asked_for_ends_with_one_line(monkeypatch):
    monkeypatch.setattr(cuda_driver, "fault", lambda _: "")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    preflight.check_gpu("update", 2)
    with pytest.raises(
        UserError, match=r"^asks for 4 GPUs on .*, and torch sees 2 \(CUDA_VISIBLE_DEVICES: 0,1\); .* give"
    ):
        preflight.check_gpu("update", 4)


def test_a_job_that_has_looked_for_its_gpu_can_still_fork_processes_that_use_one(monkeypatch):
    """A call of CUDA's count of devices marks all later forks as unable to use CUDA (torch/csrc/cuda/Module.cpp)."""
    marked = []
    monkeypatch.setenv("PYTORCH_NVML_BASED_CUDA_CHECK", "0")
    monkeypatch.setattr(torch._C, "_cuda_getDeviceCount", lambda: marked.append(True) or 1, raising=False)
    monkeypatch.setattr(torch.cuda, "_is_compiled", lambda: True)
    monkeypatch.setattr(torch.cuda, "_device_count_nvml", lambda: 1)
    monkeypatch.setattr(cuda_driver, "fault", lambda _: "")
    assert torch.cuda.is_available()
    assert marked.pop()
    preflight.check_gpu("rollout", 1)
    assert torch.cuda.is_available()  # what decides, later in the job, where a model goes
    assert not marked


DRIVER = """
int cuInit(unsigned flags) { return %d; }
int cuDriverGetVersion(int *version) { *version = %d; return 0; }
int cuGetErrorString(int error, const char **text) { *text = "system not yet initialized"; return 0; }
"""


@pytest.mark.skipif(shutil.which("gcc") is None, reason="a driver that stands in is compiled")
@pytest.mark.parametrize(
    ("error", "version", "fault"),
    [
        (0, 13000, ""),
        (0, 13020, ""),
        (0, 12080, r"^asks for 1 GPU on .*, where its driver is for CUDA 12\.8, too old for a build for 13\.0; fix"),
        (802, 13000, r"^asks for 1 GPU on .*, where CUDA does not start \(cuInit: error 802, system not yet initial"),
    ],
)
def test_a_gpu_with_whose_driver_cuda_does_not_start_is_a_fault_of_the_node(
    tmp_path, monkeypatch, error, version, fault
):
    """NVML counts such a GPU, and the job would compute on the CPU or end in vLLM."""
    (tmp_path / "driver.c").write_text(DRIVER % (error, version))
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", "libcuda.so.1", "driver.c"], cwd=tmp_path, check=True)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    with pytest.raises(NodeFault, match=fault) if fault else nullcontext():
        preflight.check_gpu("update", 1)


@pytest.mark.skipif(Path("/proc/driver/nvidia").exists(), reason="there is a driver here")
def test_a_node_without_a_driver_says_which_library_is_missing():
    assert cuda_driver.fault("13.0").startswith("CUDA does not start (OSError: libcuda.so.1: cannot open")


def test_a_program_runs_on_an_older_driver_of_the_same_major_version_of_cuda(monkeypatch):
    said = subprocess.CompletedProcess([], 0, "12040\n", "")
    monkeypatch.setattr(cuda_driver.subprocess, "run", lambda *_, **__: said)
    assert cuda_driver.fault("12.8") == ""
    assert cuda_driver.fault("13.0")


def test_the_doctor_knows_a_profile_by_its_folder():
    asked = doctor.setting(str(ROOT / "slurm"), None)
    assert (asked.executor, asked.deployed) == ("slurm", "")
    assert doctor.setting(None, "conda").deployed == "conda"
    with pytest.raises(UserError, match=r"^--profile nowhere: nowhere/config\.yaml does not exist"):
        doctor.setting("nowhere", None)


@pytest.mark.parametrize("profile", ["kubernetes", "aws-batch"])
def test_the_doctor_knows_that_a_clouds_jobs_run_in_an_image(profile):
    assert doctor.setting(str(ROOT / "profiles" / profile), None) == Where("image", profile, storage=True)


def test_jobs_of_several_stages_need_a_shared_file_system():
    refuse(plan_of(), STAGES, Where(storage=True))
    with pytest.raises(UserError, match=r"^granularity: round needs a file system that all jobs share; .* to stage$"):
        refuse(plan_of(granularity="round"), STAGES, Where(storage=True))
    refuse(plan_of(granularity="round"), STAGES, Where())


@pytest.mark.usefixtures("programs")
def test_an_image_that_has_not_been_built_is_refused_with_the_command_that_builds_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match=r"^containers/core\.sif: there is no such image; build it: apptainer build "):
        refuse(plan_of(), STAGES, Where("apptainer"))
    (tmp_path / "containers").mkdir()
    (tmp_path / "containers/core.sif").touch()
    refuse(plan_of(), (*STAGES, "rounds"), Where("apptainer"))  # with the script of several rounds, which is no stage
    with pytest.raises(UserError, match=r"--build-arg environment=gpu-rollout containers/gpu-rollout\.sif "):
        refuse(plan_of(**VLLM), STAGES, Where("apptainer"))


def test_default_resources_of_a_profile_are_read_in_both_forms(tmp_path):
    for written in ("{slurm_partition: \"'gpu'\", slurm_account: lab}", "[slurm_partition=gpu, slurm_account=lab]"):
        (tmp_path / "config.yaml").write_text(f"executor: slurm\nsdm: conda\ndefault-resources: {written}\n")
        assert doctor.setting(str(tmp_path), None) == Where("conda", "slurm", ("gpu",), ("lab",))


def test_partitions_of_rules_in_a_profile_are_read_in_both_forms(tmp_path):
    for written in ("{update: {slurm_partition: gpu}, eval: {mem_mb: 1}}", "['update:slurm_partition=gpu']"):
        (tmp_path / "config.yaml").write_text(f"executor: slurm\nset-resources: {written}\n")
        assert doctor.setting(str(tmp_path), None).own[0] == ("update", "slurm_partition", "gpu")


def test_the_miniature_evaluates_its_own_rounds_where_the_whole_names_later_ones():
    small = from_mapping(doctor.miniature(tiny.experiment(rounds=5, eval={"rounds": [3, 5]})))
    assert small.eval_rounds() == [1, 2]


@pytest.mark.parametrize("name", PRESETS)
def test_the_miniature_of_a_configuration_is_valid_small_and_asks_for_what_the_whole_asks_for(name, monkeypatch):
    monkeypatch.chdir(ROOT)
    as_if_simulators_were_here(monkeypatch)
    experiment = presets.experiment(name)
    small = from_mapping(doctor.miniature(experiment))
    checks.check(small)
    assert (small.experiment, small.sweep) == (f"{experiment.experiment}_doctor", None)
    assert small.methods == experiment.methods
    assert small.policy.engine == experiment.policy.engine
    assert shapes(small).parameters < 1e6
    assert {stage: small.gpus(stage) for stage in STAGES} == {stage: experiment.gpus(stage) for stage in STAGES}
    assert {small.section_for(name, "rollout").tasks for name in small.methods} == {2}


NO_SFT = {"sft": {"epochs": 0}}


@pytest.mark.parametrize(
    "changes",
    [
        {"policy": {"source": "Qwen/Qwen3-4B", "chat_template": {"enable_thinking": False}}},
        {"policy": {"source": "some/long"}, "agent": {"name": "hipif", "hipif": {"max_prompt_tokens": 30000}}},
        {"policy": {"source": "some/model"}, **NO_SFT, "env": {"name": "appworld"}, "agent": {"name": "code"}},
    ],
    ids=["a chat template", "long contexts", "no expert"],
)
def test_the_miniature_is_valid_where_a_model_from_scratch_is_another(changes):
    experiment = tiny.experiment(methods=["flat_grpo"], **changes)
    checks.check(experiment, installed=False)
    small = from_mapping(doctor.miniature(experiment))
    checks.check(small, installed=False)
    assert small.policy.source == ("some/model" if "env" in changes else "scratch")


@pytest.mark.parametrize(
    ("when_ended", "said"),
    [("exit 1", "Snakemake was ended, and has cancelled its jobs"), (":", "Snakemake was killed; cancel its jobs")],
)
def test_jobs_that_do_not_start_do_not_hold_the_doctor(tmp_path, monkeypatch, capsys, when_ended, said):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    stand_in = tmp_path / "python"
    stand_in.write_text(
        f"#!/bin/sh\ntrap 'echo cancelled > cancelled; {when_ended}' INT\nwhile :; do sleep 0.1; done\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(doctor, "SNAKEMAKE", (str(stand_in),))
    monkeypatch.setattr(doctor, "CANCELS_WITHIN", 1.0)
    assert doctor.try_jobs(tiny.experiment(), "slurm", None, 0.05)
    assert f"FAIL  not every job has ended after 0.05 minutes (--minutes); {said}" in capsys.readouterr().out
    assert (tmp_path / "cancelled").exists()


@pytest.mark.parametrize(("status", "runs"), [(0, True), (1, False)])
def test_the_doctor_makes_environments_before_its_clock_starts(tmp_path, monkeypatch, capsys, status, runs):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Snakefile").touch()
    stand_in = tmp_path / "python"
    stand_in.write_text(
        '#!/bin/sh\ncase "$*" in *--conda-create-envs-only) '
        f"sleep 1.2; echo CreateCondaEnvironmentException >&2; exit {status};; *) touch ran;; esac\n"
    )
    stand_in.chmod(0o755)
    monkeypatch.setattr(doctor, "SNAKEMAKE", (str(stand_in),))
    assert doctor.try_jobs(tiny.experiment(), "slurm", "conda", 1 / 60, conda=True) is not runs
    assert (tmp_path / "ran").exists() is runs
    assert ("FAIL  CreateCondaEnvironmentException" in capsys.readouterr().out) is not runs


def doctor_says(folder: Path, monkeypatch, capsys, script: str) -> str:
    """What the doctor prints of a miniature for which `script`, of the shell, stands in for Snakemake."""
    monkeypatch.chdir(folder)
    (folder / "Snakefile").touch()
    stand_in = folder / "python"
    stand_in.write_text(f"#!/bin/sh\n{script}\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(doctor, "SNAKEMAKE", (str(stand_in),))
    doctor.try_jobs(tiny.experiment(), None, None, 1)
    return capsys.readouterr().out


NOTE = "echo 'turncredit: warning: disk: the results take more than there is' >&2"


def test_a_note_does_not_hide_from_the_doctor_why_its_jobs_failed(tmp_path, monkeypatch, capsys):
    begun = "echo 'Select jobs to execute...' >&2; echo 'sbatch: error: invalid qos' >&2"
    said = doctor_says(tmp_path, monkeypatch, capsys, f"{NOTE}; {begun}; exit 1")
    assert "FAIL  sbatch: error: invalid qos" in said


def test_the_doctor_says_why_no_job_was_begun(tmp_path, monkeypatch, capsys):
    said = doctor_says(tmp_path, monkeypatch, capsys, f"echo Building >&2; {NOTE.replace('warning: ', '')}; exit 2")
    assert [line for line in said.splitlines() if line.startswith("FAIL")] == [
        "FAIL  turncredit: disk: the results take more than there is"
    ]


def test_what_failed_in_an_earlier_miniature_is_no_finding_of_this_one(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    with (
        pytest.raises(failures.JobFailed, match=r"^1$"),
        failures.recorded("update", {"method": "flat_grpo", "seed": "0", "round": "01"}, "results/tiny_doctor"),
    ):
        raise failures.JobFailed(1, "update flat_grpo seed0 round01: no memory", None)
    assert "FAIL" not in doctor_says(tmp_path, monkeypatch, capsys, "exit 0")


def test_missing_games_are_one_of_the_doctors_findings(tmp_path, monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    real = {"source": "real", "data_root": str(tmp_path)}
    plan = Plan(tiny.experiment(env={"household": real}, policy={"engine": "vllm"}))
    found = list(preflight.findings(plan, {"tasks", "rollout"}, preflight.Where()))
    missing = [line for fine, line in found if fine is False]
    assert f"no folder {tmp_path}/json_2.1.1" in missing[0]
    assert any("vllm" in line for line in missing[1:])
