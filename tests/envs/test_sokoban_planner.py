"""Sokoban's distances against a search of the test's own, which knows the rows of a level and nothing else."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator

import pytest
from hypothesis import assume, given, reject, settings
from hypothesis import strategies as st

from tests.helpers import nonempty
from turncredit.envs.sokoban import Settings, make_tasks, open_task
from turncredit.envs.sokoban.level import BadLevel, read
from turncredit.envs.sokoban.planner import DEAD, Distances, moved

STEPS = {"up": (-1, 0), "down": (1, 0), "left": (0, -1), "right": (0, 1)}


def after(walls, state, way) -> tuple | None:
    """The rules of Sokoban once more: (player, boxes) after a step."""
    (row, column), boxes = state
    down, right = STEPS[way]
    ahead, beyond = (row + down, column + right), (row + 2 * down, column + 2 * right)
    if ahead in walls or (ahead in boxes and (beyond in walls or beyond in boxes)):
        return None
    return ahead, frozenset(beyond if box == ahead else box for box in boxes)


def parsed(rows):
    marks = {(r, c): symbol for r, row in enumerate(rows) for c, symbol in enumerate(row)}
    where = {name: {square for square, symbol in marks.items() if symbol in symbols} for name, symbols in KINDS.items()}
    return where["wall"], where["target"], (min(where["player"]), frozenset(where["box"]))


KINDS = {"wall": "#", "target": ".+*", "player": "@+", "box": "$*"}


def shortest(rows) -> int:
    """The length of the shortest solution, by breadth-first search forwards; -1 if there is none."""
    walls, targets, start = parsed(rows)
    reached, waiting = {start: 0}, deque([start])
    while waiting:
        state = waiting.popleft()
        if state[1] == targets:
            return reached[state]
        for way in STEPS:
            following = after(walls, state, way)
            if following is not None and following not in reached:
                reached[following] = reached[state] + 1
                waiting.append(following)
    return -1


def positions(rows) -> Iterator[tuple[Distances, tuple]]:
    """All positions that can be reached in a level."""
    room, start = read(rows)
    table, found = Distances(room), {start}
    waiting = [start]
    while waiting:
        position = waiting.pop()
        yield table, position
        for direction in range(4):
            following = moved(room.beside, position, direction)
            if following is not None and following not in found:
                found.add(following)
                waiting.append(following)


LEVELS = {
    "one push": ["#####", "#@$.#", "#####"],
    "round the box": ["######", "#@   #", "# $. #", "#    #", "######"],
    "two boxes": ["######", "#@   #", "# $$ #", "#.  .#", "######"],
    "three boxes, a corridor": ["#######", "#@ #  #", "# $$  #", "#  $# #", "#.. . #", "#######"],
}


@pytest.mark.parametrize("rows", LEVELS.values(), ids=LEVELS)
def test_distances_of_all_positions_that_can_be_reached_equal_an_independent_search(rows):
    room, _ = read(rows)
    reached = list(positions(rows))
    assert len(reached) >= 3
    for table, position in nonempty(reached[::31]):  # a search for each one would take long
        assert table.distance(position) == shortest(room.draw(position)), room.draw(position)


CELL = st.sampled_from("#    ")


@settings(deadline=None, max_examples=60)
@given(cells=st.lists(CELL, min_size=12, max_size=12), data=st.data())
def test_the_distance_of_any_small_level_equals_an_independent_search(cells, data):
    free = [n for n, cell in enumerate(cells) if cell == " "]
    boxes = data.draw(st.integers(1, 2))
    assume(len(free) > 2 * boxes)
    chosen = data.draw(st.permutations(free))
    for square, symbol in zip(chosen, "@" + "$" * boxes + "." * boxes, strict=False):
        cells[square] = symbol
    rows = ["######", *("#" + "".join(cells[at : at + 4]) + "#" for at in (0, 4, 8)), "######"]
    try:
        level = read(rows)
    except BadLevel:  # something is walled off
        reject()
    table = Distances(level.room)
    assert table.distance(level.start) == shortest(rows)
    assert len(table.plan(level.start)) == max(table.distance(level.start), 0)


@settings(deadline=None, max_examples=30)
@given(row=st.integers(0, 11))
def test_the_distance_of_a_generated_level_falls_by_one_along_the_plan_and_equals_an_independent_search(row):
    made = Settings()
    task = make_tasks("train", 12, 4, made)[row]
    env = open_task(task, made)
    env.reset()
    length = env.distance()
    assert length == task["optimal_length"] == len(env.oracle())
    short = length <= 8  # a search for longer ones takes seconds
    assert not short or shortest(json.loads(task["game"])["rows"]) == length
    for number, action in enumerate(env.oracle(), start=1):
        step = env.step(action)
        assert env.distance() == length - number
    assert step.success


@pytest.mark.parametrize("rows", LEVELS.values(), ids=LEVELS)
def test_no_action_leads_more_than_one_closer_and_none_leads_out_of_a_dead_position(rows):
    room, _ = read(rows)
    dead = 0
    for table, position in positions(rows):
        now = table.distance(position)
        following = [moved(room.beside, position, direction) for direction in range(4)]
        distances = [table.distance(one) for one in following if one is not None]
        dead += now == DEAD
        best = min((one for one in distances if one != DEAD), default=DEAD)
        assert best == (DEAD if now == DEAD else now - 1) or now == 0
    assert dead > 0 or rows is LEVELS["one push"]


def test_positions_are_numbered_one_by_one():
    table = Distances(read(LEVELS["three boxes, a corridor"]).room)
    for number in table.between(0, 40)[::17].tolist():
        assert table._index(table.position_of(number)) == number
