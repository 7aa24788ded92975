"""Stage `gradients`: signal and noise of the policy gradient that each method's advantages give on the same turns."""

from __future__ import annotations

from turncredit import tables
from turncredit.config import LossConfig
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan


class Config(Slice):
    """The settings that determine each method's gradient at the policy that sampled, and how the policy is loaded."""

    losses: dict[str, LossConfig]
    dtype: str
    tokens_per_pass: int


def config(plan: Plan, at: At) -> Config:
    """The audit's methods with the part of their `update` that determines a gradient."""
    whole = plan.experiment
    losses = {}
    for name in plan.audit_methods:
        update = whole.section_for(name, "update")
        losses[name] = LossConfig(**{key: getattr(update, key) for key in LossConfig.model_fields})
    return Config(losses=losses, dtype=whole.policy.dtype, tokens_per_pass=whole.update.tokens_per_pass)


def inputs(plan: Plan, at: At) -> Inputs:
    """The policy that sampled, the turns, and every method's credit."""
    path = plan.layout.path
    return {
        "policy": plan.sampler(at),
        "turns": path("turns", at.keys),
        "credits": [path("credits", at.keys, method=name) for name in plan.audit_methods],
    }


OUTPUTS = {"gradients": "gradients"}


def run(job: Job) -> dict[str, float]:
    """Write signal, noise and cosines; returns the best signal-to-noise ratio."""
    from turncredit.analysis.gradients import COLUMNS, gradients

    config = job.config
    credits = {
        name: job.store.table(path, columns=[*tables.KEYS, "advantage"])
        for name, path in zip(config.losses, job.paths("credits"), strict=True)
    }
    turns = job.table("turns", columns=COLUMNS)
    table, metrics = gradients(
        job.policy("policy"), turns, credits, config.losses, tokens_per_pass=config.tokens_per_pass
    )
    job.write("gradients", table)
    return metrics
