"""Stage `label`: a judge's labels for a table of turns."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

from turncredit.config.judge import JudgeConfig, decides
from turncredit.config.layout import JUDGE_CACHE
from turncredit.data.progress import progress
from turncredit.judges.label import costs, label_turns
from turncredit.pipeline.job import At, Inputs, Job, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The part of the judge's configuration that determines its labels."""

    judge: dict[str, Any]


class Operation(NamedTuple):
    """The whole judge (address, concurrent requests, ...), and the folder of cached answers."""

    judge: JudgeConfig
    cache: str


def config(plan: Plan, at: At) -> Config:
    """The judge's name is among the keys; this is the rest that determines its labels."""
    return Config(judge=decides(plan.experiment.judge))


def operation(plan: Plan, at: At) -> Operation:
    """All experiments share one cache."""
    return Operation(plan.experiment.judge, str(plan.results / JUDGE_CACHE))


def inputs(plan: Plan, at: At) -> Inputs:
    """The turns."""
    return {"turns": plan.layout.path("turns", at.keys)}


OUTPUTS = {"labels": "labels"}


def run(job: Job) -> dict[str, float]:
    """Write the labels; returns their cost.

    With `judge.serve` the model's server runs on this node for the duration of the job.
    """
    turns = job.table("turns", "turns")
    judge, cache = job.operation
    with ExitStack() as stack:
        if judge.serve is not None:
            from turncredit.judges.serve import serving

            judge = stack.enter_context(serving(judge))
        labels = label_turns(
            turns,
            judge,
            ask=job.at.ask,  # type: ignore[arg-type]
            cache=cache,
            where=job.path("turns"),
            progress=lambda done: progress(done, turns.num_rows),
        )
    job.write("labels", labels)
    return costs(labels)
