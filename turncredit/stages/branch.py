"""Stage `branch`: ground truth for the credit of sampled turns, by continuing from before and after each of them."""

from __future__ import annotations

from turncredit.config import BranchConfig
from turncredit.stages.job import At, Inputs, Job
from turncredit.stages.plan import Plan, Playing
from turncredit.stages.playing import PlayingSlice, open_player, played_with


class Config(PlayingSlice):
    """Environment, agent, and the numbers of turns and continuations."""

    branch: BranchConfig
    slots: int


def config(plan: Plan, at: At) -> Config:
    """`audit.branch`, and how the policy plays."""
    whole = plan.experiment
    return Config(
        **played_with(plan, at),
        branch=whole.audit.branch,
        slots=whole.rollout.slots,
    )


def operation(plan: Plan, at: At) -> Playing:
    """The number of processes that share the work, and the time limit of an environment's call."""
    return plan.playing()


def inputs(plan: Plan, at: At) -> Inputs:
    """The policy that sampled, the training games, and the turns with the planner's distance where there is one."""
    path = plan.layout.path
    files: Inputs = {"policy": plan.sampler(at), "tasks": path("tasks", split="train"), "turns": path("turns", at.keys)}
    measured: Inputs = {"measures": path("measures", at.keys)} if plan.measurable(at) else {}
    return {**files, **measured, **plan.plugin_files(at)}


OUTPUTS = {"branches": "branches"}


def run(job: Job) -> dict[str, float]:
    """Write the true advantages; returns their number, cost and precision."""
    from turncredit.truth.branch import branch

    config, at = job.config, job.at
    player = open_player(job, config.slots)
    measures = job.table("measures", "measures") if "measures" in job.input else None
    table, metrics = branch(
        player,
        job.table("turns", "turns"),
        config.branch,
        measures=measures,
        seed=at.seed,
        round=at.round,
        where=job.path("turns"),
    )
    job.write("branches", table)
    return metrics
