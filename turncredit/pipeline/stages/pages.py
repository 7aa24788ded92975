"""Stage `pages`: rollouts turn by turn as HTML, with every method's credit and the ground truth."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from turncredit.config.layout import of_sft
from turncredit.config.stages import ROLLOUTS, Artifact, Stage
from turncredit.config.warm_starts import start_words
from turncredit.data.files import new_folder
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The number of rollouts with a page, the definition of each method, and the policy that sampled."""

    title: str
    first: str | None
    count: int
    methods: dict[str, dict[str, Any] | str]
    learned: tuple[str, ...]


def config(plan: Plan, at: JobKeys) -> Config:
    """`audit.pages` and the audit's methods."""
    experiment = plan.experiment
    runs = experiment.audit.runs
    whose = start_words(plan.warm_start(at)) if of_sft(at.policy) else at.policy
    return Config(
        title=f"{experiment.experiment}: rollouts of {whose}, seed {at.seed}, round {at.round}",
        first=at.policy if at.policy in runs else next(iter(runs), None),
        count=experiment.audit.pages,
        methods={name: experiment.definition(name) for name in plan.audit_methods},
        learned=tuple(plan.audit_learned),
    )


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Turns, measures, ground truth, every method's credit, outputs of credit models, all labels that methods read."""
    path = plan.layout.path
    labelled = [name for name in plan.audit_methods if "labels" in plan.method(name).needs]
    return {
        "turns": path("turns", at.keys),
        "measures": [path("measures", at.keys)] if plan.measurable(at) else [],
        "branches": path("branches", at.keys),
        "credits": [path("credits", at.keys, method=name) for name in plan.audit_methods],
        "values": [path("values", at.keys, method=name) for name in plan.audit_learned],
        "probes": [plan.metrics("values", replace(at, method=name)) for name in plan.audit_learned],
        "labels": sorted({plan.read_by("labels", at, name) for name in labelled}),
    }


def run(job: Job) -> dict[str, float]:
    """Write the folder of pages; returns their number and the size of the largest in bytes."""
    from turncredit.credit import resolve
    from turncredit.views.pages.build import pages
    from turncredit.views.pages.data import read_book

    config = job.config
    book = read_book(
        turns=job.path("turns"),
        measures=next(iter(job.paths("measures")), None),
        branches=job.path("branches"),
        credits=dict(zip(config.methods, job.paths("credits"), strict=True)),
        values=dict(zip(config.learned, job.paths("values"), strict=True)),
        probes=dict(zip(config.learned, job.paths("probes"), strict=True)),
        labels={Path(path).stem: path for path in job.paths("labels")},
    )
    methods = {name: resolve(entry, name) for name, entry in config.methods.items()}
    texts = pages(book, methods, count=config.count, first=config.first, title=config.title)
    with new_folder(Path(job.output["index"]).parent) as folder:
        for name, text in texts.items():
            (folder / name).write_text(text, encoding="utf-8")
    return {
        "rollouts": float(sum(not name.startswith(("index", "group-", "pair-")) for name in texts)),
        "pages": float(len(texts)),
        "largest_bytes": float(max(len(text.encode()) for text in texts.values())),
    }


def needed(plan: Plan, method: str) -> bool:
    """Whether pages are asked for."""
    return plan.experiment.audit.pages > 0


STAGE = Stage(
    name="pages",
    after="leaks",
    phase="audit",
    message="Credit pages of the rollouts of {policy}, seed {seed}, round {round}",
    makes={"index": Artifact("pages", f"{ROLLOUTS}/pages/index.html")},
    folder=ROLLOUTS,
    file="pages",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    needed=needed,
    varies_by=("policy", "seed", "round"),
)
