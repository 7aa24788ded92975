"""The team of a stage that trains: processes of one job on the CPU, or one a GPU (`policy.train_gpus`).

With `policy.train_nodes` above 1 they are spread over the nodes of a Slurm job. It starts on the first of them, and has
srun start on each other one

    python -m turncredit.pipeline.gpu_processes      # with the job on stdin, as JSON
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from turncredit.config import stages
from turncredit.data import provenance
from turncredit.pipeline import slurm
from turncredit.pipeline.job import Job, JobKeys, Store
from turncredit.pipeline.plan import Plan

if TYPE_CHECKING:
    from turncredit.training.team import Team

Metrics = dict[str, float]


def train_nodes(plan: Plan, _at: JobKeys) -> int:
    """The runtime options of a stage that trains: the number of nodes that its processes are spread over."""
    return plan.experiment.policy.train_nodes


def with_team(job: Job, run: Callable[[Job, Team], Metrics]) -> Metrics:
    """`run(job, team)` here, or in as many processes as there are GPUs to train on, of which the first one writes.

    On the first node the job's runtime options are the number of its nodes; on the others they are the node.
    """
    if job.config.train_gpus == 1:
        from turncredit.training.team import Team

        return run(job, Team(job.threads))
    from turncredit.training.processes import joined, launched

    processes, nodes = job.config.train_gpus, job.runtime_options or 1
    # The others read policies from their folders, and the first of them is on the GPU that this process may have used.
    job.store.release()
    alone = replace(job, store=Store())
    alone.hash_own_files()
    if not isinstance(nodes, int):
        joined(nodes, processes, _knowing, provenance.known_hashes, run, alone)
        return {}
    start_others = partial(_start_others, job) if nodes > 1 else lambda _: {}
    metrics, hashes = launched(processes, _knowing, provenance.known_hashes, run, alone, start_others=start_others)
    provenance.known_hashes.update(hashes)
    for path in job.output.values():
        job.store.changed(path)
    return metrics


def _knowing(
    hashes: dict[tuple[int, ...], str], run: Callable[[Job, Team], Metrics], job: Job, team: Team
) -> tuple[Metrics, dict[tuple[int, ...], str]]:
    """`run` in a process that knows these hashes of files, and all that it knows afterwards."""
    provenance.known_hashes.update(hashes)
    return run(job, team), provenance.known_hashes


def _start_others(job: Job, port: int) -> dict[str, subprocess.Popen[str]]:
    """Start the job's program on the other nodes, by their names. The first node's store listens at `port`."""
    programs = {}
    for number, name in enumerate(slurm.other_nodes(job.runtime_options), start=1):
        command = [sys.executable, "-m", "turncredit.data.process_lifetime"]
        command += [*slurm.started_on(name), sys.executable, "-m", "turncredit.pipeline.gpu_processes"]
        programs[name] = subprocess.Popen(command, stdin=subprocess.PIPE, text=True)
        described = _described(job, {"number": number, "count": job.runtime_options, "port": port})
        with suppress(BrokenPipeError), programs[name].stdin as stdin:  # type: ignore[union-attr]
            stdin.write(described)
    return programs


def _described(job: Job, node: dict[str, int]) -> str:
    """The job as another node reads it."""
    parts: dict[str, Any] = {name: getattr(job, name) for name in ("stage", "input", "output", "threads")}
    return json.dumps({**parts, "at": asdict(job.at), "config": job.config.model_dump(mode="json"), "node": node})


def _read(described: str) -> Job:
    """The job that the first node has described, whose runtime options are this node."""
    from turncredit.training.processes import Node

    parts = json.loads(described)
    record = stages.stage(parts["stage"])
    node = Node(**parts.pop("node"), address=os.environ.get("SLURM_LAUNCH_NODE_IPADDR", "localhost"))
    at, config = JobKeys(**parts.pop("at")), record.part.model_validate(parts.pop("config"))
    return Job(**parts, at=at, config=config, makes=record.makes, runtime_options=node)


if __name__ == "__main__":
    job = _read(sys.stdin.read())
    stages.stage(job.stage).run(job)
