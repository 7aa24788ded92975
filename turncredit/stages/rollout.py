"""Stage `rollout`: groups of rollouts of one policy, as a table of turns."""

from __future__ import annotations

from turncredit.config import AgentSlice, EnvSlice, RolloutConfig
from turncredit.layout import policy_id
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan, Playing


class Config(Slice):
    """Environment, agent and sampling.

    The number of processes changes nothing and is left out.
    """

    env: EnvSlice
    agent: AgentSlice
    engine: str
    dtype: str
    rollout: RolloutConfig


def config(plan: Plan, at: At) -> Config:
    """The sampling settings of the policy's run."""
    whole = plan.experiment
    return Config(
        env=plan.env,
        agent=plan.agent,
        engine=whole.policy.engine,
        dtype=whole.policy.dtype,
        rollout=plan.sampling(at.policy).model_copy(update={"processes": 1}),
    )


def operation(plan: Plan, at: At) -> Playing:
    """The number of processes that share the work, and the time limit of an environment's call."""
    return plan.playing(plan.sampling(at.policy))


def inputs(plan: Plan, at: At) -> Inputs:
    """The policy that samples, and the training games."""
    return {"policy": plan.sampler(at), "tasks": plan.layout.path("tasks", split="train"), **plan.plugin_files}


OUTPUTS = {"turns": "turns"}


def run(job: Job) -> dict[str, float]:
    """Write the turns; returns success, length, invalid actions and dead groups."""
    from turncredit.rollouts.play import Player
    from turncredit.rollouts.rollout import rollout, summary, turn_table
    from turncredit.rollouts.tasks import Games

    config, at = job.config, job.at
    games = Games(config.env, job.table("tasks", "tasks"), job.path("tasks"), timeout=job.operation.timeout)
    settings = config.rollout
    slots = min(settings.slots, settings.tasks * settings.group_size)
    player = Player(job.policy("policy"), config.agent, games, slots, processes=job.operation.processes)
    played = rollout(player, settings, seed=at.seed, round=at.round)
    common = {
        "env": games.env.name,
        "policy_id": policy_id(at.policy, at.seed, at.round - 1),
        "agent": player.agent.name,
        "seed": at.seed,
        "temperature": settings.temperature,
    }
    job.write("turns", turn_table(played, common, player.agent.turn_columns))
    return summary(played)
