"""Stage `track`: the stages' metrics, copied to MLflow."""

from __future__ import annotations

from pathlib import Path

from turncredit.config import TrackingConfig
from turncredit.config.stages import Stage
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages import report


class Config(Slice):
    """Where MLflow is."""

    tracking: TrackingConfig


def config(plan: Plan, at: JobKeys) -> Config:
    """`tracking`."""
    return Config(tracking=plan.experiment.tracking)


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """What the report reads: then every job whose metrics are copied has ended, those of audits and checks included."""
    return report.inputs(plan, at)


def run(job: Job) -> dict[str, float]:
    """Copy what is missing; returns the numbers of files copied now and before."""
    from turncredit.pipeline import expected_artifacts
    from turncredit.views.experiments import read_config
    from turncredit.views.tracking import track

    root = Path(job.path("config")).parent
    return track(experiment=read_config(root), results=root, make_layout=expected_artifacts.current)


STAGE = Stage(
    name="track",
    after="report",
    phase="end",
    message="MLflow: metrics, parameters and links of all stages",
    folder="",
    file="track",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    local=True,
)
