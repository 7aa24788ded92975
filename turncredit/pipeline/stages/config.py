"""Stage `config`: the resolved configuration, with every key written out, including defaults."""

from __future__ import annotations

import json
from typing import Any

from turncredit.config.stages import Artifact, Stage
from turncredit.data.files import write_text
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The whole configuration."""

    experiment: dict[str, Any]


def config(plan: Plan, at: JobKeys) -> Config:
    """The whole configuration."""
    return Config(experiment=plan.experiment.model_dump(mode="json"))


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Nothing."""
    return {}


def run(job: Job) -> dict[str, float]:
    """Write it as JSON."""
    write_text(job.output["config"], json.dumps(job.config.experiment, indent=2) + "\n")
    return {}


STAGE = Stage(
    name="config",
    after=None,
    phase="start",
    message="Resolved configuration",
    makes={"config": Artifact("config", "config.json")},
    folder="",
    file="config",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    local=True,
)
