"""Stage `leaks`: does a learned credit model know how a rollout ended from its length or its last turn?"""

from __future__ import annotations

from itertools import chain
from typing import Any

import pyarrow as pa

from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.data import tables
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice, own_code
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.stages import credit, credit_model


class Learned(Slice):
    """A learned method: its definition, its model, and the side tables that it reads beside the model's values; and its
    code, if it is not built in."""

    method: dict[str, Any] | str
    code: str | None = own_code()
    model: credit_model.Config
    side: tuple[str, ...]


class Config(Slice):
    """The audit's learned methods."""

    learned: dict[str, Learned]


def config(plan: Plan, at: JobKeys) -> Config:
    """Each learned method of the audit."""
    learned = {}
    for name in plan.audit_learned:
        keys = JobKeys(method=name)
        learned[name] = Learned(
            method=credit.config(plan, keys).method,
            code=plan.code(name),
            model=credit_model.config(plan, keys),
            side=_side(plan, name),
        )
    return Config(learned=learned)


def _side(plan: Plan, name: str) -> tuple[str, ...]:
    """The side tables that the credit of the method `name` reads; not the values, which each view has of its own."""
    return tuple(side for side in plan.side_tables(name) if side != "values")


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """Turns, ground truth, each learned method's model and hidden states, the side tables and own files they read."""
    path = plan.layout.path
    names = plan.audit_learned
    side: dict[str, list[str]] = {}
    for name in names:
        for one in _side(plan, name):
            side.setdefault(one, []).append(plan.read_by(one, at, name))
    return {
        "turns": path("turns", at.keys),
        "branches": path("branches", at.keys),
        "models": [path("model", at.keys, method=name) for name in names],
        "hiddens": [plan.read_by("hiddens", at, name) for name in names],
        **({"own": own} if (own := _own_files_of(plan)) else {}),
        **side,
    }


def _own_files_of(plan: Plan) -> list[str]:
    """The user's own files that these methods and their models are made of, each once."""
    named = [read for name in plan.audit_learned for read in (plan.own_files(name), plan.model_file(name))]
    files = [[paths] if isinstance(paths, str) else paths for read in named for paths in read.values()]
    return list(dict.fromkeys(chain.from_iterable(files)))


def run(job: Job) -> dict[str, float]:
    """Write the leak tests of all learned methods, and print the verdicts."""
    from turncredit.audit import leak_measures
    from turncredit.audit import leak_tests as tests
    from turncredit.credit import resolve
    from turncredit.credit.models.train import load

    paths = {side: iter(job.paths(side)) for entry in job.config.learned.values() for side in entry.side}
    learned = []
    for (name, entry), model, hiddens in zip(
        job.config.learned.items(), job.paths("models"), job.paths("hiddens"), strict=True
    ):
        side = {one: job.store.table(next(paths[one]), one) for one in entry.side}
        method = resolve(entry.method, name)
        learned.append(tests.Learned(method, load(model), job.store.table(hiddens, "hiddens"), side))
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


def needed(plan: Plan, method: str) -> bool:
    """Whether the audit compares a learned credit model."""
    return bool(plan.audit_learned)


STAGE = Stage(
    name="leaks",
    after="gradients",
    phase="audit",
    message="Leak tests of credit models on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"leaks": table("leaks", ROLLOUTS)},
    folder=ROLLOUTS,
    file="leaks",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    needed=needed,
    hiddens=True,
)
