"""The worked examples of docs/integrations.md: each runs, and is short."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest
import yaml

from tests import tiny
from tests.importers import files
from turncredit.bridges.spans import method_of

EXAMPLES = tiny.ROOT / "examples"


@pytest.mark.parametrize("name", ["trl_gigpo.py", "verifiers_credit.py", "verl.yaml"])
def test_an_example_is_under_forty_lines_of_code(name: str) -> None:
    lines = (EXAMPLES / name).read_text().splitlines()
    assert 5 < sum(bool(line.strip()) for line in lines) < 40


def test_an_evaluation_of_verifiers_is_credited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["verifiers_credit.py", str(files.verifiers(tmp_path)), "gigpo"])
    runpy.run_path(str(EXAMPLES / "verifiers_credit.py"))
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "read 1 file, 4 records: 4 rollouts, 8 turns"
    assert said[1].startswith("warning: equal observations of a group have different histories")
    assert said[3].split()[0] == "g0"
    assert len(said) == 11


def test_verls_configuration_names_a_method_that_its_estimator_can_run() -> None:
    algorithm = yaml.safe_load((EXAMPLES / "verl.yaml").read_text())["algorithm"]
    settings = algorithm["turncredit"]
    assert algorithm["adv_estimator"] == "turncredit"
    assert method_of(settings["method"], settings["params"], "verl", "example", []).params()["gamma"] == 0.95


@pytest.mark.integrations
def test_gigpo_credits_a_tiny_model_in_trls_trainer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl", reason="make test-integrations has an environment with trl")
    import torch

    from turncredit.bridges.trl import CreditGRPOTrainer

    made: list[torch.Tensor] = []
    batch = CreditGRPOTrainer._generate_and_score_completions

    def kept(self, inputs):
        output = batch(self, inputs)
        made.append(output["advantages"])
        return output

    torch.manual_seed(1)
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    monkeypatch.setattr(CreditGRPOTrainer, "_generate_and_score_completions", kept)
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(EXAMPLES / "trl_gigpo.py"))
    assert len(made) == 2
    assert all((advantage_BT != 0).any() for advantage_BT in made)
    assert (tmp_path / "results" / "trl").is_dir()
