"""Stage `forks`: rollouts that fork from states of a round's rollouts, for methods that credit a tree of each task."""

from __future__ import annotations

from turncredit.config.layout import forks_name, named_forks
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.pipeline.job import Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import (
    PlayingSlice,
    as_sampled,
    common_columns,
    open_player,
    played_with,
    sampled_turns,
)
from turncredit.pipeline.resources.work import Played, Work


class Config(PlayingSlice):
    """Environment, agent, and how many forks."""

    per_task: int
    slots: int


def config(plan: Plan, at: JobKeys) -> Config:
    """How the policy plays; the number of forks is among the keys."""
    return Config(
        **played_with(plan, at),
        per_task=named_forks(at.forks),
        slots=plan.sampling(at.policy).slots,
    )


inputs, runtime_options = sampled_turns, as_sampled


def run(job: Job) -> dict[str, float]:
    """Write the forks' turns; returns their number, their cost, and how many states have several actions."""
    from turncredit.data.columns import only_value
    from turncredit.rollouts.forks import forks

    config, at = job.config, job.at
    player = open_player(job, config.slots)
    turns = job.table("turns", "turns")
    temperature = only_value(turns, "temperature", job.path("turns"), "forking")
    table, metrics = forks(
        player,
        turns,
        config.per_task,
        seed=at.seed,
        round=at.round,
        common=common_columns(at, player, temperature),
        where=job.path("turns"),
    )
    job.write("forks", table)
    return metrics


def needed(plan: Plan, method: str) -> bool:
    """Whether the method credits forks beside rollouts."""
    return plan.forks_per_task(method) is not None


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys | None:
    """Their number of each task is a key."""
    per_task = plan.forks_per_task(method)
    return None if per_task is None else plan.beside(turns, forks=forks_name(per_task))


def gpu_work(work: Work) -> Played:
    """Those of all tasks side by side, those of one task one after the other (docs/methods/carl.md)."""
    tasks = work.rollout.tasks
    return Played(tasks * named_forks(work.at.forks), work.turns_left, tasks)


STAGE = Stage(
    name="forks",
    after="continuations",
    phase="signal",
    message="Forks ({forks}) of the rollouts of {policy}, seed {seed}, round {round}",
    makes={"forks": table("forks", f"{ROLLOUTS}/forks", "{forks}")},
    folder=ROLLOUTS,
    file="forks-{forks}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    varies_by=("policy", "forks"),
    runtime_options=runtime_options,
    needed=needed,
    keys=keys,
    policy="samples",
    gpu_work=gpu_work,
)
