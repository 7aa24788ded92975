"""All jobs behind an experiment's results, with what each of them reads: found as Snakemake finds them, in a second."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from turncredit.config import stages
from turncredit.config.layout import keys_in
from turncredit.errors import UserError
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.loop import Step
from turncredit.pipeline.plan import Plan


@cache
def _patterns() -> dict[tuple[str, int], list[tuple[str, str]]]:
    """(stage, pattern) of every file of a job by first folder and depth: experiments can have 100,000 paths."""
    alike: dict[tuple[str, int], list[tuple[str, str]]] = {}
    for stage in stages.stages().values():
        for pattern in (*(kind.pattern for kind in stage.makes.values()), stage.metrics, stage.log):
            alike.setdefault((pattern.partition("/")[0], pattern.count("/")), []).append((stage.name, pattern))
    return alike


def jobs_and_inputs(plan: Plan) -> dict[Step, list[str]]:
    """Every job of the experiment with the paths that it reads, each after those whose outputs it reads.

    They are what the report, the audits and MLflow's import need, directly or not.
    """
    roots = [("report", JobKeys())]
    roots += [("track", JobKeys())] if plan.experiment.tracking.enabled else []
    jobs: dict[Step, list[str]] = {}
    reads: dict[Step, list[str]] = {}
    stack = [(job, False) for job in roots[::-1]]
    while stack:
        job, after_its_inputs = stack.pop()
        if after_its_inputs:
            jobs[job] = reads[job]
        elif job not in reads:
            reads[job] = list(read_paths(plan, job).values())
            stack.append((job, True))
            makers = (maker(plan, path) for path in reads[job])
            stack += [(before, False) for before in makers if before is not None and before not in reads]
    return jobs


def every_job(plan: Plan) -> list[Step]:
    """Every job of the experiment, each after those whose outputs it reads."""
    return list(jobs_and_inputs(plan))


def maker(plan: Plan, path: str) -> Step | None:
    """The job that makes the artifact at `path`; None for a file outside the experiment's folder."""
    root = f"{plan.layout.root}/"
    if not path.startswith(root):
        return None
    step = step_of(path.removeprefix(root))
    if step is None:
        raise UserError(f"{path}: no stage writes this; check the path")
    return step


@cache
def step_of(relative: str) -> Step | None:
    """The job that an artifact, metrics, log or description below the experiment's folder belongs to; None without."""
    if relative.endswith(".job.json"):
        relative = f"{relative.removesuffix('.job.json')}.log"
    where = relative.partition("/")[0], relative.count("/")
    for stage, pattern in (*_patterns().get(where, ()), *_patterns().get(("{warm_start}", where[1]), ())):
        keys = keys_in(pattern, relative)
        if keys is not None:
            return stage, JobKeys.of({key: str(value) for key, value in keys.items()})
    return None


def read_paths(plan: Plan, step: Step) -> dict[str, str]:
    """What a job reads, by the names in its provenance: several files of one input are numbered."""
    paths: dict[str, str] = {}
    for name, value in plan.inputs(*step).items():
        several = {f"{name}_{number}": path for number, path in enumerate(value)} if isinstance(value, list) else {}
        paths |= several or ({name: value} if isinstance(value, str) else {})
    return paths


def made_paths(plan: Plan, step: Step) -> list[str]:
    """The artifacts of a job, and its metrics."""
    return [*plan.outputs(*step).values(), plan.metrics(*step)]


def planned_paths(plan: Plan, jobs: Iterable[Step]) -> frozenset[str]:
    """What these jobs make, as paths below the experiment's folder."""
    begin = len(f"{plan.layout.root}/")
    return frozenset(path[begin:] for step in jobs for path in made_paths(plan, step))
