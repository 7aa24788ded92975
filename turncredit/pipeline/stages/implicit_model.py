"""Stage `implicit_model`: the implicit reward model of a round, trained on the rounds before it.

Like other learned models it needs nothing of its own round. In round 1 it is the SFT policy, and there is no job.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pydantic import Field

from turncredit.config import Experiment, validated
from turncredit.config.stages import ROLLOUTS, Artifact, Stage
from turncredit.data.strict_model import Closed
from turncredit.errors import UserError
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work


class Settings(Closed):
    """`define.<method>.model` of a method with an implicit reward model. Defaults as in iStar's code."""

    lr: float | None = Field(None, gt=0, description="null: twice the policy's (the source: 1e-6 and 5e-7)")
    steps: int = Field(1, ge=1, description="optimiser steps a round, each on all pairs of the round before")


class Config(Slice):
    """How the model is trained and loaded."""

    beta: float
    lr: float
    steps: int
    dtype: str
    train_dtype: str
    moments_dtype: str
    tokens_per_pass: int


def settings(experiment: Experiment, method: str) -> Settings:
    """The settings of the method's implicit reward model. Raises UserError for an unknown or impossible one."""
    entry = experiment.define.get(method)
    return validated(Settings, entry.model if entry else {}, f"define.{method}.model")


def config(plan: Plan, at: JobKeys) -> Config:
    """The model's settings; beta is the one of the method's rewards."""
    experiment, method = plan.experiment, plan.method(at.method)
    part = next((part for part in method.parts if part.scorer == "implicit"), None)
    if part is None:
        raise UserError(f"implicit_model: the method '{at.method}' has no implicit reward model")
    model_settings = settings(experiment, at.method)
    return Config(
        beta=part.settable()["beta"],
        lr=model_settings.lr or 2 * experiment.section_for(at.method, "update").lr,
        steps=model_settings.steps,
        dtype=experiment.policy.dtype,
        train_dtype=experiment.policy.train_dtype,
        moments_dtype=experiment.policy.moments_dtype,
        tokens_per_pass=experiment.update.tokens_per_pass,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns of the round before, and its model: in round 2 the SFT policy. Raises UserError in round 1."""
    before = plan.round_before(at)
    if before is None:
        raise UserError(
            "implicit_model: in round 1 it is the SFT policy, which no job of this stage makes; see round 2"
        )
    path = plan.layout.path
    return {
        "turns": path("turns", before.keys),
        "policy": plan.sft_policy(at) if at.round == 2 else path("implicit", before.keys),
    }


def run(job: Job) -> dict[str, float]:
    """Write the model's folder, a policy's with the optimiser's moments; returns metrics of the training."""
    from turncredit.data.seeding import derive_seed
    from turncredit.policy import models
    from turncredit.training import implicit

    config: Config = job.config
    before = job.policy("policy")
    masters = before.masters(config.train_dtype)
    moments, metrics = implicit.train(
        masters,
        job.table("turns", columns=implicit.COLUMNS),
        beta=config.beta,
        lr=config.lr,
        steps=config.steps,
        tokens_per_pass=config.tokens_per_pass,
        moments=before.moments(),
        moments_dtype=config.moments_dtype,
        rounding_seed=derive_seed(job.at.seed, "implicit rounding", job.at.round),
        where=job.path("turns"),
    )
    after = Path(job.output["implicit"])
    with job.folder("implicit") as folder, masters.in_model() as model:
        models.save_model(model, folder, base=before.folder, final=after, moments=moments)
    masters.release()
    # The model that was opened has other weights now: whoever asks for the one before reads it from its folder.
    job.store.put_policy(job.output["implicit"], before.trained_into(after))
    return metrics


def needed(plan: Plan, method: str) -> bool:
    """Whether the method's credit is that of an implicit reward model."""
    return plan.method(method).scorer == "implicit"


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys | None:
    """None in round 1, where the model is the SFT policy."""
    return None if turns.round == 1 else replace(turns, method=method)


def gpu_work(work: Work) -> float:
    """A pass with its gradient."""
    return work.gradient_passes * work.forward(work.rollouts)


STAGE = Stage(
    name="implicit_model",
    after="hiddens",
    phase="signal",
    message="Implicit reward model of {method} for the rollouts of {policy}, seed {seed}, round {round}",
    makes={"implicit": Artifact("implicit", f"{ROLLOUTS}/implicit/{{method}}", folder=True)},
    folder=ROLLOUTS,
    file="implicit-{method}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    needed=needed,
    keys=keys,
    policy="trains",
    gpu_work=gpu_work,
)
