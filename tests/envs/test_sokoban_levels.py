"""Levels: files in the common text format, what is equal when turned, splits without a common room."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests import tiny
from turncredit import envs
from turncredit.envs.sokoban import Settings, make_tasks, open_task
from turncredit.envs.sokoban.commands import app
from turncredit.envs.sokoban.files import read_levels
from turncredit.envs.sokoban.generate import SPLITS
from turncredit.envs.sokoban.level import Position, Room, read
from turncredit.envs.sokoban.tasks import file_levels
from turncredit.errors import UserError
from turncredit.pipeline import checks

COLLECTION = """
; A collection
Title: first

#####
#@$.#
#####

second
  ####
###--#
#_*@ #
#_$ .#
######
; third
#####
#+$ #
#   #
#####
"""

#: what is wrong with a file -> its levels, and what is said
DAMAGED = {
    "two players": ("#####\n#@$.#\n#@  #\n#####", r"level 1 \(line 1\): 2 players, not 1"),
    "no player": ("#####\n# $.#\n#####", "0 players, not 1"),
    "a box more": ("######\n#@$$.#\n######", "2 boxes and 1 targets; there must be as many of both"),
    "no boxes": ("#####\n#@  #\n#####", "0 boxes and 0 targets"),
    "no solution": ("#####\n#@$ #\n#  .#\n#####", "this level has no solution; leave it out"),
    "solved": ("#####\n#@* #\n#####", "this level is solved before the first action"),
    "unknown symbol": ("#####\n#@$x.#\n#####", "unknown symbol 'x'; known are # @ "),
    "a gap": ("#####\n#@$. \n#####", r"the outer wall has a gap in row 2, column \d"),
    "walled off": ("#######\n#@$.#$#\n####.##\n#######", "the box in row 2, column 6 is walled off"),
    "too large": (
        "\n".join(["#" * 12, "#@" + " " * 9 + "#", *["# $ $ $ $  #"] * 3, *["# . . . .  #"] * 3, "#" * 12]),
        r"12 boxes on 70 squares have 7\.\de\+14 positions, more than the 20,000,000",
    ),
    "nothing": ("Title: none\n", "no levels in this file"),
}


def written(tmp_path, text, name="levels.txt"):
    path = tmp_path / name
    path.write_text(text)
    return path


# ---------------------------------------------------------------- files


def test_a_collection_is_read_whatever_stands_between_its_levels(tmp_path):
    levels = read_levels(written(tmp_path, COLLECTION))
    assert [level.room.draw(level.start) for level in levels][:2] == [
        ("#####", "#@$.#", "#####"),
        ("######", "###  #", "# *@ #", "# $ .#", "######"),
    ]
    assert [len(level.start.boxes) for level in levels] == [1, 2, 1]


@pytest.mark.parametrize(("text", "said"), DAMAGED.values(), ids=DAMAGED)
def test_a_level_that_cannot_be_played_is_one_line_with_its_place(tmp_path, text, said):
    path = str(written(tmp_path, text))
    made = Settings(levels={"train": path})
    with pytest.raises(UserError, match=said) as refused:
        make_tasks("train", 1, 0, made)
    assert str(refused.value).startswith(path)
    assert "\n" not in str(refused.value)


def test_files_that_are_absent_or_no_text_are_named(tmp_path):
    with pytest.raises(UserError, match=r"nowhere\.txt: no such file of levels \(env\.sokoban\.levels\)"):
        make_tasks("train", 1, 0, Settings(levels=str(tmp_path / "nowhere.txt")))
    (tmp_path / "bytes.txt").write_bytes(b"#####\n\xff\xfe")
    with pytest.raises(UserError, match=r"bytes\.txt: not a UTF-8 text file \(byte 6\)"):
        read_levels(tmp_path / "bytes.txt")


def test_a_plan_that_does_not_fit_into_the_horizon_is_refused_by_its_level(tmp_path):
    path = written(tmp_path, "#######\n#@$  .#\n#######\n")
    with pytest.raises(UserError, match=r"level 1: its optimal plan takes 3 actions, .* env\.sokoban\.horizon \(2\)"):
        make_tasks("train", 1, 0, Settings(levels={"train": str(path)}, horizon=2))


def corridors(count: int) -> str:
    """Levels of different length."""
    return "\n\n".join(f"{'#' * (n + 5)}\n#@$.{' ' * n}#\n{'#' * (n + 5)}" for n in range(count))


def test_one_file_is_divided_between_its_splits_by_room(tmp_path):
    made = Settings(levels=str(written(tmp_path, corridors(20))))
    numbers = {split: {number for number, _ in file_levels(split, made)} for split in ("train", "eval")}
    assert numbers["train"] | numbers["eval"] == set(range(1, 21))
    assert not numbers["train"] & numbers["eval"]
    assert min(map(len, numbers.values())) > 4
    rows = make_tasks("eval", 3, 5, made)
    assert rows == make_tasks("eval", 4, 5, made)[:3]
    assert {row["source"] for row in rows} == {"files"}
    env = open_task(rows[0], made)
    env.reset()
    assert [env.step(action).success for action in env.oracle()][-1]
    with pytest.raises(
        UserError, match=r"unknown split 'test' of levels from files; env\.sokoban\.levels has train, eval"
    ):
        make_tasks("test", 1, 0, made)
    with pytest.raises(UserError, match=r"the split 'eval' of the levels in .* has \d+ levels, not 99; ask for fewer"):
        make_tasks("eval", 99, 0, made)


def test_two_files_with_a_room_in_common_are_refused_before_any_job_also_where_it_is_turned(tmp_path):
    one = written(tmp_path, "#####\n#@$.#\n#   #\n#####\n", "one.txt")
    other = written(tmp_path, corridors(2) + "\n\n####\n# @#\n# $#\n# .#\n####\n", "other.txt")
    experiment = tiny.experiment(
        env={"name": "sokoban", "sokoban": {"levels": {"train": str(one), "eval": str(other)}}},
        methods=["flat_grpo"],
        audit={"rounds": []},
    )
    with pytest.raises(UserError, match=r"level 1 of .*one\.txt and level 3 of .*other\.txt are in the same room"):
        checks.check(experiment)


def test_a_level_that_is_there_twice_in_another_orientation_is_one_task(tmp_path):
    path = written(tmp_path, "#####\n#@$.#\n#   #\n#####\n\n####\n# @#\n# $#\n# .#\n####\n")
    made = Settings(levels={"train": str(path)})
    assert [number for number, _ in file_levels("train", made)] == [1]


def test_the_command_solves_a_file(tmp_path):
    found = CliRunner().invoke(app, ["check", str(written(tmp_path, corridors(3)))])
    assert found.exit_code == 0, found.output
    assert {key: value for key, value in json.loads(found.stdout).items() if key != "seconds"} == {
        "levels": 3,
        "rooms": 3,
        "boxes": {"1": 3},
        "shortest": 1,
        "longest": 1,
    }


def test_exported_levels_are_the_generated_ones(tmp_path):
    path = tmp_path / "out" / "levels.txt"
    done = CliRunner().invoke(app, ["export", str(path), "--split", "eval", "--count", "7", "--seed", "3"])
    assert done.exit_code == 0, done.output
    rows = [json.loads(row["game"])["rows"] for row in make_tasks("eval", 7, 3, Settings())]
    assert [list(room.draw(start)) for room, start in read_levels(path)] == rows


# ---------------------------------------------------------------- equal layouts


def turned(rows, times: int, reflected: bool):
    for _ in range(times):
        rows = ["".join(row[column] for row in reversed(rows)) for column in range(len(rows[0]))]
    return [row[::-1] for row in rows] if reflected else list(rows)


def moved_by(rows, down: int, right: int):
    return ["#" * (len(rows[0]) + right)] * down + ["#" * right + row for row in rows]


@settings(deadline=None, max_examples=60)
@given(
    row=st.integers(0, 7),
    times=st.integers(0, 3),
    reflected=st.booleans(),
    down=st.integers(0, 2),
    right=st.integers(0, 2),
)
def test_a_level_is_the_same_when_turned_reflected_or_moved(row, times, reflected, down, right):
    rows = json.loads(make_tasks("train", 8, 0, Settings())[row]["game"])["rows"]
    room, start = read(rows)
    again, start_again = read(moved_by(turned(rows, times, reflected), down, right))
    assert again.digest == room.digest
    assert again.digest_of(start_again) == room.digest_of(start)


def test_another_player_box_or_target_is_another_level():
    room, start = read(["######", "#@$ .#", "#   ##", "######"])
    moved = {room.digest_of(start), room.digest_of(Position(start.player + 2, start.boxes))}
    assert len(moved | {room.digest_of(Position(start.player, (2,)))}) == 3
    assert room.digest != Room(room.squares, (2,)).digest


# ---------------------------------------------------------------- generated levels


@pytest.mark.parametrize("seeds", [(0, 0), (3, 8)])
def test_no_two_splits_share_a_room_in_any_orientation_whatever_their_seeds(seeds):
    made = Settings(boxes=(1,), sizes=(5, 6), length=(1, 12))
    rooms = {}
    for split, seed in zip(("train", "eval"), seeds, strict=True):
        rows = make_tasks(split, 80, seed, made)
        rooms[split] = {read(json.loads(row["game"])["rows"]).room.digest for row in rows}
        levels = [read(json.loads(row["game"])["rows"]) for row in rows]
        assert len({room.digest_of(start) for room, start in levels}) == 80
    assert not rooms["train"] & rooms["eval"]
    assert min(map(len, rooms.values())) > 40


def test_families_take_turns_and_have_the_boxes_walls_and_lengths_asked_for():
    made = Settings(boxes=(1, 3), sizes=(6, 7), walls=0.2, length=(3, 9), horizon=9)
    rows = make_tasks("valid", 40, 2, made)
    assert [row["family"] for row in rows[:5]] == ["1 box 6x6", "3 boxes 6x6", "1 box 7x7", "3 boxes 7x7", "1 box 6x6"]
    for row in rows:
        room, start = read(json.loads(row["game"])["rows"])
        assert len(start.boxes) == int(row["family"][0])
        assert not set(start.boxes) & set(room.targets)
        assert 3 <= row["optimal_length"] <= 9
        assert all(max(square) <= 7 for square in room.squares)
    assert all(make_tasks(split, 2, 0, made) for split in SPLITS)


def test_a_random_walk_loses_most_generated_levels_and_the_expert_none():
    environment, made = envs.load("sokoban"), Settings()
    dead, rng = 0, random.Random(0)
    for row in environment.make_tasks("valid", 60, 1, made):
        env = environment.open_task(row, made)
        env.reset()
        while not env.step(environment.slip(env, rng)).done:
            pass
        dead += env.distance() == -1
    assert 25 < dead < 55
