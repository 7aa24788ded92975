"""Stage `values`: the outputs of a method's credit model for a round's turns."""

from __future__ import annotations

from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages.credit_model import Config, config, keys, needed


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The round's model, its turns, the tables about them that the model reads, and the user's own file."""
    path = plan.layout.path
    files: Inputs = {
        "model": path("model", at.keys),
        "turns": path("turns", at.keys),
        "hiddens": plan.read_by("hiddens", at, at.method),
        **plan.model_file(at.method),
    }
    return {**files, "measures": path("measures", at.keys)} if plan.model_reads_measures(at.method) else files


def run(job: Job) -> dict[str, float]:
    """Write the values; returns the model's quality on rollouts that it was not trained on."""
    from turncredit.credit.models import replay
    from turncredit.credit.models.protocol import load_kind
    from turncredit.credit.models.train import check_settings, check_width, load, values_table

    config, at = job.config, job.at
    model = load(job.path("model"))
    check_settings(model, load_kind(config.kind).recorded_settings(config.settings), job.path("model"))
    turns = job.table("turns", columns=replay.COLUMNS)
    measures = job.table("measures", "measures") if "measures" in job.input else None
    view, rollouts = replay.load(turns, job.table("hiddens", "hiddens"), measures=measures, where=job.path("turns"))
    check_width(model, rollouts, job.path("hiddens"))
    table, metrics = values_table(model, view, rollouts, seed=at.seed, round=at.round)
    job.write("values", table)
    return metrics


STAGE = Stage(
    name="values",
    after="credit_model",
    phase="signal",
    message="Values of the credit model of {method} on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"values": table("values", f"{ROLLOUTS}/values", "{method}")},
    folder=ROLLOUTS,
    file="values-{method}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    needed=needed,
    keys=keys,
    hiddens=True,
)
