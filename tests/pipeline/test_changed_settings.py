"""Which settings have changed since the last run is said where finished results are made again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests import tiny
from turncredit.pipeline.changed_settings import changed_settings, in_words
from turncredit.pipeline.plan import Plan
from turncredit.pipeline.run import State, new_lines

OTHER = "sft={lr: 0.002}"
SAID = "settings have changed since the last run"


def test_settings_with_another_value_are_named_and_those_of_another_version_are_not(tmp_path):
    plan = Plan(tiny.experiment(), tmp_path)
    assert changed_settings(plan) == []
    stored = plan.experiment.model_dump(mode="json")
    config = Path(plan.layout.path("config"))
    config.parent.mkdir(parents=True)
    config.write_text(json.dumps(stored), encoding="utf-8")
    assert changed_settings(plan) == []
    stored["update"].update(lr=0.5, of_another_version=1)
    del stored["rounds"]
    stored["methods"] = ["flat_grpo", "random_credit", "has_progressive", "gigpo"]
    config.write_text(json.dumps(stored), encoding="utf-8")
    lr, methods = (plan.experiment.update.lr, plan.experiment.methods)
    assert changed_settings(plan) == [
        f'methods: ["flat_grpo", "random_credit", "has_ ..., now {json.dumps(list(methods))}',
        f"update.lr: 0.5, now {lr}",
    ]
    config.write_text("half a fi", encoding="utf-8")
    assert changed_settings(plan) == []


def test_the_first_few_settings_are_named_and_the_others_counted():
    assert in_words(["a: 1, now 2", "b: 1, now 2"]) == "a: 1, now 2; b: 1, now 2"
    assert in_words([f"{name}: 1, now 2" for name in "abcdef"]).endswith("d: 1, now 2; and 2 more")


def test_this_programs_lines_are_shown_once_and_only_when_they_are_whole(tmp_path):
    output, state = tmp_path / "output", State(cores=1)
    output.write_bytes(b"Building DAG\nturncredit: warning: one\nturncredit: half")
    assert new_lines(tmp_path, state) == ["turncredit: warning: one"]
    assert new_lines(tmp_path, state) == []
    with output.open("ab") as more:
        more.write(b" a line\nsomething \xff else\nturncredit: another\n")
    assert new_lines(tmp_path, state) == ["turncredit: half a line", "turncredit: another"]
    assert state.said == ["turncredit: warning: one", "turncredit: half a line", "turncredit: another"]


@pytest.mark.slow
def test_a_run_says_which_setting_has_changed_before_it_replaces_results(pipeline, started, tmp_path):
    folder = started(tmp_path)
    target = tiny.path("sft_policy")
    command = ("-m", "turncredit.pipeline.run", "--cores", "1", target, "results/tiny/config.json", *tiny.ARGUMENTS)
    first = pipeline.python(folder, *command)
    assert first.returncode == 0, first.stdout + first.stderr
    assert SAID not in first.stdout
    second = pipeline.python(folder, *command, "--config", OTHER)
    assert second.returncode == 0, second.stdout + second.stderr
    (line,) = [line for line in second.stdout.splitlines() if SAID in line]
    assert "(sft.lr: " in line
    assert "now 0.002). Jobs that replace their results: 1." in line
