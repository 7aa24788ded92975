"""Stage `gradients`: signal and noise of the policy gradient that each method's advantages give on the same turns."""

from __future__ import annotations

from turncredit.config import LossConfig, UpdateConfig
from turncredit.data import tables
from turncredit.pipeline.job import At, Inputs, Job, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The settings that determine each method's gradient at the policy that sampled, and how the policy is loaded."""

    losses: dict[str, LossConfig]
    truth_loss: LossConfig
    dtype: str
    tokens_per_pass: int


def config(plan: Plan, at: At) -> Config:
    """The audit's methods with the part of their `update` that determines a gradient."""
    experiment = plan.experiment
    return Config(
        losses={name: _loss(experiment.section_for(name, "update")) for name in plan.audit_methods},
        truth_loss=_loss(experiment.update),
        dtype=experiment.policy.dtype,
        tokens_per_pass=experiment.update.tokens_per_pass,
    )


def _loss(update: UpdateConfig) -> LossConfig:
    return LossConfig(**{key: getattr(update, key) for key in LossConfig.model_fields})


def inputs(plan: Plan, at: At) -> Inputs:
    """The policy that sampled, the turns, every method's credit, and the ground truth."""
    path = plan.layout.path
    return {
        "policy": plan.sampler(at),
        "turns": path("turns", at.keys),
        "branches": path("branches", at.keys),
        "credits": [path("credits", at.keys, method=name) for name in plan.audit_methods],
    }


OUTPUTS = {"gradients": "gradients"}


def run(job: Job) -> dict[str, float]:
    """Write signal, noise and cosines; returns the best signal-to-noise ratio."""
    from turncredit.audit.gradients import COLUMNS, gradients

    config = job.config
    credits = {
        name: job.store.table(path, columns=[*tables.KEYS, "advantage"], optional=[tables.TRAINED])
        for name, path in zip(config.losses, job.paths("credits"), strict=True)
    }
    turns = job.table("turns", columns=COLUMNS)
    table, metrics = gradients(
        job.policy("policy"),
        turns,
        credits,
        config.losses,
        tokens_per_pass=config.tokens_per_pass,
        branches=job.table("branches", columns=[*tables.KEYS, "advantage_true"]),
        truth_loss=config.truth_loss,
    )
    job.write("gradients", table)
    return metrics
