"""Released games in `alfworld-download`'s layout, and what is said when they are not there."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from turncredit.envs.household import ENVIRONMENT, Settings, make_tasks, open_task, profile
from turncredit.envs.household.goals import FAMILIES
from turncredit.envs.household.real import check_data
from turncredit.errors import UserError


def real(root, **more):
    return Settings(source="real", data_root=str(root), **more)


def write_game(root, content, split="valid_seen", task="pick_and_place_simple-Mug-None-Shelf-1"):
    path = root / "json_2.1.1" / split / task / "trial_1" / "game.tw-pddl"
    path.parent.mkdir(parents=True)
    path.write_text(content)
    return path


def test_without_a_folder_the_error_says_how_to_get_one(monkeypatch):
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    with pytest.raises(UserError, match=r"alfworld-download.*`pip install alfworld`.*ALFWORLD_DATA") as refused:
        make_tasks("train", 1, 0, Settings(source="real"))
    assert str(refused.value).endswith("Generated games need no files: --config 'env={household: {source: generated}}'")


def test_a_missing_folder_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("ALFWORLD_DATA", str(tmp_path / "nowhere"))
    with pytest.raises(UserError, match=r"no folder .*nowhere/json_2\.1\.1: .*`pip install alfworld`"):
        make_tasks("train", 1, 0, Settings(source="real"))


def test_an_empty_split_and_a_misspelt_one_are_errors(tmp_path):
    (tmp_path / "json_2.1.1" / "train").mkdir(parents=True)
    with pytest.raises(UserError, match=r"split 'train' is empty.*json_2\.1\.1/train"):
        make_tasks("train", 1, 0, real(tmp_path))
    with pytest.raises(UserError, match=r"unknown split 'valid_sen'.*did you mean 'valid_seen'"):
        make_tasks("valid_sen", 1, 0, real(tmp_path))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"pddl_domain": "', "damaged"),
        ('{"pddl_domain": "", "grammar": ""}', "lacks pddl_problem"),
        ('{"pddl_domain": "", "grammar": null, "pddl_problem": ""}', "lacks grammar"),
        ("[1]", "is not a game"),
        (json.dumps({"pddl_domain": "x", "grammar": '"task": [{"rhs": "y"}]', "pddl_problem": ""}), "unknown edition"),
    ],
)
def test_a_bad_game_file_is_named_with_what_is_wrong(tmp_path, content, message):
    path = write_game(tmp_path, content)
    with pytest.raises(UserError, match=f"{path}.*{message}"):
        make_tasks("valid_seen", 1, 0, real(tmp_path))


def test_tasks_outside_the_six_families_are_left_out(tmp_path):
    write_game(tmp_path, "{}", task="pick_and_place_with_movable_recep-Mug-Bowl-Shelf-1")
    with pytest.raises(UserError, match="empty"):
        make_tasks("valid_seen", 1, 0, real(tmp_path))


def test_the_edition_of_a_folder_is_told_and_an_unknown_one_is_refused(released_games, tmp_path):
    assert check_data(real(released_games)) == "games of the edition alfworld-games-2.1.1 (valid_seen)"
    assert check_data(Settings()) is None
    game = json.loads(next(released_games.glob("json_2.1.1/valid_seen/*/*/game.tw-pddl")).read_text())
    write_game(tmp_path, json.dumps({**game, "pddl_domain": game["pddl_domain"] + ";"}))
    with pytest.raises(UserError, match=r"unknown edition of the ALFWorld domain"):
        check_data(real(tmp_path))


def test_the_first_released_games_have_the_domain_of_2_1_1_without_help(released_games):
    game = json.loads(next(released_games.glob("json_2.1.1/valid_seen/*/*/game.tw-pddl")).read_text())
    domain = game["pddl_domain"].split("(:action help")[0] + ")\n"
    key = hashlib.sha256(domain.encode()).hexdigest()
    assert key.startswith("34172c333dff")
    assert [name for (known, _), name in profile._EDITIONS.items() if known == key] == ["alfworld-games-2020"]


def test_released_games_become_tasks_that_can_be_won(released_games):
    settings = real(released_games, horizon=50)
    rows = make_tasks("valid_seen", 30, 0, settings)
    assert make_tasks("valid_seen", 34, 0, settings)[:30] == rows
    assert len({row["task_id"] for row in rows}) == 30
    for row in rows:
        env = open_task(row, settings)
        env.reset()
        for command in env.oracle():
            step = env.step(command)
        assert step.success


def at_one_place(game):
    """A generated game whose receptacles are all at one place, as several of a released game may be."""
    data = json.loads(game)
    declared, stated = data["pddl_problem"].split("(:init")
    return json.dumps(
        {**data, "pddl_problem": f"{declared}(:init{re.sub(r'loc_bar_[1-9][0-9]*', 'loc_bar_1', stated)}"}
    )


@pytest.mark.parametrize("family", FAMILIES)
def test_no_released_game_is_taken_for_longer_than_one_may_be_whose_things_are_at_one_place(family):
    settings = Settings(families=(family,), distractors=(0, 2))
    rows = [{**row, "game": at_one_place(row["game"])} for row in make_tasks("train", 40, 0, settings)]
    shortest = 99
    for row in rows:
        env = open_task(row, settings)
        env.reset()
        shortest = min(shortest, env.distance())
    assert ENVIRONMENT.least_actions(real("anywhere", families=(family,))) == {family: shortest}


def test_the_shortest_released_games_are_not_shorter_than_the_environment_says(released_games):
    rows = make_tasks("valid_seen", 35, 0, real(released_games))
    least = ENVIRONMENT.least_actions(real(released_games))
    assert all(row["optimal_length"] >= least[row["family"]] for row in rows)


def test_more_tasks_than_the_split_has_are_an_error(released_games):
    with pytest.raises(UserError, match=r"has \d+ games of the families look, not 1000"):
        make_tasks("valid_seen", 1000, 0, real(released_games, families=("look",)))
