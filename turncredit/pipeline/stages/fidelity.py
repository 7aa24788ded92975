"""Stage `fidelity`: every method's credit against the ground truth of a round's turns."""

from __future__ import annotations

from math import isfinite

from turncredit.config.stages import ROLLOUTS, Artifact, Stage, table
from turncredit.credit.parts.configured import ask_of
from turncredit.data.files import write_json
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The methods that are compared, in the order of their tables."""

    methods: tuple[str, ...]


def config(plan: Plan, at: JobKeys) -> Config:
    """The audit's methods."""
    return Config(methods=tuple(plan.audit_methods))


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Turns, ground truth, every method's credit, and the judge's roles if a method reads them."""
    path = plan.layout.path
    roles = {
        plan.read_by("labels", at, name)
        for name in plan.audit_methods
        if "labels" in plan.method(name).needs and ask_of(plan.method(name)) == "role"
    }
    return {
        "turns": path("turns", at.keys),
        "branches": path("branches", at.keys),
        "credits": [path("credits", at.keys, method=name) for name in plan.audit_methods],
        "labels": sorted(roles),
    }


def run(job: Job) -> dict[str, float]:
    """Score all methods; write the table, and the same as JSON."""
    from turncredit.audit import fidelity
    from turncredit.audit import scored_turns as reading

    labels = next(iter(job.paths("labels")), None)
    scored, advantages = reading.load(job.path("turns"), job.paths("credits"), job.path("branches"), labels)
    scores = fidelity.score(scored, advantages)  # the seed of `turncredit fidelity`: the same files, the same ends
    write_json(job.output["json"], fidelity.as_json(scores))
    job.write("fidelity", fidelity.table(scores))
    best = [row.value for row in scores.rows if (row.measure, row.subset) == ("rank_correlation", "all")]
    ceiling = [row.ceiling.value for row in scores.rows if row.measure == "rank_correlation" and row.ceiling]
    metrics = {"turns": float(len(scored)), "methods": float(len(advantages))}
    for name, values in (("best_rank_correlation", best), ("ceiling", ceiling)):
        if finite := [value for value in values if isfinite(value)]:
            metrics[name] = max(finite)
    return metrics


STAGE = Stage(
    name="fidelity",
    after="branch",
    phase="audit",
    message="Fidelity of credit on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"fidelity": table("fidelity", ROLLOUTS), "json": Artifact("fidelity_json", f"{ROLLOUTS}/fidelity.json")},
    folder=ROLLOUTS,
    file="fidelity",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
)
