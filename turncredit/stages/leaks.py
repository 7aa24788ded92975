"""Stage `leaks`: does a learned credit model know how a rollout ended from its length or its last turn?"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from turncredit import tables
from turncredit.stages import credit, credit_model
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan


class Learned(Slice):
    """A learned method: its definition, its model, and whether it also reads labels."""

    method: dict[str, Any] | str
    model: credit_model.Config
    labels: bool


class Config(Slice):
    """The audit's learned methods."""

    learned: dict[str, Learned]


def config(plan: Plan, at: At) -> Config:
    """Each learned method of the audit."""
    learned = {}
    for name in plan.audit_learned:
        keys = At(method=name)
        learned[name] = Learned(
            method=credit.config(plan, keys).method,
            model=credit_model.config(plan, keys),
            labels="labels" in plan.method(name).needs,
        )
    return Config(learned=learned)


def inputs(plan: Plan, at: At) -> Inputs:
    """Turns, ground truth, each learned method's model, hidden states and labels, and measures where one reads them."""
    path = plan.layout.path
    names = plan.audit_learned
    return {
        "turns": path("turns", at.keys),
        "branches": path("branches", at.keys),
        "models": [path("model", at.keys, method=name) for name in names],
        "hiddens": [path("hiddens", plan.hiddens_at(at, name).keys) for name in names],
        "labels": [
            path("labels", plan.labels_at(at, name).keys) for name in names if "labels" in plan.method(name).needs
        ],
        "measures": [path("measures", at.keys)] if any(plan.credit_reads_measures(name) for name in names) else [],
    }


OUTPUTS = {"leaks": "leaks"}


def run(job: Job) -> dict[str, float]:
    """Write the leak tests of all learned methods, and print the verdicts."""
    from turncredit.analysis import leak_measures
    from turncredit.analysis import leak_tests as tests
    from turncredit.credit import resolve
    from turncredit.credit_models.train import load

    labels = iter(job.paths("labels"))
    measured = next((job.store.table(path, "measures") for path in job.paths("measures")), None)
    shared = {} if measured is None else {"measures": measured}
    learned = []
    for (name, entry), model, hiddens in zip(
        job.config.learned.items(), job.paths("models"), job.paths("hiddens"), strict=True
    ):
        side = {"labels": job.store.table(next(labels), "labels")} if entry.labels else {}
        method = resolve(entry.method, name)
        learned.append(tests.Learned(method, load(model), job.store.table(hiddens, "hiddens"), {**side, **shared}))
    rows = tests.leaks(
        job.table("turns"),
        learned,
        job.table("branches"),
        seed=job.at.seed,
        round=job.at.round,
        where=job.path("turns"),
    )
    job.write("leaks", pa.Table.from_pylist(rows, schema=tables.schema("leaks")))
    print(leak_measures.text(rows))
    return {"methods": float(len(learned)), "rows": float(len(rows))}
