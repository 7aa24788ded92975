"""Stage `credit`: a method's advantages, and all their components, for a table of turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from turncredit.credit import compute, resolve
from turncredit.seeding import derive_seed
from turncredit.stages.job import At, Inputs, Job, Slice
from turncredit.stages.plan import Plan
from turncredit.turns import Turns


class Config(Slice):
    """The method's entry in the configuration, or a built-in method's name."""

    method: dict[str, Any] | str


def config(plan: Plan, at: At) -> Config:
    """The method's definition."""
    return Config(method=plan.experiment.definition(at.method))


def inputs(plan: Plan, at: At) -> Inputs:
    """The turns, the side tables that the method reads, and the user's own file if the method has one."""
    path = plan.layout.path
    files: Inputs = {"turns": path("turns", at.keys)}
    keyed = {"labels": plan.labels_at, "logprobs": plan.logprobs_at}
    for name in plan.side_tables(at.method):
        keys = keyed[name](at, at.method) if name in keyed else at
        files[name] = path(name, keys.keys)
    own = plan.own_file(at.method)
    return {**files, "method": own} if own else files


OUTPUTS = {"credits": "credits"}


def run(job: Job) -> dict[str, float]:
    """Write the credits; returns the advantages' RMS and the share that is zero."""
    config, at = job.config, job.at
    method = resolve(config.method, at.method)
    side = {name: job.table(name, name) for name in (*method.needs, "measures") if name in job.input}
    view = Turns(job.table("turns", "turns"), side, where=job.path("turns"))
    table = compute(view, method, seed=derive_seed(at.seed, "credit", at.round))
    job.write("credits", table)
    advantage_N = table.column("advantage").to_numpy()
    return {
        "advantage_rms": float(np.sqrt(np.mean(advantage_N**2))),
        "advantage_zero": float(np.mean(advantage_N == 0)),
    }
