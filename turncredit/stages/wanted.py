"""Which artifacts a configuration makes: all that its report, its audits and its tracking are made from, and these.

Artifacts in an experiment's folder that are not among them are foreign: another configuration left them there (other
methods, more rounds, another judge), or somebody asked for them by path. They are not mixed into reports and queries.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from turncredit.errors import UserError
from turncredit.layout import ARTIFACTS, Layout, keys_in
from turncredit.results.experiments import read_config
from turncredit.stages.job import At
from turncredit.stages.plan import STAGES, Plan, load

#: a stage, and the keys of one of its jobs
Step = tuple[str, At]


@cache
def made_by() -> dict[str, str]:
    """The stage that makes each kind of artifact."""
    return {kind: stage for stage in STAGES for kind in load(stage).OUTPUTS.values()}


def step_of(relative: str) -> Step | None:
    """The job that makes the artifact at this path below the experiment's folder; None where no stage makes it."""
    for name, kind in ARTIFACTS.items():
        keys = keys_in(kind.pattern, relative)
        if keys is not None:
            return made_by()[name], At.of({key: str(value) for key, value in keys.items()})
    return None


def input_paths(plan: Plan, step: Step) -> list[str]:
    """The files and folders that a job reads."""
    values = plan.inputs(*step).values()
    return [path for value in values for path in ([value] if isinstance(value, str) else value)]


def wanted_jobs(plan: Plan) -> dict[Step, list[str]]:
    """Every job that the configuration needs, with the paths that it reads; the last ones first."""
    last: list[Step] = [("report", At())]
    if plan.experiment.tracking.enabled:
        last.append(("track", At()))
    jobs: dict[Step, list[str]] = {}
    known: dict[str, Step | None] = {}
    begin = len(f"{plan.layout.root}/")
    while last:
        step = last.pop()
        if step in jobs:
            continue
        jobs[step] = input_paths(plan, step)
        for path in jobs[step]:
            if path not in known:
                known[path] = step_of(path[begin:]) if path.startswith(f"{plan.layout.root}/") else None
                if known[path] is not None:
                    last.append(known[path])  # type: ignore[arg-type]
    return jobs


def made_paths(plan: Plan, step: Step) -> list[str]:
    """The artifacts of a job, and its metrics."""
    return [*plan.outputs(*step).values(), plan.metrics(*step)]


def plan_of(folder: str | Path) -> Plan:
    """The plan of the experiment in `folder`, by the configuration there, with the paths of this folder.

    Raises UserError for a configuration that cannot be read, or whose own methods are not found.
    """
    folder = Path(folder)
    return Plan(read_config(folder).model_copy(update={"experiment": folder.name}), folder.parent)


def current(folder: str | Path) -> Layout:
    """The layout of an experiment's folder without foreign artifacts.

    Results can outlive the file or the package of a method of one's own: nobody can say then what the configuration
    makes, and nothing is left out.
    """
    folder = Path(folder)
    try:
        plan = plan_of(folder)
        paths = {path for step in wanted_jobs(plan) for path in made_paths(plan, step)}
    except UserError:
        return Layout(folder)
    begin = len(f"{plan.layout.root}/")
    return Layout(folder, frozenset(path[begin:] for path in paths))
