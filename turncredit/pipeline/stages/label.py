"""Stage `label`: a judge's labels for a table of turns."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NamedTuple

from turncredit.config.judge import JudgeConfig, decides, judge_name
from turncredit.config.layout import JUDGE_CACHE
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.credit.parts.configured import ask_of
from turncredit.data.progress import progress
from turncredit.judges.label import costs, label_turns
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The part of the judge's configuration that determines its labels."""

    judge: dict[str, Any]


class RuntimeOptions(NamedTuple):
    """The whole judge (address, concurrent requests, ...), and the folder of cached answers."""

    judge: JudgeConfig
    cache: str


def config(plan: Plan, at: JobKeys) -> Config:
    """The judge's name is among the keys; this is the rest that determines its labels."""
    return Config(judge=decides(plan.experiment.judge))


def runtime_options(plan: Plan, at: JobKeys) -> RuntimeOptions:
    """All experiments share one cache."""
    return RuntimeOptions(plan.experiment.judge, str(plan.results / JUDGE_CACHE))


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns."""
    return {"turns": plan.layout.path("turns", at.keys)}


def run(job: Job) -> dict[str, float]:
    """Write the labels; returns their cost.

    With `judge.serve` the model's server runs on this node for the duration of the job.
    """
    turns = job.table("turns", "turns")
    judge, cache = job.runtime_options
    with ExitStack() as stack:
        if judge.serve is not None:
            from turncredit.judges.serve import serving

            judge = stack.enter_context(serving(judge))
        labels = label_turns(
            turns,
            judge,
            ask=job.at.question,  # type: ignore[arg-type]
            cache=cache,
            where=job.path("turns"),
            progress=lambda done: progress(done, turns.num_rows),
        )
    job.write("labels", labels)
    return costs(labels)


def needed(plan: Plan, method: str) -> bool:
    """Whether credit reads labels."""
    return "labels" in plan.method(method).needs


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """The judge and the question are keys, so that methods with the same question share its labels."""
    return plan.beside(turns, judge=judge_name(plan.experiment.judge), question=ask_of(plan.method(method)))


STAGE = Stage(
    name="label",
    after="forks",
    phase="signal",
    message="Labels ({question}) of the rollouts of {policy}, seed {seed}, round {round}, by {judge}",
    makes={"labels": table("labels", f"{ROLLOUTS}/labels", "{judge}-{question}")},
    folder=ROLLOUTS,
    file="label-{judge}-{question}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    needed=needed,
    keys=keys,
)
