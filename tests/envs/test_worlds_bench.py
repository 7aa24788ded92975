"""The table of all environments' speed and memory (benchmarks/env/worlds.py)."""

from __future__ import annotations

import pytest

from benchmarks.env import worlds

pytestmark = pytest.mark.slow


def test_an_environment_is_measured_in_a_process_of_its_own_and_has_a_figure_in_every_column(monkeypatch, capsys):
    monkeypatch.setitem(worlds.NAMES, "searchqa", worlds.Amount(alone=200, together=5, continuations=70))
    found = []
    monkeypatch.setattr(worlds, "figure", lambda value: found.append(value) or f"{value:.1f}")
    worlds.main(["searchqa", "--repetitions", "1"])
    head, _, row = capsys.readouterr().out.splitlines()
    assert row.count("|") == head.count("|")
    assert row.startswith("| searchqa | ")
    figures = dict(zip(worlds.COLUMNS, found, strict=True))
    assert min(figures["steps_1"], figures["steps_64"], figures["continuations"]) > 10
    assert 0 < figures["mb_1"] <= figures["mb_64"] < 500
    # Rollouts have at most four actions; a state is before the middle one, and at least one action follows.
    assert 0 < figures["restored"] <= 2
    assert 1 <= figures["played"] <= 4


def test_an_environment_that_cannot_be_played_here_is_left_out_with_the_reason(monkeypatch, capsys):
    monkeypatch.setattr(worlds, "missing", lambda _: "there is no java")
    worlds.main(["scienceworld"])
    printed = capsys.readouterr()
    assert len(printed.out.splitlines()) == 2
    assert printed.err == "scienceworld is left out: there is no java\n"


def test_an_unknown_environment_is_refused_with_the_names_of_those_there_are(capsys):
    with pytest.raises(SystemExit, match="2"):
        worlds.main(["webshp"])
    assert "unknown: webshp; there are household, webshop, searchqa" in capsys.readouterr().err
