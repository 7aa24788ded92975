"""Stage `forks`: rollouts that fork from states of a round's rollouts, for methods that credit a tree of each task."""

from __future__ import annotations

from turncredit.config.layout import named_forks
from turncredit.pipeline.job import At, Job
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import (
    PlayingSlice,
    as_sampled,
    common_columns,
    open_player,
    played_with,
    sampled_turns,
)


class Config(PlayingSlice):
    """Environment, agent, and how many forks."""

    per_task: int
    slots: int


def config(plan: Plan, at: At) -> Config:
    """How the policy plays; the number of forks is among the keys."""
    return Config(
        **played_with(plan, at),
        per_task=named_forks(at.forked),
        slots=plan.sampling(at.policy).slots,
    )


OUTPUTS = {"forks": "forks"}
VARIES_BY = ("policy", "forked")
inputs, operation = sampled_turns, as_sampled


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
