"""Which artifacts a configuration makes: its report, audits and tracking, and everything that they are made from.

Other artifacts in an experiment's folder are unplanned: another configuration left them there, or somebody asked for
them by path. They are in no report, query or MLflow run.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from turncredit.config.layout import Layout
from turncredit.errors import UserError
from turncredit.pipeline.all_jobs import every_job, planned_paths
from turncredit.pipeline.plan import Plan
from turncredit.views.experiments import read_config


def plan_of(folder: str | Path) -> Plan:
    """The plan of the experiment in `folder`, by the configuration there, with the paths of this folder.

    Raises UserError, which names the configuration's file.
    """
    folder = Path(folder)
    experiment = read_config(folder).model_copy(update={"experiment": folder.name})
    plan = Plan(experiment, folder.parent)
    try:
        for method in plan.experiment.methods:
            plan.method(method)
        return plan
    except UserError as error:
        raise UserError(f"{Layout(folder).path('config')}: {str(error).removeprefix('config: ')}") from None


def plans_of(folders: Sequence[Path]) -> Iterator[tuple[Path, Plan | UserError]]:
    """Each experiment's folder with its plan, or with the mistake in its configuration, such as an own method's file
    that is gone: others go on. Raises UserError where there is no other."""
    for folder in folders:
        plan: Plan | UserError
        try:
            plan = plan_of(folder)
        except UserError as error:
            if len(folders) == 1:
                raise
            plan = error
        yield folder, plan


def current(folder: str | Path) -> Layout:
    """The layout of an experiment's folder without unplanned artifacts; with all where a user's own method is gone."""
    folder = Path(folder)
    try:
        plan = plan_of(folder)
        return Layout(folder, planned_paths(plan, every_job(plan)))
    except UserError:
        return Layout(folder)
