"""What stages in which a policy plays have in common: part of their slices, inputs, and the job's player."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from turncredit.config import AgentSlice, EnvSlice, stages
from turncredit.config.layout import sampler_id
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan, Playing

if TYPE_CHECKING:
    from turncredit.rollouts.play import Player


class PlayingSlice(Slice):
    """The environment, the agent, and how the policy is loaded."""

    env: EnvSlice
    agent: AgentSlice
    engine: str
    dtype: str


def plays(stage: str) -> bool:
    """Whether a policy plays in the stage `stage`, with the configured engine. Raises UserError for an unknown name."""
    return stages.stage(stage).policy == "samples"


def played_with(plan: Plan, at: JobKeys) -> dict[str, Any]:
    """The values of `PlayingSlice`: what of the experiment decides how the policy of a job plays."""
    policy = plan.experiment.policy
    return {"env": plan.env, "agent": plan.agent(at), "engine": policy.engine, "dtype": policy.dtype}


def as_sampled(plan: Plan, at: JobKeys) -> Playing:
    """The runtime options of a stage that plays as the turns of `at` were sampled."""
    return plan.playing(plan.sampling(at.policy))


def as_configured(plan: Plan, _at: JobKeys) -> Playing:
    """The runtime options of a stage that plays as the experiment's own rollouts."""
    return plan.playing()


def sampled_turns(plan: Plan, at: JobKeys) -> Inputs:
    """The policy that sampled, the training games, and the turns."""
    path = plan.layout.path
    files: Inputs = {"policy": plan.sampler(at), "tasks": path("tasks", split="train"), "turns": path("turns", at.keys)}
    return {**files, **plan.plugin_files(at)}


def open_player(job: Job, slots: int) -> Player:
    """The job's policy as a player of its games, `slots` rollouts at a time."""
    from turncredit.rollouts.play import Player
    from turncredit.rollouts.tasks import Games

    config, options = job.config, job.runtime_options
    games = Games(config.env, job.table("tasks", "tasks"), job.path("tasks"), timeout=options.timeout)
    policy = job.policy("policy")
    return Player(
        policy,
        config.agent,
        games,
        slots,
        processes=options.processes,
        gpus=options.gpus,
        engines=options.engines,
    )


def cut_short(metrics: Mapping[str, float]) -> str | None:
    """A line where rollouts had to end because their contexts had become too long."""
    full = int(metrics.get("context_full", 0))
    if not full:
        return None
    return (
        f"{full} of {int(metrics['rollouts'])} rollouts ended as failures because their contexts had become longer "
        "than the model can read; shorten what the agent shows, or use a model with more positions"
    )


def common_columns(at: JobKeys, player: Player, temperature: float) -> dict[str, Any]:
    """The columns of turns that are the same for all that a job samples."""
    return {
        "env": player.games.env.name,
        "policy_id": sampler_id(at.policy, at.seed, at.round),
        "agent": player.agent.name,
        "seed": at.seed,
        "temperature": temperature,
    }
