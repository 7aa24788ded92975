"""Training on two nodes of a real Slurm: the first one's job starts the other's processes by srun.

Both nodes are on this machine. The GPUs that the job asks for are only files, so training takes the CPU and gloo.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from snakemake_executor_plugin_slurm.submit_string import get_submit_command
from snakemake_executor_plugin_slurm.utils import set_gres_string

from tests import tiny
from tests.pipeline.processes import processes_with, wait_for
from tests.slurm.cluster import cluster, missing
from turncredit.data import tables
from turncredit.pipeline import resources
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.job_script import Description
from turncredit.pipeline.plan import Plan

pytestmark = [pytest.mark.slurm, pytest.mark.skipif(bool(missing()), reason=missing())]
SFT = {"epochs": 0.1, "optimizer": "adamw", "lr": 1e-3, "batch": 8}
SPREAD = {"train_gpus": 2, "train_nodes": 2}
#: Seconds in which a failure on one node ends the job on a busy machine.
SOON = 60


@pytest.fixture(scope="module")
def slurm(tmp_path_factory):
    with cluster(tmp_path_factory.mktemp("slurm"), nodes=2) as running:
        yield running


class Resources(dict):
    """Resources of a job as the plugin reads them."""

    __getattr__ = dict.get


def submitted(slurm, world, folder, **sft):
    """The warm start as a job on two nodes, submitted as Snakemake's plugin does: sbatch, which waits for its end."""
    job = world.job("sft", JobKeys(), folder, {"sft": {**SFT, **sft}, "policy": SPREAD})
    described = Description(
        stage="sft",
        rule="sft",
        slice=job.config.model_dump(mode="json"),
        config=tiny.mapping(sft={**SFT, **sft}, policy=SPREAD),
        input=job.input,
        output={**job.output, "metrics": str(folder / "metrics.json")},
        wildcards={"warm_start": "sft"},
        log=str(folder / "sft.log"),
    )
    file = folder / "sft.job.json"
    file.write_text(json.dumps(vars(described)), encoding="utf-8")
    experiment = tiny.experiment(sft={**SFT, **sft}, policy=SPREAD)
    wanted = resources.resource(Plan(experiment), "sft")
    asked = resources.requested(wanted, experiment.slurm("sft"), experiment.nodes("sft"))
    of_plugin = SimpleNamespace(resources=Resources(asked, mem_mb=wanted.mem_mb), threads=1)
    texts = dict.fromkeys(("account", "partition"), "")
    texts |= {"run_uuid": "run", "comment_str": "rule_sft", "slurm_logfile": folder / "slurm.log", "workdir": folder}
    command = get_submit_command(of_plugin, texts) + set_gres_string(of_plugin)
    script = tiny.ROOT / "workflow_scripts" / "stage.py"
    environment = {**os.environ, **slurm.environment, "PYTHONPATH": str(tiny.ROOT)}
    return subprocess.Popen(
        [*command.split(), "--wait", f"--wrap={sys.executable} {script} {file}"],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )


def test_a_warm_start_on_two_nodes_is_that_of_one(world, tmp_path, slurm):
    one = world.run("sft", JobKeys(), tmp_path / "one", {"sft": SFT})
    folder = tmp_path / "two"
    folder.mkdir()
    job = submitted(slurm, world, folder)
    assert job.wait(timeout=600) == 0, said(folder)
    shown = slurm.ask("scontrol", "show", "job", "-o", job.stdout.read().strip())
    assert "NumNodes=2" in shown
    assert re.search(r"TresPerNode=gres[:/]gpu:1\b", shown)
    rows = [tables.read(path, "sft_log").to_pandas() for path in (one.output["log"], next(folder.rglob("*.parquet")))]
    np.testing.assert_allclose(rows[1].loss, rows[0].loss, rtol=1e-4)


def test_a_process_that_is_killed_on_the_second_node_ends_the_job_with_a_line_that_names_the_node(
    world, tmp_path, slurm
):
    job = submitted(slurm, world, tmp_path, epochs=100)
    second = slurm.nodes[1]
    victims = []
    assert wait_for(lambda: victims.extend(trains_on(second)) or victims, 300), said(tmp_path)
    os.kill(victims[0], signal.SIGKILL)
    killed = time.monotonic()
    assert job.wait(timeout=600) != 0
    assert time.monotonic() - killed < SOON
    assert f"on node {second}: a process that trains was killed (SIGKILL)" in (tmp_path / "slurm.log").read_text()
    assert wait_for(lambda: not processes_with("turncredit.pipeline.gpu_processes"))
    assert not list(tmp_path.rglob("*.safetensors"))


def trains_on(node):
    """The process that trains on a node: the child of its program."""
    of_node = {
        pid
        for pid in processes_with("turncredit.pipeline.gpu_processes")
        if f"SLURMD_NODENAME={node}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
    }
    children = [Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="utf-8").split() for pid in of_node]
    return [int(child) for found in children for child in found if int(child) in of_node]


def said(folder):
    """The job's output, and its log."""
    return "\n".join(log.read_text() for log in folder.rglob("*.log"))
