"""Stage `credit`: a method's advantages, and all their components, for a table of turns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from turncredit.config.stages import ROLLOUTS, Stage, table
from turncredit.credit import compute, resolve
from turncredit.data.seeding import derive_seed
from turncredit.data.turns import Turns, with_forks
from turncredit.pipeline.job import Inputs, Job, JobKeys, Slice, own_code
from turncredit.pipeline.plan import Plan


class Config(Slice):
    """The method's entry in the configuration, or a built-in method's name; and its code, if it is not built in."""

    method: dict[str, Any] | str
    code: str | None = own_code()


def config(plan: Plan, at: JobKeys) -> Config:
    """The method's definition."""
    return Config(method=plan.experiment.definition(at.method), code=plan.code(at.method))


def inputs(plan: Plan, at: JobKeys) -> Inputs:
    """The turns and, if the method has them, their forks, the side tables that it reads, and the user's own files."""
    path = plan.layout.path
    files: Inputs = {"turns": path("turns", at.keys), **plan.forks_file(at, at.method)}
    for name in plan.side_tables(at.method):
        files[name] = plan.read_by(name, at, at.method)
    return {**files, **plan.own_files(at.method)}


def run(job: Job) -> dict[str, float]:
    """Write the credits; returns the advantages' RMS and the share that is zero."""
    config, at = job.config, job.at
    method = resolve(config.method, at.method)
    side = {name: job.table(name, name) for name in (*method.needs, "measures") if name in job.input}
    turns = job.table("turns", "turns")
    if "forks" in job.input:
        turns = with_forks(turns, job.table("forks", "forks"))
    view = Turns(turns, side, where=job.path("turns"))
    table = compute(view, method, seed=derive_seed(at.seed, "credit", at.round))
    job.write("credits", table)
    advantage_N = table.column("advantage").to_numpy()
    return {
        "advantage_rms": float(np.sqrt(np.mean(advantage_N**2))),
        "advantage_zero": float(np.mean(advantage_N == 0)),
    }


def keys(plan: Plan, turns: JobKeys, method: str) -> JobKeys:
    """The method is a key."""
    return replace(turns, method=method)


STAGE = Stage(
    name="credit",
    after="values",
    phase="round",
    message="Credit by {method} on the rollouts of {policy}, seed {seed}, round {round}",
    makes={"credits": table("credits", f"{ROLLOUTS}/credits", "{method}")},
    folder=ROLLOUTS,
    file="credit-{method}",
    part=Config,
    slice=config,
    inputs=inputs,
    run=run,
    keys=keys,
)
