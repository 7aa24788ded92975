"""The table of methods x environments (benchmarks/worlds)."""

from __future__ import annotations

import pytest

from benchmarks.worlds import table
from tests.results import synthetic
from turncredit.views.collect import collect
from turncredit.views.report.grid import Number
from turncredit.views.report.summary import summarise

pytestmark = pytest.mark.slow

METHODS = ("flat_grpo", "gigpo", "hgpo", "rloo", "triage", "scpo", "random_credit")


def test_experiments_stand_side_by_side_and_what_is_unfinished_is_said(tmp_path, capsys):
    folders = []
    for name, done in (("whole", {}), ("part", {("scpo", 0): 1})):
        config = synthetic.experiment(METHODS, seeds=[0], rounds=3, games=6, experiment=name)
        folders.append(str(synthetic.make(tmp_path, config, rounds_done=done, turns=False)))
    whole, part = folders
    table.main([whole, part, whole])
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("- whole: 7 of 7 runs finished. ")
    assert lines[1].startswith("- part: 6 of 7 runs finished; missing: scpo (1).")
    gains = lines.index("**Points above flat_grpo**")
    assert lines[gains + 2] == "| | whole | part |"
    row = next(line for line in lines[gains:] if line.startswith("| `scpo` |")).split(" | ")
    assert "(" in row[1]  # its interval
    assert row[2].strip() == "|"
    said = {line.partition(",")[0]: line for line in lines if "order of the gains" in line}
    assert said["- whole and part"].endswith("4 methods in common, too few")
    assert "+1.00" in said["- whole and whole"]
    assert "5 methods" in said["- whole and whole"]  # neither flat GRPO nor the bound


def test_the_order_is_that_of_methods_alone(tmp_path):
    config = synthetic.experiment(METHODS, seeds=[0], rounds=3, games=6)
    summary = summarise(collect(synthetic.make(tmp_path, config, turns=False)))
    values = dict.fromkeys((*METHODS, "noise ceiling"), Number(0.5, "correlation", "", ""))
    assert set(table.numbers(summary, values)) == set(METHODS) - {"random_credit"}
