"""A Snakemake or Slurm plugin that has renamed a part that is replaced or read is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from snakemake.jobs import Job

from turncredit.errors import UserError
from turncredit.pipeline import failures, internals, slurm
from turncredit.pipeline.lost_jobs import LostJobs
from turncredit.pipeline.submission import Submission

LOCK = Path(__file__).parents[2] / "requirements.lock"
NAMES = (
    "sleep",
    "additional_general_args",
    "_failed_nodes",
    "report_job_error",
    "report_job_success",
    "check_active_jobs",
    "run_job",
    "_report_job_error_threadsafe",
    "_report_job_submission_threadsafe",
    "shutdown",
    "run_uuid",
    "slurm_logdir",
)
USES: dict[Callable[[Any], Any], tuple[str, ...]] = {
    lambda executor: slurm.poll_every(executor, 1.0): ("sleep",),
    slurm.without_job_step: ("additional_general_args",),
    lambda executor: failures.record_what_slurm_says(executor, "results/x", since=0.0): NAMES[2:4],
    lambda executor: LostJobs(executor, Path(".snakemake")): (*NAMES[3:6], "run_uuid"),
    Submission: NAMES[6:],
}


def executor() -> SimpleNamespace:
    settings = SimpleNamespace(executor_settings=SimpleNamespace(array_jobs=None))
    return SimpleNamespace(workflow=settings, **dict.fromkeys(NAMES))


@pytest.mark.parametrize(("use", "name"), [(use, name) for use, names in USES.items() for name in names])
def test_an_executor_that_has_renamed_what_is_used_is_refused_with_both_versions(use, name) -> None:
    use(executor())
    renamed = executor()
    delattr(renamed, name)
    with pytest.raises(UserError) as refused:
        use(renamed)
    said = str(refused.value)
    assert f"types.SimpleNamespace has no {name} in the installed snakemake {version('snakemake')}, " in said
    assert f"install snakemake=={internals.TESTED['snakemake']} snakemake-executor-plugin-slurm==" in said
    assert "\n" not in said


def test_an_attribute_that_is_there_is_replaced_and_returned() -> None:
    owner = SimpleNamespace(x=1)
    assert internals.replace(owner, "x", 2) == 1
    assert owner.x == 2


def test_snakemakes_jobs_have_what_the_rules_replace() -> None:
    internals.require(Job, "restart_times")
    assert isinstance(Job.restart_times, property)


def test_the_tested_versions_are_those_of_the_lock_file() -> None:
    locked = dict(re.findall(r"^(snakemake[\w-]*)==(\S+)", LOCK.read_text(encoding="utf-8"), re.MULTILINE))
    assert {name: locked[name] for name in internals.TESTED} == internals.TESTED
