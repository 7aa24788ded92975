"""The team of a stage that trains: processes of one job on the CPU, or one a GPU (`policy.train_gpus`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from turncredit.data import provenance
from turncredit.pipeline.job import Job, Store

if TYPE_CHECKING:
    from turncredit.training.team import Team

Metrics = dict[str, float]


def with_team(job: Job, run: Callable[[Job, Team], Metrics]) -> Metrics:
    """`run(job, team)` here, or in as many processes as there are GPUs to train on, of which the first one writes."""
    if job.config.train_gpus == 1:
        from turncredit.training.team import Team

        return run(job, Team(job.threads))
    from turncredit.training.fsdp import launched

    # The others read policies from their folders, and the first of them is on the GPU that this process may have used.
    job.store.release()
    alone = replace(job, store=Store())
    metrics, hashes = launched(job.config.train_gpus, _knowing, provenance.known_hashes, run, alone)
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
