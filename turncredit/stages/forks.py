"""Stage `forks`: rollouts that fork from states of a round's rollouts, for methods that credit a tree of each task."""

from __future__ import annotations

from turncredit.config import AgentSlice, EnvSlice
from turncredit.layout import named_forks, policy_id
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan, Playing


class Config(Slice):
    """Environment, agent, and how many forks."""

    env: EnvSlice
    agent: AgentSlice
    engine: str
    dtype: str
    per_task: int
    slots: int


def config(plan: Plan, at: At) -> Config:
    """How the policy plays; how many forks is among the keys."""
    whole = plan.experiment
    return Config(
        env=plan.env,
        agent=plan.agent,
        engine=whole.policy.engine,
        dtype=whole.policy.dtype,
        per_task=named_forks(at.forked),
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


OUTPUTS = {"forks": "forks"}
VARIES_BY = ("policy", "forked")


def run(job: Job) -> dict[str, float]:
    """Write the forks' turns; returns how many there are, what they took, and how many states have several actions."""
    from turncredit.rollouts.forks import forks
    from turncredit.rollouts.play import Player
    from turncredit.rollouts.tasks import Games
    from turncredit.turns import only_value

    config, at = job.config, job.at
    games = Games(config.env, job.table("tasks", "tasks"), job.path("tasks"), timeout=job.operation.timeout)
    player = Player(job.policy("policy"), config.agent, games, config.slots, processes=job.operation.processes)
    turns = job.table("turns", "turns")
    common = {
        "env": games.env.name,
        "policy_id": policy_id(at.policy, at.seed, at.round - 1),
        "agent": player.agent.name,
        "seed": at.seed,
        "temperature": only_value(turns, "temperature", job.path("turns"), "forking"),
    }
    table, metrics = forks(
        player,
        turns,
        config.per_task,
        seed=at.seed,
        round=at.round,
        common=common,
        where=job.path("turns"),
    )
    job.write("forks", table)
    return metrics
