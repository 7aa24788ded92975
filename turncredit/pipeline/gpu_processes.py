"""A stage that trains, on one GPU or on several (`policy.train_gpus`)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from turncredit.pipeline.job import Job, Store

Metrics = dict[str, float]


def on_gpus(job: Job, run: Callable[[Job, Any], Metrics]) -> Metrics:
    """`run(job, ranks)` in as many processes as the job's slice says, or here, without ranks, if that is one.

    Only the first process writes, and returns what this does.
    """
    if job.config.train_gpus == 1:
        return run(job, None)
    from turncredit.training.ranks import launched

    # The others read policies from their folders, and the first of them is on the GPU that this process may have used.
    job.store.release()
    metrics = launched(job.config.train_gpus, _in_rank, replace(job, store=Store()), run)
    for path in job.output.values():
        job.store.changed(path)
    return metrics


def _in_rank(ranks: Any, job: Job, run: Callable[[Job, Any], Metrics]) -> Metrics:
    return run(job, ranks)
