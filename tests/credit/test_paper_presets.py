"""The papers' presets: they load over the default configuration, and every method in them is what it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from turncredit.config import load
from turncredit.credit.configured import configured_method
from turncredit.stages import checks

ROOT = Path(__file__).parents[2]
PRESETS = sorted((ROOT / "config" / "paper").glob("*.yaml"))


def test_there_is_a_preset_for_each_table() -> None:
    names = {preset.stem for preset in PRESETS}
    assert {
        "has_table2",
        "has_table3",
        "has_ablations",
        "scpo_table1_1p5b",
        "scpo_table1_7b",
        "scpo_table2",
        "scpo_sensitivity",
        "triage_table3",
        "triage_table5",
        "triage_table6",
        "triage_table10",
        "mgr_table1",
        "mgr_table2",
        "mgr_sensitivity",
    } <= names


@pytest.mark.parametrize("preset", PRESETS, ids=lambda preset: preset.stem)
def test_a_preset_is_valid_and_names_itself(preset: Path) -> None:
    experiment = load([ROOT / "config.yaml", preset])
    checks.check(experiment)
    assert experiment.experiment == preset.stem
    for name in experiment.define:
        assert name in experiment.methods
    for name in experiment.methods:
        configured_method(experiment, name)


@pytest.mark.parametrize("preset", [p for p in PRESETS if p.stem.startswith("scpo")], ids=lambda preset: preset.stem)
def test_scpos_presets_scale_alpha_and_the_penalty_to_rewards_of_one_and_zero(preset: Path) -> None:
    experiment = load([ROOT / "config.yaml", preset])
    params = {name: configured_method(experiment, name).params() for name in experiment.methods}
    assert {name: part["penalty"] for name, part in params.items()} == dict.fromkeys(params, 0.01)
    alphas = {name: part["alpha"] for name, part in params.items() if "theta" in part}
    assert alphas
    assert alphas == {name: {"alpha_0025": 0.025, "alpha_01": 0.1}.get(name, 0.05) for name in alphas}
