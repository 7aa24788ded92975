"""A method of one's own file, with labels, log-probabilities and a model, in the pipeline; and what an edit repeats."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from tests import tiny
from tests.pipeline.conftest import ROOT
from tests.pipeline.test_dag import TINY, counts
from turncredit.data import tables
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

EXAMPLE = "examples/judged_value.py"
DEFINE = "define={mine: {credit: '" + EXAMPLE + ":METHOD', model: {epochs: 8}}}"
WANTED = [tiny.path("credits", "mine", round=round) for round in (1, 2)]
ASKED = (*TINY, "--cores", "2", "--config", "methods=[mine]", DEFINE, "--", *WANTED)


@pytest.fixture(scope="module")
def finished(pipeline, started, tmp_path_factory) -> Path:
    """Two rounds of the example, up to the second's credit."""
    folder = started(tmp_path_factory.mktemp("own"))
    (folder / "examples").mkdir()
    shutil.copy(ROOT / EXAMPLE, folder / EXAMPLE)
    run = pipeline.run(folder, *ASKED)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


def edit(file: Path, old: str, new: str) -> None:
    """Change a file, but not its time, as `cp -p`, rsync and tar do."""
    status = file.stat()
    text = file.read_text(encoding="utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))


@pytest.mark.slow
def test_the_example_of_a_method_with_a_model_runs_and_its_model_credits_the_second_round(finished):
    first, second = (tables.read(finished / path, "credits") for path in WANTED)
    assert first.column("value").null_count == first.num_rows
    assert second.column("value").null_count == 0
    values = tables.read(finished / tiny.path("values", "mine", round=2), "values")
    assert set(values.column("model").to_pylist()) == {EXAMPLE}


@pytest.mark.slow
def test_an_edit_of_the_file_repeats_its_credit_and_model_whatever_its_time(pipeline, finished):
    assert counts(pipeline.run(finished, "-n", *ASKED)) == {}
    edit(finished / EXAMPLE, "nan=0.5", "nan=0.4")
    again = counts(pipeline.run(finished, "-n", *ASKED))
    assert (again["credit_model"], again["values"], again["credit"]) == (2, 2, 2)
    assert not {"tasks", "demos", "sft"} & set(again)
    edit(finished / EXAMPLE, "nan=0.4", "nan=0.5")
    assert counts(pipeline.run(finished, "-n", *ASKED)) == {}


def codes(experiment) -> dict[str, str | None]:
    """What identifies the method's code in the slices of the stages that run it."""
    plan = Plan(experiment)
    at = JobKeys(policy="mine", method="mine", seed=0, round=2)
    found = {stage: plan.slice(stage, at).model_dump().get("code") for stage in ("credit", "credit_model", "values")}
    learned = plan.slice("leaks", at).model_dump()["learned"]["mine"]
    return {**found, "leaks": learned.get("code"), "leaks model": learned["model"].get("code")}


def of_mine(entry: dict) -> object:
    """A tiny experiment whose audit compares the method `mine`."""
    return tiny.experiment(methods=["mine"], define={"mine": entry}, audit={"rounds": [2], "methods": ["mine"]})


def test_the_stages_that_run_a_files_code_know_its_content(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "examples").mkdir()
    shutil.copy(ROOT / EXAMPLE, tmp_path / EXAMPLE)
    experiment = of_mine({"credit": f"{EXAMPLE}:METHOD"})
    before = codes(experiment)
    assert None not in before.values()
    edit(tmp_path / EXAMPLE, "nan=0.5", "nan=0.4")
    after = codes(experiment)
    assert not set(before.values()) & set(after.values())
    plan, at = Plan(experiment), JobKeys(policy="mine", method="mine", seed=0, round=2)
    assert plan.inputs("credit_model", at)["kind"] == plan.inputs("values", at)["kind"] == EXAMPLE
    assert plan.inputs("leaks", at)["own"] == [EXAMPLE]


def test_slices_of_built_in_methods_are_as_they_were():
    assert set(codes(of_mine({"base": "turn_value", "params": {"normaliser": "whiten"}})).values()) == {None}
    plan, at = Plan(of_mine({"base": "turn_value"})), JobKeys(policy="mine", method="mine", seed=0, round=2)
    assert set(plan.slice("credit", at).model_dump()) == {"method"}
    assert set(plan.slice("credit_model", at).model_dump()) == {"kind", "settings"}
    assert not {"kind", "own"} & {*plan.inputs("credit_model", at), *plan.inputs("leaks", at)}
