"""Stage `gradients`: signal and noise of the policy gradient that each method's advantages give on the same turns."""

from __future__ import annotations

from turncredit.config import LossConfig, UpdateConfig
from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.data import tables
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work


class Config(Slice):
    """The settings that determine each method's gradient at the policy that sampled, and how the policy is loaded."""

    losses: dict[str, LossConfig]
    truth_loss: LossConfig
    dtype: str
    tokens_per_pass: int


def config(plan: Plan, at: JobKeys) -> Config:
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


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The policy that sampled, the turns, every method's credit, and the ground truth."""
    path = plan.layout.path
    return {
        "policy": plan.sampler(at),
        "turns": path("turns", at.keys),
        "branches": path("branches", at.keys),
        "credits": [path("credits", at.keys, method=name) for name in plan.audit_methods],
    }


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


def gpu_work(work: Work) -> float:
    """A pass and its gradient."""
    return 3.0 * work.forward(work.rollouts)


STAGE = Stage(
    name="gradients",
    after="fidelity",
    phase="audit",
    message="Gradients by credit on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"gradients": table("gradients", ROLLOUTS)},
    folder=ROLLOUTS,
    file="gradients",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    policy="reads",
    gpu_work=gpu_work,
)
