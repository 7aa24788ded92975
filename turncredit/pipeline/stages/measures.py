"""Stage `measures`: progress and distance of every turn, by replaying the rollouts in their games.

They are a table beside the turns, so that a first method or audit that reads them repeats no rollout.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow.compute as pc

from turncredit.config import EnvSlice
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The environment. All its measures are recorded, whichever are read: another method's credit stays as it is."""

    env: EnvSlice


class RuntimeOptions(NamedTuple):
    """How many rollouts are replayed side by side, and the time limit of an environment's call in seconds."""

    slots: int
    timeout: float | None


def config(plan: Plan, at: JobKeys) -> Config:
    """`env`."""
    return Config(env=plan.env)


def runtime_options(plan: Plan, at: JobKeys) -> RuntimeOptions:
    """As many rollouts at a time as when they were played."""
    return RuntimeOptions(plan.sampling(at.policy).slots, plan.experiment.env.timeout)


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns, and the training games."""
    path = plan.layout.path
    return {"turns": path("turns", at.keys), "tasks": path("tasks", split="train"), **plan.environment_file}


def run(job: Job) -> dict[str, float]:
    """Write the measures; returns the progress that rollouts end with, and how often the goal is out of reach."""
    from turncredit.rollouts.measures import COLUMNS, OPTIONAL, measure
    from turncredit.rollouts.tasks import Games

    slots, timeout = job.runtime_options
    tasks, turns = job.table("tasks", "tasks"), job.table("turns", columns=COLUMNS, optional=OPTIONAL)
    played = pc.is_in(tasks.column("task_id"), value_set=pc.unique(turns.column("task_id")))
    games = Games(job.config.env, tasks.filter(played), job.path("tasks"), timeout=timeout)
    table = measure(games, turns, slots=slots, where=job.path("turns"))
    job.write("measures", table)
    metrics = {"turns": float(table.num_rows)}
    if games.can("progress"):
        metrics["progress"] = float(np.mean(table.column("progress").to_numpy()))
    if games.can("distance"):
        metrics["out_of_reach"] = float(np.mean(table.column("distance").to_numpy() < 0))
    return metrics


def needed(plan: Plan, method: str) -> bool:
    """Whether credit, or the model behind it, reads progress or distance."""
    return plan.credit_reads_measures(method) or plan.model_reads_measures(method)


STAGE = Stage(
    name="measures",
    after="rollout",
    phase="signal",
    message="Progress and distance on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"measures": table("measures", ROLLOUTS)},
    folder=ROLLOUTS,
    file="measures",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    needed=needed,
)
