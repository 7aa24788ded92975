"""Stage `demos`: demonstrations of the environment's expert on the training games, or on games of their own."""

from __future__ import annotations

import pyarrow.compute as pc

from turncredit import envs
from turncredit.config import DemosConfig, EnvSlice
from turncredit.config.stages import Stage, table
from turncredit.data import tables
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan, Playing
from turncredit.rollouts.demos import make_demos
from turncredit.rollouts.tasks import Games


class Config(Slice):
    """The environment, and the mistakes of its expert."""

    env: EnvSlice
    demos: DemosConfig


def config(plan: Plan, at: JobKeys) -> Config:
    """`env` and `demos`."""
    return Config(env=plan.env, demos=plan.experiment.demos)


def runtime_options(plan: Plan, at: JobKeys) -> Playing:
    """The time limit of an environment's call."""
    return plan.playing()


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The games that are demonstrated."""
    return {"tasks": plan.layout.path("tasks", split=plan.demonstrated), **plan.environment_file}


def run(job: Job) -> dict[str, float]:
    """Write the demonstrations; returns their success and length. Without an expert the table has no rows."""
    config: Config = job.config
    if envs.load(config.env.name).expert is None:
        job.write("demos", tables.schema("demos").empty_table())
        return {"demonstrations": 0.0}
    games = Games(config.env, job.table("tasks", "tasks"), job.path("tasks"), timeout=job.runtime_options.timeout)
    table = make_demos(games, config.demos, processes=job.threads)
    job.write("demos", table)
    won = pc.sum(table.filter(pc.equal(table["turn"], 0))["success"]).as_py()
    count = config.demos.count
    return {"demonstrations": float(count), "success": won / count, "turns": len(table) / count}


STAGE = Stage(
    name="demos",
    after="tasks",
    phase="start",
    message="Demonstrations",
    makes={"demos": table("demos", "demos")},
    folder="demos",
    file="demos",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
)
