"""Stage `branch`: ground truth for the credit of sampled turns, by continuing from before and after each of them."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import BranchConfig
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice, as_configured, open_player, played_with, sampled_turns
from turncredit.pipeline.resources.work import Played, Work


class Config(PlayingSlice):
    """Environment, agent, and the numbers of turns and continuations."""

    branch: BranchConfig
    slots: int


def config(plan: Plan, at: JobKeys) -> Config:
    """`audit.branch`, and how the policy plays."""
    experiment = plan.experiment
    return Config(
        **played_with(plan, at),
        branch=experiment.audit.branch,
        slots=experiment.rollout.slots,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The policy that sampled, the training games, and the turns with the planner's distance where there is one."""
    measured: Inputs = {"measures": plan.layout.path("measures", at.keys)} if plan.measurable(at) else {}
    return {**sampled_turns(plan, at), **measured}


runtime_options = as_configured


def warning(metrics: Mapping[str, float]) -> str | None:
    """A line where the budget was exceeded, or left states with fewer continuations than the target asks for."""
    made, wanted, played, budget = (
        int(metrics[name]) for name in ("continuations", "continuations_wanted", "turns_played", "budget_turns")
    )
    if made >= wanted and played <= budget:
        return None
    return (
        f"{made:,} of the {wanted:,} continuations that target_se asks for, in {played:,} turns of audit.branch."
        f"budget_turns {budget:,}: min_continuations from each state are played whatever they cost, further ones as "
        "far as they are estimated to fit"
    )


def run(job: Job) -> dict[str, float]:
    """Write the true advantages; returns their number, cost and precision."""
    from turncredit.audit.branch import branch

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


def gpu_work(work: Work) -> Played:
    """The most continuations of each sampled turn that the budget allows, the first of them in any case."""
    branch = work.experiment.audit.branch
    allowed = int(branch.budget_turns / (branch.turns * work.turns_left))
    number = branch.turns * max(branch.min_continuations, min(branch.max_continuations, allowed))
    return Played(number, work.turns_left, number)


STAGE = Stage(
    name="branch",
    after="invariants",
    phase="audit",
    message="Ground truth for the rollouts of {policy}, seed {seed}, round {round}",
    makes={"branches": table("branches", ROLLOUTS)},
    folder=ROLLOUTS,
    file="branch",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    warning=warning,
    policy="samples",
    gpu_work=gpu_work,
)
