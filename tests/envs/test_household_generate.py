"""Generated games: the same for the same seed, never shared by two splits, as hard as the settings say."""

from __future__ import annotations

import json
from collections import Counter

import pytest
from pydantic import ValidationError

from turncredit.envs.household import Settings, generate, make_tasks, open_task
from turncredit.envs.household.domain import FAMILY_ROOMS, ROOM_RECEPTACLES
from turncredit.envs.household.generate import SPLITS
from turncredit.envs.household.goals import FAMILIES
from turncredit.envs.household.settings import MOST_RECEPTACLES
from turncredit.errors import UserError

SMALL = Settings(receptacles=(4, 5), distractors=(2, 4))


def problems(rows):
    return {json.loads(row["game"])["pddl_problem"] for row in rows}


def test_no_two_splits_share_a_game_whatever_their_seeds():
    found = {split: problems(r for seed in (1, 2) for r in make_tasks(split, 60, seed, SMALL)) for split in SPLITS}
    counts = Counter(problem for split in found.values() for problem in split)
    assert len(counts) > 400
    assert set(counts.values()) == {1}


def test_no_task_occurs_twice_in_a_split():
    rows = make_tasks("train", 200, 0, SMALL)
    assert len({row["task_id"] for row in rows}) == len(problems(rows)) == 200


def test_families_take_turns_and_rows_say_what_the_game_says():
    rows = make_tasks("train", 12, 0, SMALL)
    assert [row["family"] for row in rows] == list(FAMILIES) * 2
    for row in rows:
        assert set(row) == {
            "task_id", "env", "split", "family", "goal", "source", "seed", "optimal_length", "game",
        }  # fmt: skip
        env = open_task(row, SMALL)
        env.reset()
        assert (env.goal, env.family, env.distance()) == (row["goal"], row["family"], row["optimal_length"])


@pytest.mark.parametrize(("family", "room"), [(f, r) for f in FAMILIES for r in FAMILY_ROOMS[f]])
def test_every_family_is_possible_in_a_room_of_four_receptacles(family, room):
    settings = Settings(families=(family,), rooms=(room,), receptacles=(4, 4), distractors=(0, 2))
    for row in make_tasks("valid", 5, 0, settings):
        assert row["optimal_length"] >= 3
        assert open_task(row, settings).reset().count(" a ") - 1 == 4


@pytest.mark.parametrize("room", ROOM_RECEPTACLES)
def test_rooms_can_be_as_large_as_the_settings_allow(room):
    family = next(f for f in FAMILIES if room in FAMILY_ROOMS[f])
    size = (MOST_RECEPTACLES, MOST_RECEPTACLES)
    settings = Settings(families=(family,), rooms=(room,), receptacles=size, distractors=(20, 30))
    row = make_tasks("train", 1, 0, settings)[0]
    assert json.loads(row["game"])["pddl_problem"].count("(receptacleAtLocation ") == MOST_RECEPTACLES


def test_the_number_of_receptacles_stays_within_the_settings():
    settings = Settings(receptacles=(6, 9), distractors=(0, 3))
    sizes = {
        json.loads(row["game"])["pddl_problem"].count("(receptacleAtLocation ")
        for row in make_tasks("train", 90, 0, settings)
    }
    assert sizes == {6, 7, 8, 9}


def test_rooms_have_no_more_distractors_than_the_settings_say_and_fewer_where_one_fits_nowhere():
    settings = Settings(families=("pick",), receptacles=(4, 4), distractors=(6, 6))
    counts = {
        json.loads(row["game"])["pddl_problem"].count("(inReceptacle ") - 1  # the object of the goal
        for row in make_tasks("train", 60, 0, settings)
    }
    assert max(counts) == 6
    assert min(counts) < 6


def test_too_many_tasks_for_tiny_rooms_are_an_error_that_says_what_to_change(monkeypatch):
    monkeypatch.setattr(generate, "_ATTEMPTS", 20)
    settings = Settings(families=("heat",), rooms=("kitchen",), receptacles=(4, 4), distractors=(0, 0))
    with pytest.raises(UserError, match=r"found no new household game of the family 'heat'.*receptacles"):
        make_tasks("train", 1000, 0, settings)


def test_a_game_of_an_unknown_edition_is_an_error():
    row = make_tasks("train", 1, 0, SMALL)[0]
    with pytest.raises(UserError, match="unknown profile"):
        open_task(row | {"game": row["game"].replace("alfworld-0.4", "alfworld-9")}, SMALL)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"receptacles": (2, 5)}, "receptacles: .* within 4"),
        ({"receptacles": (9, 5)}, "receptacles"),
        ({"receptacles": (9, 90)}, "receptacles"),
        ({"distractors": (-1, 5)}, "distractors"),
        ({"rooms": ("living",)}, "'clean' needs one of kitchen, bathroom"),
        ({"families": ("pick", "pick")}, "listed twice"),
        ({"families": ()}, "families"),
        ({"horizon": 0}, "horizon"),
        ({"engine": "nativ"}, "engine"),
        ({"receptakles": (4, 5)}, "receptakles"),
    ],
)
def test_bad_settings_are_refused(change, message):
    with pytest.raises(ValidationError, match=message):
        Settings(**change)
