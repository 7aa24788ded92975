"""The table of methods x environments (benchmarks/worlds)."""

from __future__ import annotations

from benchmarks.worlds import table
from tests.results import synthetic

METHODS = ("flat_grpo", "gigpo", "hgpo", "rloo", "triage", "scpo", "random_credit")


def test_experiments_stand_side_by_side_and_what_is_unfinished_is_said(tmp_path, capsys):
    folders = []
    for name, done in (("one", {}), ("same", {}), ("part", {("scpo", 0): 1})):
        config = synthetic.experiment(METHODS, seeds=[0], rounds=3, games=12, experiment=name)
        folders.append(str(synthetic.make(tmp_path, config, rounds_done=done, turns=False)))
    table.main(folders)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("- one: 7 of 7 runs finished. Open: oracle_progress has no finished runs")
    assert lines[2].startswith("- part: 6 of 7 runs finished; missing: scpo (1).")
    gains = lines.index("**Points above flat_grpo**")
    assert lines[gains + 2] == "| | one | same | part |"
    row = next(line for line in lines[gains:] if line.startswith("| `scpo` |")).split(" | ")
    assert row[1] == row[2]
    assert "(" in row[1]  # its interval
    assert row[3].strip() == "|"
    said = {line.partition(",")[0]: line for line in lines if "order of the gains" in line}
    assert "+1.00" in said["- one and same"]
    assert "5 methods" in said["- one and same"]  # neither flat GRPO nor the bound
    assert said["- one and part"].endswith("4 methods in common, too few")
