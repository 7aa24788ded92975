"""Stage `sft`: an agent's supervised warm start on demonstrations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from turncredit.config import AgentSlice, LoraConfig, SftConfig
from turncredit.config.stages import Artifact, Stage, table
from turncredit.data import tables
from turncredit.errors import UserError
from turncredit.pipeline.gpu_processes import train_nodes, with_team
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.resources.work import Work

if TYPE_CHECKING:
    from turncredit.training.team import Team


class Config(Slice):
    """The model's inputs (environment and agent) and the training settings.

    The limit on a response's length only matters for sampling, so it is left out.
    """

    env: str
    agent: AgentSlice
    sft: SftConfig
    lora: LoraConfig | None
    dtype: str
    train_dtype: str
    moments_dtype: str
    train_gpus: int
    tokens_per_pass: int


def config(plan: Plan, at: JobKeys) -> Config:
    """`agent`, `sft`, and the part of `policy` and `update` that applies to this training."""
    experiment, agent = plan.experiment, plan.agent(at)
    return Config(
        env=experiment.env.name,
        agent=AgentSlice(name=agent.name, settings=agent.settings),
        sft=experiment.sft,
        lora=experiment.policy.lora,
        dtype=experiment.policy.dtype,
        train_dtype=experiment.policy.train_dtype,
        moments_dtype=experiment.policy.moments_dtype,
        train_gpus=experiment.policy.train_gpus,
        tokens_per_pass=experiment.update.tokens_per_pass,
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The base model and the demonstrations."""
    path = plan.layout.path
    return {"base": path("base", plan.keys(at)), "demos": path("demos"), **plan.plugin_files(at)}


def run(job: Job) -> dict[str, float]:
    """Write the policy's folder and one log row per step. With no epochs the policy is the base model."""
    from turncredit.training.team import Team

    # Without epochs nothing is trained, and the job has asked for one GPU at most.
    return with_team(job, _run) if job.config.sft.epochs else _run(job, Team(job.threads))


def _run(job: Job, team: Team) -> dict[str, float]:
    from turncredit import envs
    from turncredit.data.seeding import derive_seed
    from turncredit.policy import models
    from turncredit.training import sft

    config: Config = job.config
    settings, base = config.sft, job.policy("base")
    words = envs.load(config.env).words
    demos, where = job.table("demos", "demos"), job.path("demos")
    played = pc.count_distinct(demos.column("rollout_id")).as_py()
    if settings.successful_only:
        demos = demos.filter(demos.column("success"))
        if settings.epochs and played and not demos.num_rows:
            raise UserError(
                f"{where}: the expert won 0 of {played} demonstrations; lower demos.noise, raise the horizon, or run "
                f"`turncredit env check {config.env}`"
            )
    sequences = sft.demonstrations(demos, base.tokenizer, config.agent, words, where) if settings.epochs else []
    if settings.epochs and not sequences:
        raise UserError(f"{where}: no demonstrations to learn from; raise demos.count or the horizon")
    adapter = (config.lora, derive_seed(settings.seed, "lora")) if config.lora else None
    masters = base.masters(config.train_dtype, new_adapter=adapter, fsdp=team.fsdp)
    rows = sft.train(
        masters,
        sequences,
        settings,
        tokens_per_pass=config.tokens_per_pass,
        team=team,
        moments_dtype=config.moments_dtype,
    )
    with masters.in_model() as model:
        if not team.leads:
            return {}
        with job.folder("policy") as folder:
            models.save_model(model, folder, base=base.folder, final=job.output["policy"])
    job.write("log", pa.Table.from_pylist(rows, schema=tables.schema("sft_log")))
    loss = {"loss": float(np.mean([row["loss"] for row in rows[-50:]]))} if rows else {}
    return {"steps": float(len(rows)), **loss}


def gpu_work(work: Work) -> float:
    """Passes with gradients over the demonstrations."""
    experiment = work.experiment
    shown = experiment.demos.count * experiment.sft.epochs
    return work.gradient_passes * work.forward(shown) / experiment.policy.train_gpus


STAGE = Stage(
    name="sft",
    after="base",
    phase="start",
    message="Supervised warm start ({warm_start})",
    makes={
        "policy": Artifact("sft_policy", "{warm_start}/policy", folder=True),
        "log": table("sft_log", "{warm_start}", "log"),
    },
    folder="{warm_start}",
    file="sft",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    runtime_options=train_nodes,
    policy="trains",
    gpu_work=gpu_work,
)
