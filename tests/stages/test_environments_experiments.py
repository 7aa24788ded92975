"""The embedded experiments of the worlds, and what `config/worlds_*.yaml` lay over them."""

from __future__ import annotations

import pytest

from tests.envs.conftest import needs_virtualhome
from tests.tiny import ROOT
from turncredit.config import Experiment, from_mapping, merge
from turncredit.credit.parts.baselines import BASELINE, ORACLE, RANDOM
from turncredit.data.yaml_files import read_mapping
from turncredit.pipeline.job import JobKeys
from turncredit.pipeline.plan import Plan, load

NAMES = (
    "webshop",
    "searchqa",
    "desk",
    pytest.param("virtualhome", marks=needs_virtualhome),
    "sokoban",
)
TUNING = 30
"""The seed of the tasks on which their settings were found (docs/environments)."""


def experiment(*files: str) -> Experiment:
    return from_mapping(merge(*(read_mapping(ROOT / file) for file in ("config.yaml", *files))))


@pytest.mark.parametrize("name", NAMES)
def test_an_environment_s_experiment_trains_flat_grpo_and_both_references_on_seeds_and_tasks_that_can_decide(name):
    one = experiment(f"config/{name}.yaml")
    assert {RANDOM, BASELINE, ORACLE} <= set(one.methods)
    assert len(one.seeds) >= 3
    assert one.tasks.seed != TUNING
    assert one.tasks.eval >= one.eval.games * len(one.eval_rounds())


@pytest.mark.parametrize(
    "files",
    [
        ("webshop",),
        ("webshop", "worlds_webshop"),
        ("searchqa",),
        ("searchqa", "worlds_searchqa"),
        ("sokoban",),
        ("sokoban", "worlds_sokoban"),
        ("desk",),
        ("desk", "worlds_desk"),
        pytest.param(("virtualhome",), marks=[needs_virtualhome, pytest.mark.slow]),
        pytest.param(("virtualhome", "worlds_virtualhome"), marks=[needs_virtualhome, pytest.mark.slow]),
    ],
    ids="+".join,
)
def test_an_environment_s_experiment_has_as_many_tasks_as_it_asks_for(files, tmp_path):
    one = experiment(*(f"config/{file}.yaml" for file in files))
    plan = Plan(one, tmp_path)
    counts = {"train": one.tasks.train, plan.demonstrated: one.tasks.demos or one.tasks.train, "eval": one.tasks.eval}
    made = {split: load("tasks").run(plan.job("tasks", JobKeys(split=split)))["games"] for split in counts}
    assert made == counts
