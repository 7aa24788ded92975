"""The configurations that come with the project."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.helpers import as_if_simulators_were_here
from turncredit.config import Experiment, load
from turncredit.pipeline import checks

ROOT = Path(__file__).resolve().parents[2]
PRESETS = sorted(path for path in (ROOT / "config").rglob("*.yaml") if "sweep" not in path.name)


@pytest.mark.slow
@pytest.mark.parametrize("path", PRESETS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_preset_laid_over_the_default_is_valid(path, monkeypatch):
    monkeypatch.chdir(ROOT)  # a preset names files of methods as the pipeline finds them
    as_if_simulators_were_here(monkeypatch)
    experiment = load([ROOT / "config.yaml", path])
    checks.check(experiment)
    assert experiment.experiment != "household", "a preset keeps its results apart from the default's"


def test_the_default_is_valid_and_trains_both_bounds_and_a_method_on_as_many_seeds_as_decide():
    experiment = load([ROOT / "config.yaml"])
    checks.check(experiment)
    assert experiment.methods == ("flat_grpo", "random_credit", "has_judge", "oracle_progress")
    assert len(experiment.seeds) >= 3
    assert experiment.audited_rounds() == [(0, 1)]


def test_the_schema_in_the_repository_is_the_models():
    text = (ROOT / "schemas" / "config.schema.json").read_text()
    assert json.loads(text) == Experiment.model_json_schema(), (
        "make it again: python -m turncredit.config > schemas/config.schema.json"
    )
