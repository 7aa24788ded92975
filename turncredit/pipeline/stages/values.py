"""Stage `values`: the outputs of a method's credit model for a round's turns."""

from __future__ import annotations

from turncredit.pipeline.job import At, Inputs, Job
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.credit_model import Config, config

__all__ = ["OUTPUTS", "Config", "config", "inputs", "run"]


def inputs(plan: Plan, at: At) -> Inputs:
    """The round's model, its turns, and the tables about them that the model reads."""
    path = plan.layout.path
    files: Inputs = {
        "model": path("model", at.keys),
        "turns": path("turns", at.keys),
        "hiddens": path("hiddens", plan.hiddens_at(at, at.method).keys),
    }
    return {**files, "measures": path("measures", at.keys)} if plan.model_reads_measures(at.method) else files


OUTPUTS = {"values": "values"}


def run(job: Job) -> dict[str, float]:
    """Write the values; returns the model's quality on rollouts that it was not trained on."""
    from turncredit.credit.models import replay
    from turncredit.credit.models.protocol import load_kind
    from turncredit.credit.models.train import check_settings, check_width, load, values_table

    config, at = job.config, job.at
    model = load(job.path("model"))
    check_settings(model, load_kind(config.kind).settings_from(config.settings), job.path("model"))
    turns = job.table("turns", columns=replay.COLUMNS)
    measures = job.table("measures", "measures") if "measures" in job.input else None
    view, rollouts = replay.load(turns, job.table("hiddens", "hiddens"), measures=measures, where=job.path("turns"))
    check_width(model, rollouts, job.path("hiddens"))
    table, metrics = values_table(model, view, rollouts, seed=at.seed, round=at.round)
    job.write("values", table)
    return metrics
