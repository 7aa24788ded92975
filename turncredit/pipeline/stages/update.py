"""Stage `update`: one round of clipped policy gradient. Every method shares it; only `advantage` differs."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa

from turncredit.audit import collapse
from turncredit.config import UpdateConfig
from turncredit.config.layout import UNFINISHED, round_name
from turncredit.config.stages import RUN, Artifact, Stage, table
from turncredit.data import tables
from turncredit.data.turns import with_forks
from turncredit.pipeline import slurm
from turncredit.pipeline.gpu_processes import train_nodes, with_team
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work

if TYPE_CHECKING:
    from turncredit.training.team import Team


class Config(Slice):
    """The method's update settings; `decay_rounds` is always a number where the learning rate decays, else null."""

    update: UpdateConfig
    dtype: str
    train_dtype: str
    moments_dtype: str
    train_gpus: int


def config(plan: Plan, at: JobKeys) -> Config:
    """`update` as the method overrides it."""
    experiment = plan.experiment
    update = experiment.section_for(at.method, "update")
    # Nothing else of the slice depends on the number of rounds: more of them leave the earlier ones as they are.
    ends = (update.decay_rounds or experiment.rounds) if update.final_lr < 1 else None
    return Config(
        update=update.model_copy(update={"decay_rounds": ends}),
        dtype=experiment.policy.dtype,
        train_dtype=experiment.policy.train_dtype,
        moments_dtype=experiment.policy.moments_dtype,
        train_gpus=experiment.policy.train_gpus,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The policy that sampled, the SFT policy to which a KL penalty keeps close, turns and any forks, their credit."""
    turns = plan.turns_at(at.method, at.seed, at.round)
    return {
        "policy": plan.policy_before(at.method, at.seed, at.round),
        "reference": plan.sft_policy(at),
        "turns": plan.layout.path("turns", turns.keys),
        **plan.forks_file(turns, at.method),
        "credits": plan.layout.path("credits", turns.keys, method=at.method),
    }


#: The mean |log p - log p when sampled| of a round's first step up to which bfloat16 explains it (docs/update.md).
AGREES = 0.02


def warning(metrics: Mapping[str, float]) -> str | None:
    """Warns of a round without credit, of an engine that samples from another distribution, and of a collapse."""
    if not metrics["steps"]:
        return "no optimiser step was taken: all groups had equal returns. The policy is unchanged"
    if not metrics["turns_with_advantage"]:
        return "every advantage is 0: no credit was learned. Steps had only momentum, weight decay and any KL penalty"
    # With recomputed log-probabilities the first step's ratio is 1, and the difference is no part of it.
    if metrics.get("first_log_ratio", 0.0) > AGREES and metrics["first_ratio_max"] > 1 + AGREES:  # absent with dropout
        return (
            f"before the first step, log-probabilities differ from the sampling engine's by "
            f"{metrics['first_log_ratio']:.3f} on average, as if the policy had changed; see 'Engines that disagree "
            "with training' in docs/update.md"
        )
    if signs := collapse.of_update(metrics):
        return f"the policy has collapsed: {', '.join(signs)}; {collapse.cause(metrics, signs)}"
    return None


def run(job: Job) -> dict[str, float]:
    """Write the new policy and one log row per step; returns means over the steps."""
    return with_team(job, _run)


def _run(job: Job, team: Team) -> dict[str, float]:
    from turncredit.training.unfinished import Unfinished
    from turncredit.training.update import COLUMNS, training_set, update

    config, at = job.config, job.at
    turns = job.table("turns", columns=COLUMNS)
    if "forks" in job.input:
        turns = with_forks(turns, job.table("forks", columns=COLUMNS))
    credit = job.table("credits")
    policy = job.policy("policy")
    data = training_set(turns, credit, config.update, job.path("credits"))
    after = Path(job.output["policy"])
    ends = slurm.end_of_this_job() if team.leads else None
    unfinished = Unfinished(after.with_name(UNFINISHED), job.made_from(), ends=ends)
    result = update(
        policy,
        config.update,
        data,
        reference=job.policy("reference"),
        rate=config.update.rate_in(at.round),
        seed=at.seed,
        round=at.round,
        team=team,
        train_dtype=config.train_dtype,
        moments_dtype=config.moments_dtype,
        unfinished=unfinished,
    )
    with result.masters.in_model() as model:
        if not team.leads:
            return {}
        with job.folder("policy") as folder:
            result.save(model, folder, base=policy.folder, final=after)
    result.masters.release()
    job.store.put_policy(job.output["policy"], policy.trained_into(after))
    identity = {"policy_id": round_name(at.method, at.seed, at.round)}
    rows = [{**identity, **row} for row in result.rows]
    schema = tables.schema("updates")
    for name in ("log_ratio", "log_ratio_max"):  # not in the schema: tables of earlier versions lack them
        schema = schema.append(pa.field(name, pa.float64()))
    job.write("updates", pa.Table.from_pylist(rows, schema=schema))
    unfinished.remove()
    return {
        **result.metrics,
        "turns_with_advantage": float((data.advantage_N != 0).sum()),
        "entropy_limit": math.log(len(policy.tokenizer)),
    }


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """The run and its round."""
    return plan.run_at(method, turns)


def gpu_work(work: Work) -> float:
    """Passes with and without gradients over the sequences of the round's rollouts and forks."""
    experiment = work.experiment
    update = experiment.section_for(work.at.method, "update") if work.at.method else experiment.update
    passes = update.epochs * (work.gradient_passes + update.gradient_checkpointing)
    passes += (update.kl != "none") + (update.old_logprobs == "recomputed")
    return passes * work.forward(work.learned) / experiment.policy.train_gpus


STAGE = Stage(
    name="update",
    after="credit",
    phase="round",
    message="Policy update of {method}, seed {seed}, round {round}",
    makes={"policy": Artifact("policy", f"{RUN}/policy", folder=True), "updates": table("updates", RUN)},
    folder=RUN,
    file="update",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=train_nodes,
    warning=warning,
    keys=keys,
    policy="trains",
    gpu_work=gpu_work,
)
