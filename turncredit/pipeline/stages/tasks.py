"""Stage `tasks`: the games for training, or the held-out ones."""

from __future__ import annotations

from collections import Counter

from turncredit.config import EnvSlice
from turncredit.config.stages import Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.rollouts.tasks import make_tasks


class Config(Slice):
    """The environment, one or several of its splits, and the number of games."""

    env: EnvSlice
    split: str | list[str]
    count: int
    seed: int


def config(plan: Plan, at: JobKeys) -> Config:
    """The part of `tasks` about this split."""
    tasks = plan.experiment.tasks
    train = at.split == "train"
    return Config(
        env=plan.env,
        split=tasks.train_split if train else tasks.eval_split,
        count=tasks.train if train else tasks.eval,
        seed=tasks.seed,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """No table: games are generated, or read from the environment's own files."""
    return {**plan.environment_file}


def run(job: Job) -> dict[str, float]:
    """Write the games; returns their number, in total and by family."""
    config: Config = job.config
    table = make_tasks(config.env, config.split, config.count, config.seed, key=f"tasks.{job.at.split}")
    job.write("tasks", table)
    families = Counter(table.column("family").to_pylist())
    return {
        "games": float(table.num_rows),
        **{f"games_{family}": float(count) for family, count in sorted(families.items())},
    }


STAGE = Stage(
    name="tasks",
    after="config",
    phase="start",
    message="Games of the split {split}",
    makes={"tasks": table("tasks", "tasks", "{split}")},
    folder="tasks",
    file="tasks-{split}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
)
