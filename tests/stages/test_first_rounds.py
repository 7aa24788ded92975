"""The first round of each preset for the household and the shop: every stage, with its methods, agents and settings.

What is not as in the preset: a few generated games, or a small generated shop, and short rollouts in place of the
released games and of the original's catalogue; tiny weights of
Qwen2's architecture (those that the tests' world has trained) in place of the hub's; the CPU's engine in place of vLLM;
the rule-based judge in place of a model; word overlap in place of a cross-encoder.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests import presets
from tests.helpers import nonempty
from turncredit.cli import doctor
from turncredit.config import Experiment, from_mapping, merge
from turncredit.data import tables
from turncredit.data.yaml_files import read_mapping
from turncredit.pipeline.all_jobs import every_job
from turncredit.pipeline.plan import Plan, load

ROOT = Path(__file__).resolve().parents[2]

pytestmark = [pytest.mark.long, pytest.mark.slow]
#: environment -> its settings for a few short rollouts without anybody's data
SMALL: dict[str, dict[str, Any]] = {
    "household": {
        "source": "generated",
        "families": ["pick"],
        "rooms": ["bathroom"],
        "receptacles": [4, 4],
        "distractors": [0, 0],
        "horizon": 4,
    },
    "webshop": {"source": "generated", "products": 50, "page_size": 3, "horizon": 4},
}


def played(name: str) -> str:
    """The environment of a preset."""
    return presets.experiment(name).env.name


PLAYED_HERE = nonempty(name for name in presets.PRETRAINED if played(name) in SMALL)


def small(name: str, weights: Path) -> Experiment:
    """The preset with a first round that takes seconds on a CPU."""
    whole = merge(read_mapping(presets.DEFAULT), presets.settings(name))
    changes: dict[str, Any] = doctor.miniature(from_mapping(whole))
    changes = merge(
        changes,
        {
            "rounds": 1,
            "policy": {"source": str(weights), "engine": "lockstep"},
            "env": {played(name): SMALL[played(name)]},
            "tasks": {"train_split": "train", "eval_split": "eval"},
            "judge": {"kind": "rule", "serve": None, "evidence": True},
            "audit": {"rounds": []},
        },
    )
    for method, entry in whole.get("define", {}).items():
        if "scorer" in entry.get("params", {}):
            changes = merge(changes, {"define": {method: {"params": {"scorer": "lexical"}}}})
    return from_mapping(merge(whole, changes))


@pytest.mark.parametrize("name", PLAYED_HERE)
def test_the_first_round_of_a_preset_runs(name, world, tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    experiment = small(name, Path(world.path("sft_policy")).resolve())
    plan = Plan(experiment, tmp_path / "results")
    jobs = nonempty(step for step in every_job(plan) if step[0] not in ("report", "track"))
    metrics = {step: load(step[0]).run(plan.job(*step)) for step in jobs}
    for step in jobs:
        assert [output for output in plan.job(*step).output.values() if not Path(output).exists()] == [], step
    trained = nonempty(run for run in experiment.runs())
    for method, seed in trained:
        updates = plan.layout.path("updates", method=method, seed=seed, round=1)
        assert tables.read(updates, "updates").num_rows == metrics_of(metrics, "update", method)["steps"]
        policy = Path(plan.layout.path("policy", method=method, seed=seed, round=1))
        assert json.loads((policy / "provenance.json").read_text())["stage"] == "update"


def metrics_of(metrics: dict, stage: str, method: str) -> dict[str, float]:
    """The metrics of a stage's only job for a method."""
    (found,) = (value for (name, at), value in metrics.items() if name == stage and at.method == method)
    return found
