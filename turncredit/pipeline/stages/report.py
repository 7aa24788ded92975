"""Stage `report`: the page, the table and the figures over all results of the experiment."""

from __future__ import annotations

from pathlib import Path

from turncredit.config.stages import Artifact, Stage, table
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """Empty: the resolved configuration is one of the inputs."""


def config(plan: Plan, at: JobKeys) -> Config:
    """Nothing."""
    return Config()


def all_evaluations(plan: Plan) -> list[str]:
    """Evaluations of all runs, and of the SFT policies on the same games."""
    rounds = plan.experiment.eval_rounds()
    runs = [*((start, 0) for start in plan.experiment.starts()), *plan.experiment.runs()]
    path = plan.layout.path
    return [path("evals", method=method, seed=seed, round=round) for method, seed in runs for round in rounds]


def all_updates(plan: Plan) -> list[str]:
    """Updates of all rounds of all runs."""
    path, last = plan.layout.path, plan.experiment.rounds
    return [
        path("updates", method=method, seed=seed, round=round)
        for method, seed in plan.experiment.runs()
        for round in range(1, last + 1)
    ]


def finished_runs(plan: Plan) -> list[str]:
    """The outputs of training and evaluation of all runs.

    If one job runs whole rounds, a run's invariants are its last output and stand for the rest.
    """
    if plan.experiment.granularity == "stage":
        return [*all_evaluations(plan), *all_updates(plan)]
    path, rounds = plan.layout.path, plan.experiment.eval_rounds()
    sft = [path("evals", method=start, seed=0, round=round) for start in plan.experiment.starts() for round in rounds]
    return [*sft, *(path("invariants", method=method, seed=seed) for method, seed in plan.experiment.runs())]


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Everything that the report shows, and the resolved configuration."""
    path = plan.layout.path
    return {
        "config": path("config"),
        "runs": finished_runs(plan),
        "invariants": [path("invariants", method=method, seed=seed) for method, seed in plan.experiment.runs()],
        "audit": [path for at in plan.audited for path in plan.audit_outputs(at)],
    }


def run(job: Job) -> dict[str, float]:
    """Write the report; returns the number of its figures and its verdict."""
    from turncredit.pipeline import expected_artifacts
    from turncredit.views.collect import read_config
    from turncredit.views.report.report import report

    root = Path(job.path("config")).parent
    out = str(Path(job.output["page"]).parent)
    return report(experiment=read_config(root), results=root, out=out, make_layout=expected_artifacts.current)


STAGE = Stage(
    name="report",
    after="rollout_invariants",
    phase="end",
    message="Report",
    makes={
        "page": Artifact("report", "report/index.html"),
        "summary": Artifact("summary_csv", "report/summary.csv"),
        "table": table("summary", "report"),
        "curves": Artifact("learning_curves", "report/learning_curves.svg"),
    },
    folder="report",
    file="report",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    local=True,
)
