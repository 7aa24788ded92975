"""Stage `implicit_model`: a round's implicit reward model, trained on the rollouts that it scores and those before.

With `trained_on: before` it needs nothing of its own round, as other learned models; in round 1 it is then the SFT
policy, and there is no job.
"""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Literal

from pydantic import Field

from turncredit.config import Experiment, UpdateConfig, validated
from turncredit.config.stages import ROLLOUTS, Artifact, Stage
from turncredit.credit.parts.configured import configured_method
from turncredit.data.strict_model import Closed
from turncredit.errors import UserError
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work


class Settings(Closed):
    """`define.<method>.model` of a method with an implicit reward model. Defaults as in iStar's paper."""

    lr: float | None = Field(None, gt=0, description="null: twice the policy's (iStar's code: 1e-6 and 5e-7)")
    steps: int = Field(1, ge=1, description="optimiser steps a round, each on all pairs of a round")
    score: Literal["sum", "mean"] = Field("sum", description="of a rollout, over its turns; DPO's is the sum")
    trained_on: Literal["current", "before"] = Field(
        "current", description="the round that is scored next, or the one before it"
    )
    schedule: Literal["policy", "constant"] = Field(
        "policy", description="the learning rate's warm-up and decay: the policy's in the same round, or none"
    )


class Config(Slice):
    """How the model is trained and loaded. `share`: the learning rate in this round, as a share of `lr`."""

    beta: float
    lr: float
    share: float
    steps: int
    score: Literal["sum", "mean"]
    dtype: str
    train_dtype: str
    moments_dtype: str
    tokens_per_pass: int


def settings(experiment: Experiment, method: str) -> Settings:
    """The settings of the method's implicit reward model. Raises UserError for an unknown or impossible one."""
    entry = experiment.define.get(method)
    given = {**configured_method(experiment, method).model_settings, **(entry.model if entry else {})}
    return validated(Settings, given, f"define.{method}.model")


def policy_share(update: UpdateConfig, rollouts: int, rounds: int, round: int) -> float:
    """The policy's mean learning rate in `round`, as a share of its largest.

    rollouts   of a round; rounds   of the run, in the last of which the decay ends where `decay_rounds` is not set
    """
    steps = update.epochs * math.ceil(rollouts / update.minibatch)
    done = (round - 1) * steps
    warm = sum(min(1.0, (done + step) / max(1, update.warmup_steps)) for step in range(1, steps + 1)) / steps
    return warm * update.model_copy(update={"decay_rounds": update.decay_rounds or rounds}).rate_in(round)


def config(plan: Plan, at: JobKeys) -> Config:
    """The model's settings; beta is the one of the method's rewards."""
    experiment, method = plan.experiment, plan.method(at.method)
    part = next((part for part in method.parts if part.scorer == "implicit"), None)
    if part is None:
        raise UserError(f"implicit_model: the method '{at.method}' has no implicit reward model; name one that does")
    model_settings, update = settings(experiment, at.method), experiment.section_for(at.method, "update")
    rollout = experiment.section_for(at.method, "rollout")
    follows = model_settings.schedule == "policy"
    rollouts = rollout.tasks * rollout.group_size
    return Config(
        beta=part.settable()["beta"],
        lr=model_settings.lr or 2 * update.lr,
        share=policy_share(update, rollouts, experiment.rounds, at.round) if follows else 1.0,
        steps=model_settings.steps,
        score=model_settings.score,
        dtype=experiment.policy.dtype,
        train_dtype=experiment.policy.train_dtype,
        moments_dtype=experiment.policy.moments_dtype,
        tokens_per_pass=experiment.update.tokens_per_pass,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns of the round, or of the one before, and the model before: at first the SFT policy.

    Raises UserError in round 1 if the model is trained on the round before.
    """
    before, path = plan.round_before(at), plan.layout.path
    if settings(plan.experiment, at.method).trained_on == "current":
        return {
            "turns": path("turns", at.keys),
            "policy": plan.sft_policy(at) if before is None else path("implicit", before.keys),
        }
    if before is None:
        raise UserError(
            "implicit_model: in round 1 it is the SFT policy, which no job of this stage makes; see round 2"
        )
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
        lr=config.lr * config.share,
        steps=config.steps,
        score=config.score,
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


def is_sft(plan: Plan, method: str, round: int) -> bool:
    """Whether the method's reward model is still the SFT policy in this round."""
    return round == 1 and settings(plan.experiment, method).trained_on == "before"


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys | None:
    """None where the model is still the SFT policy."""
    return None if is_sft(plan, method, turns.round) else replace(turns, method=method)


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
    varies_by=("method", "round"),
    needed=needed,
    keys=keys,
    policy="trains",
    gpu_work=gpu_work,
)
