"""The example agent goes through the whole pipeline; nothing outside examples/ and config/ knows of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import tiny
from tests.pipeline.conftest import Pipeline
from turncredit import config
from turncredit.data import tables
from turncredit.pipeline.checks import check
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan

EXAMPLE = tiny.ROOT / "examples" / "own_agent.py"


def test_the_examples_configuration_is_valid(monkeypatch):
    monkeypatch.chdir(tiny.ROOT)
    experiment = config.load(["config.yaml", "config/own_agent.yaml"])
    check(experiment)
    plan = Plan(experiment)
    assert experiment.agent.chosen().settings == {"remember": 6}
    assert Path(plan.inputs("sft", JobKeys())["agent"]).resolve() == EXAMPLE, "its code decides the result"
    assert plan.slice("base", JobKeys()).vocabulary == ("<note>", "<do>")
    assert Plan(config.load(["config.yaml"])).slice("base", JobKeys()).vocabulary == ()


@pytest.mark.slow
def test_the_example_goes_through_warm_start_rollout_credit_update_and_evaluation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("own_agent")
    (folder / "source").mkdir()
    (folder / "work").mkdir()
    pipeline = Pipeline(folder / "source")
    work = pipeline.link(folder / "work")
    changes = (f"agent={{name: {EXAMPLE}, max_response_tokens: 24}}", "sft={epochs: 5}", "methods=[flat_grpo]")
    run = pipeline.run(work, "--cores", "1", *tiny.ARGUMENTS, "--config", *changes, "rounds=1")
    assert run.returncode == 0, run.stdout + run.stderr
    turns = tables.read(only(work, "turns.parquet"), "turns").to_pandas()
    assert set(turns.agent) == {"notes"}
    assert turns.context_reset.all()
    assert turns.well_formed.mean() > 0.8, "the warm start teaches the format"
    noted = turns[turns.well_formed]
    assert (noted.response_text == "<note> " + noted.note + "<do> " + noted.action).mean() > 0.8
    assert noted.note.str.fullmatch(r"[a-z]+ \d").mean() > 0.8
    credits = tables.read(only(work, "credits*.parquet", "credits/*.parquet"), "credits")
    assert credits.num_rows == len(turns)
    assert tables.read(only(work, "updates.parquet"), "updates").num_rows > 0
    evals = [tables.read(path, "evals") for path in work.rglob("results/**/evals*/*.parquet")]
    evals += [tables.read(path, "evals") for path in work.rglob("results/**/evals.parquet")]
    assert {policy for table in evals for policy in table.column("policy_id").to_pylist()} > {"sft"}


def only(folder: Path, *patterns: str) -> Path:
    """The one file of that name, wherever the layout puts it."""
    found = {path for pattern in patterns for path in folder.glob(f"results/**/{pattern}")}
    assert len(found) == 1, found
    return found.pop()
