"""Which packages each stage imports, and that a run is refused before its first job where one is missing."""

from __future__ import annotations

import importlib.util

import pytest

from tests import tiny
from turncredit.config.stages import stages
from turncredit.errors import UserError
from turncredit.pipeline import imports, preflight
from turncredit.pipeline.plan import Plan

HIDDEN = ("matplotlib", "mlflow")


@pytest.mark.parametrize(
    ("stage", "package", "module"),
    [
        ("report", "matplotlib", "turncredit.views.report.figures"),
        ("track", "mlflow", "turncredit.views.tracking"),
        ("label", "aiohttp", "turncredit.judges.client"),
        ("rollout", "vllm", "turncredit.policy.engines.vllm"),
        ("update", "peft", "turncredit.policy.models"),
    ],
)
def test_imports_are_found_inside_of_functions_and_through_other_modules(stage, package, module):
    assert imports.packages(stage)[package] == module


def test_what_another_stage_or_only_a_type_needs_is_not_a_stages_own():
    assert not {"matplotlib", "vllm"} & imports.packages("track").keys()
    assert not {"mlflow", "aiohttp", "vllm"} & imports.packages("report").keys()
    assert not {"vllm", "transformers", "matplotlib"} & imports.packages("tasks").keys()


@pytest.fixture
def without(monkeypatch):
    """An environment without the packages in HIDDEN."""
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name in HIDDEN else found(name))


@pytest.mark.usefixtures("without")
def test_a_run_is_refused_before_its_first_job_if_the_report_at_its_end_lacks_a_package():
    """vLLM's environment had no matplotlib: a run ended at its report after all GPU work."""
    plan = Plan(tiny.experiment())
    with pytest.raises(UserError, match=r"^the package matplotlib is not installed in .*, where report needs it; pip"):
        preflight.refuse(plan, {"rollout", "report"}, preflight.Where())
    preflight.refuse(plan, {"rollout", "tasks"}, preflight.Where())


@pytest.mark.usefixtures("without")
def test_every_missing_package_is_said_at_once_and_none_where_jobs_have_their_own_environment():
    plan = Plan(tiny.experiment())
    lines = [one.line for one in preflight.packages(plan, stages(), preflight.Where())]
    assert [line.split()[2] for line in lines] == list(HIDDEN)
    assert not list(preflight.packages(plan, stages(), preflight.Where(deployed="conda")))


def test_a_missing_compiler_is_a_warning_where_vllm_samples(monkeypatch):
    vllm, lockstep = (Plan(tiny.experiment(policy={"engine": engine})) for engine in ("vllm", "lockstep"))
    monkeypatch.setenv("CC", "no-such-compiler")
    (found,) = preflight.compiler(vllm, ("rollout",), preflight.Where())
    assert found.fine is None
    assert "no C compiler is here (no-such-compiler)" in found.line
    assert not list(preflight.compiler(lockstep, ("rollout",), preflight.Where()))
    assert not list(preflight.compiler(vllm, ("rollout",), preflight.Where(deployed="apptainer")))
    monkeypatch.setenv("CC", "sh")
    assert [one.fine for one in preflight.compiler(vllm, ("rollout",), preflight.Where())] == [True]
