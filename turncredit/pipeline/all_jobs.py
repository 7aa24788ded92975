"""All jobs behind an experiment's results, with what each of them reads: found as Snakemake finds them, in a second."""

from __future__ import annotations

from functools import cache

from turncredit.config import stages
from turncredit.config.layout import keys_in
from turncredit.errors import UserError
from turncredit.pipeline.job import At
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan


@cache
def _patterns() -> dict[tuple[str, int], list[tuple[str, str]]]:
    """(stage, pattern) of artifacts, then metrics, by first folder and depth: experiments can have 100,000 paths."""
    every = stages.stages().values()
    made = [(stage.name, kind.pattern) for stage in every for kind in stage.makes.values()]
    alike: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for stage, pattern in [*made, *((stage.name, stage.metrics) for stage in every)]:
        alike.setdefault((pattern.partition("/")[0], pattern.count("/")), []).append((stage, pattern))
    return alike


def jobs_and_inputs(plan: Plan) -> dict[Step, list[str]]:
    """Every job of the experiment with the paths that it reads, each after those whose outputs it reads.

    They are what the report, the audits and MLflow's import need, directly or not; with granularity `stage`,
    Snakemake's jobs.
    """
    roots = [("report", At())]
    roots += [("track", At())] if plan.experiment.tracking.enabled else []
    jobs: dict[Step, list[str]] = {}
    reads: dict[Step, list[str]] = {}
    stack = [(job, False) for job in roots[::-1]]
    while stack:
        job, after_its_inputs = stack.pop()
        if after_its_inputs:
            jobs[job] = reads[job]
        elif job not in reads:
            reads[job] = [
                path for value in plan.inputs(*job).values() for path in ([value] if isinstance(value, str) else value)
            ]
            stack.append((job, True))
            makers = (maker(plan, path) for path in reads[job])
            stack += [(before, False) for before in makers if before is not None and before not in reads]
    return jobs


def every_job(plan: Plan) -> list[Step]:
    """Every job of the experiment, each after those whose outputs it reads."""
    return list(jobs_and_inputs(plan))


def maker(plan: Plan, path: str) -> Step | None:
    """The job that makes the artifact at `path`; None for a file outside the experiment's folder (a user's own code).

    Raises UserError for a path in the folder that no stage makes.
    """
    root = f"{plan.layout.root}/"
    if not path.startswith(root):
        return None
    step = step_of(path.removeprefix(root))
    if step is None:
        raise UserError(f"{path}: no stage makes it")
    return step


@cache
def step_of(relative: str) -> Step | None:
    """The job that makes the file or folder at a path below the experiment's folder; None where no stage makes it."""
    where = relative.partition("/")[0], relative.count("/")
    for stage, pattern in (*_patterns().get(where, ()), *_patterns().get(("{start}", where[1]), ())):
        keys = keys_in(pattern, relative)
        if keys is not None:
            return stage, At.of({key: str(value) for key, value in keys.items()})
    return None


def made_paths(plan: Plan, step: Step) -> list[str]:
    """The artifacts of a job, and its metrics."""
    return [*plan.outputs(*step).values(), plan.metrics(*step)]
