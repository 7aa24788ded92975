"""Stage `rollout`: groups of rollouts of one policy, as a table of turns."""

from __future__ import annotations

from collections.abc import Mapping

from turncredit.config import RolloutConfig
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.playing import PlayingSlice, as_sampled, common_columns, cut_short, open_player, played_with
from turncredit.pipeline.resources.work import Played, Work


class Config(PlayingSlice):
    """Environment, agent and sampling.

    The number of processes changes nothing and is left out.
    """

    rollout: RolloutConfig


def config(plan: Plan, at: JobKeys) -> Config:
    """The sampling settings of the policy's run."""
    return Config(
        **played_with(plan, at),
        rollout=plan.sampling(at.policy).model_copy(update={"processes": 1}),
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The policy that samples, and the training games."""
    return {"policy": plan.sampler(at), "tasks": plan.layout.path("tasks", split="train"), **plan.plugin_files(at)}


runtime_options = as_sampled


def run(job: Job) -> dict[str, float]:
    """Write the turns; returns success, length, invalid actions and dead groups."""
    from turncredit.rollouts.rollout import rollout, summary, turn_table

    config, at = job.config, job.at
    settings = config.rollout
    slots = min(settings.slots, settings.tasks * settings.group_size)
    player = open_player(job, slots)
    played = rollout(player, settings, seed=at.seed, round=at.round)
    common = common_columns(at, player, settings.temperature)
    job.write("turns", turn_table(played, common, player.turn_columns))
    return summary(played)


def warning(metrics: Mapping[str, float]) -> str | None:
    """A line where rollouts had to be redone, or ended because their contexts had become too long."""
    lines = []
    if redone := int(metrics.get("redone", 0)):
        lines.append(
            f"{redone} rollouts were played again from their start, because the environment's process or connection "
            "had failed; the column `redone` of the turns marks them"
        )
    if full := cut_short(metrics):
        lines.append(full)
    return "; ".join(lines) or None


def gpu_work(work: Work) -> Played:
    """The rollouts of a round."""
    return Played(work.rollouts, work.turns, work.rollouts)


STAGE = Stage(
    name="rollout",
    after="sft",
    phase="round",
    message="Rollouts of {policy}, seed {seed}, round {round}",
    makes={"turns": table("turns", ROLLOUTS)},
    folder=ROLLOUTS,
    file="rollout",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=runtime_options,
    warning=warning,
    policy="samples",
    gpu_work=gpu_work,
)
