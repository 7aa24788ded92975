"""Stage `continuations`: the policy that sampled goes on from every state of a round's rollouts, several times."""

from __future__ import annotations

from turncredit.config import AgentSlice, ContinuationsConfig, EnvSlice
from turncredit.layout import named_continuations
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan, Playing


class Config(Slice):
    """Environment, agent, and how many continuations."""

    env: EnvSlice
    agent: AgentSlice
    engine: str
    dtype: str
    continuations: ContinuationsConfig
    slots: int


def config(plan: Plan, at: At) -> Config:
    """How the policy plays; how many continuations is among the keys."""
    whole = plan.experiment
    return Config(
        env=plan.env,
        agent=plan.agent,
        engine=whole.policy.engine,
        dtype=whole.policy.dtype,
        continuations=named_continuations(at.continued),
        slots=plan.sampling(at.policy).slots,
    )


def operation(plan: Plan, at: At) -> Playing:
    """The number of processes that share the work, and the time limit of an environment's call."""
    return plan.playing(plan.sampling(at.policy))


def inputs(plan: Plan, at: At) -> Inputs:
    """The policy that sampled, the training games, and the turns."""
    path = plan.layout.path
    files: Inputs = {"policy": plan.sampler(at), "tasks": path("tasks", split="train"), "turns": path("turns", at.keys)}
    return {**files, **plan.plugin_files}


OUTPUTS = {"continuations": "continuations"}
VARIES_BY = ("policy", "continued")


def run(job: Job) -> dict[str, float]:
    """Write what the continuations of each state came to; returns how many there are and what they took."""
    from turncredit.rollouts.continuations import state_returns
    from turncredit.rollouts.play import Player
    from turncredit.rollouts.tasks import Games

    config, at = job.config, job.at
    games = Games(config.env, job.table("tasks", "tasks"), job.path("tasks"), timeout=job.operation.timeout)
    player = Player(job.policy("policy"), config.agent, games, config.slots, processes=job.operation.processes)
    turns = job.table("turns", "turns")
    table, metrics = state_returns(
        player, turns, config.continuations, seed=at.seed, round=at.round, where=job.path("turns")
    )
    job.write("continuations", table)
    return metrics
