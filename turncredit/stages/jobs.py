"""All jobs behind an experiment's results, with what each of them reads: found as Snakemake finds them, in a second."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cache

from turncredit.errors import UserError
from turncredit.layout import ARTIFACTS, METRICS, keys_in
from turncredit.stages.job import At
from turncredit.stages.plan import STAGES, Plan, load

#: A stage and the keys of one of its jobs.
Step = tuple[str, At]

#: stage by artifact
MADE_BY = {kind: stage for stage in STAGES for kind in load(stage).OUTPUTS.values()}
#: (stage, pattern) of artifacts and metrics, by first folder and depth: large experiments have a hundred thousand paths
_ALIKE: dict[tuple[str, int], list[tuple[str, str]]] = {}
for _stage, _pattern in [*((MADE_BY[name], kind.pattern) for name, kind in ARTIFACTS.items()), *METRICS.items()]:
    _ALIKE.setdefault((_pattern.partition("/")[0], _pattern.count("/")), []).append((_stage, _pattern))


def every_job(plan: Plan) -> list[Step]:
    """Every job of the experiment, each after those whose outputs it reads; with granularity `stage`, Snakemake's jobs.

    They are what the report, the audits and MLflow's import need, directly or not.
    """
    roots = [("report", At())]
    roots += [("track", At())] if plan.experiment.tracking.enabled else []
    jobs: dict[Step, None] = {}
    begun: set[Step] = set()
    stack = [(job, False) for job in roots[::-1]]
    while stack:
        job, after_its_inputs = stack.pop()
        if after_its_inputs:
            jobs[job] = None
        elif job not in begun:
            begun.add(job)
            stack.append((job, True))
            stack += [(before, False) for before in makers(plan, job) if before not in begun]
    return list(jobs)


def makers(plan: Plan, job: Step) -> Iterator[Step]:
    """The jobs that make what a job reads, some perhaps twice."""
    for value in plan.inputs(*job).values():
        for path in [value] if isinstance(value, str) else value:
            step = maker(plan, path)
            if step is not None:
                yield step


def maker(plan: Plan, path: str) -> Step | None:
    """The job that makes the artifact at `path`; None for a file that no job makes (a user's own code)."""
    root = f"{plan.layout.root}/"
    return _maker(path.removeprefix(root)) if path.startswith(root) else None


@cache
def _maker(relative: str) -> Step:
    """The job that makes the file or folder at a path below the experiment's folder."""
    where = relative.partition("/")[0], relative.count("/")
    for stage, pattern in (*_ALIKE.get(where, ()), *_ALIKE.get(("{start}", where[1]), ())):
        keys = keys_in(pattern, relative)
        if keys is not None:
            return stage, At.of({key: str(value) for key, value in keys.items()})
    raise UserError(f"{relative}: no stage makes it")


def is_done(plan: Plan, job: Step) -> bool:
    """Whether a job has ended well: a stage's metrics are written after its outputs, and kept when they are deleted."""
    return os.path.exists(plan.metrics(*job))
