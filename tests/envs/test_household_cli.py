"""`turncredit env household`: what it prints and how it ends."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from turncredit.envs.household.commands import app
from turncredit.envs.household.real import read_game
from turncredit.errors import UserError

runner = CliRunner()


def test_playing_ends_at_the_horizon_and_at_the_end_of_input():
    result = runner.invoke(app, ["play", "--horizon", "1"], input="look\n")
    assert "The game is over after 1 commands." in result.stdout
    assert runner.invoke(app, ["play", "--family", "heat"], input="").exit_code == 0


def test_nothing_to_compare_and_an_empty_folder_are_errors(tmp_path: Path):
    with pytest.raises(UserError, match="nothing to compare"):
        runner.invoke(app, ["conformance"], catch_exceptions=False)
    with pytest.raises(UserError, match=r"no game\.tw-pddl below"):
        runner.invoke(app, ["conformance", "--games", str(tmp_path)], catch_exceptions=False)


def test_bench_prints_json_with_all_figures(released_games: Path):
    result = runner.invoke(app, ["bench", "--games", str(released_games), "--count", "2", "--steps", "30"])
    assert result.exit_code == 0, result.output
    native = json.loads(result.stdout)["native"]
    assert native["games"] == 2
    assert native["steps"] == 60
    for key in ("load_ms", "reset_ms", "step_us", "steps_per_second", "snapshot_restore_us"):
        assert native[key] > 0


@pytest.mark.reference
def test_exported_games_pass_conformance(tmp_path: Path):
    pytest.importorskip("alfworld", reason="the reference engine (alfworld, textworld) is not installed")
    assert runner.invoke(app, ["export", str(tmp_path), "--count", "2"]).exit_code == 0
    assert len(list(tmp_path.rglob("game.tw-pddl"))) == 2
    result = runner.invoke(app, ["conformance", "--games", str(tmp_path), "--steps", "5"])
    assert result.exit_code == 0
    assert "2 games, 2 walkthroughs won" in result.stdout
    assert " 0 differences" in result.stdout


@pytest.mark.reference
def test_conformance_exits_with_1_where_the_engines_differ(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("alfworld", reason="the reference engine (alfworld, textworld) is not installed")
    runner.invoke(app, ["export", str(tmp_path), "--count", "1"])
    path = next(tmp_path.rglob("game.tw-pddl"))
    assert read_game(path)["solvable"]
    from turncredit.envs.household.game import Game

    monkeypatch.setattr(Game, "_look", lambda _self, world, *_: (world, "You look around."))
    result = runner.invoke(app, ["conformance", "--games", str(tmp_path), "--steps", "80"])
    assert result.exit_code == 1
    assert '"native": {\n  "text": "You look around."' in result.stdout


def test_a_released_game_is_played_and_a_damaged_one_named(released_games: Path, tmp_path: Path):
    game = next(released_games.glob("json_2.1.1/valid_seen/*/*/game.tw-pddl"))
    played = runner.invoke(app, ["play", "--game", str(game)], input="look\n\n")
    assert played.exit_code == 0
    assert json.loads(game.read_text())["grammar"].split("Your task is to: ")[1].split(".")[0] in played.stdout
    (tmp_path / "game.tw-pddl").write_text("{")
    with pytest.raises(UserError, match=r"game.tw-pddl is damaged"):
        runner.invoke(app, ["play", "--game", str(tmp_path / "game.tw-pddl")], catch_exceptions=False)
