"""Sokoban's actions, what is shown, progress and dead positions, the rule judge."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turncredit import envs
from turncredit.envs.judging import Turn
from turncredit.envs.sokoban import Settings, make_tasks, open_task, random_command
from turncredit.envs.sokoban.game import NO_ACTION, Sokoban
from turncredit.envs.sokoban.level import read
from turncredit.envs.sokoban.view import grid, relations
from turncredit.errors import UserError

LEVEL = read(["######", "#@   #", "# $$ #", "#.  .#", "######"])
GRID = "# # # # # #\n# P _ _ _ #\n# _ X X _ #\n# O _ _ O #\n# # # # # #"
VIEWS = ("grid", "relations", "both")


def opened(*actions: str, rows=None, view: str = "grid", horizon: int = 30) -> Sokoban:
    env = Sokoban(read(rows) if rows else LEVEL, Settings(view=view, horizon=horizon))
    env.reset()
    for action in actions:
        env.step(action)
    return env


# ---------------------------------------------------------------- what is shown


def test_the_grid_has_ragen_s_symbols_also_for_player_and_box_on_a_target():
    """RAGEN, ragen/env/sokoban/config.py, `grid_lookup`."""
    assert opened().reset() == GRID
    env = opened(rows=["######", "#@$. #", "# $. #", "######"])
    assert env.step("right").observation == "# # # # # #\n# _ P √ _ #\n# _ X O _ #\n# # # # # #"
    env = opened(rows=["#####", "#@  #", "#.$ #", "#   #", "#####"])
    assert env.step("down").observation.splitlines()[2] == "# S X _ #"


def test_relations_say_where_boxes_and_open_targets_are_and_what_is_beside():
    assert opened(view="relations").reset() == (
        "You: wall free wall free. "
        "Box 1 down 1 right: free free free box; target 1 down 1 left, target 1 down 2 right. "
        "Box 1 down 2 right: free free box free; target 1 down 2 left, target 1 down 1 right."
    )
    env = opened(view="relations", rows=["######", "#@$. #", "# $. #", "######"])
    assert env.step("right").observation == (
        "You: wall box free box. Box 0 up 1 right: wall free free free; on a target. "
        "Box 1 down 0 left: free wall free free; target 0 up 1 right."
    )


def test_both_views_are_the_grid_and_then_the_relations():
    assert opened(view="both").reset() == f"{opened().reset()}\n{opened(view='relations').reset()}"


# ---------------------------------------------------------------- actions


@pytest.mark.parametrize("text", ["down", "Down", " DOWN ", "push down", "move down", "Move  Down"])
def test_a_direction_is_known_in_ragen_s_and_gym_sokoban_s_words(text):
    step = opened().step(text)
    assert step.valid
    assert step.observation.splitlines()[2] == "# P X X _ #"


@pytest.mark.parametrize(
    ("text", "reply"),
    [
        ("up", "You cannot go up: there is a wall."),
        ("push up", "You cannot go up: there is a wall."),
        ("still", NO_ACTION),
        ("up, down", NO_ACTION),
        ("Up || Right", NO_ACTION),
        ("", NO_ACTION),
        ("north", NO_ACTION),
    ],
)
def test_what_is_no_action_or_blocked_changes_nothing_and_costs_a_turn(text, reply):
    env = opened(horizon=16)
    step = env.step(text)
    assert step == (f"{reply}\n{GRID}", 0.0, False, False, False)
    assert env.snapshot().turns == 1
    assert envs.load("sokoban").failed(step) == (True, True)


def test_two_boxes_are_never_pushed_and_move_pushes_none():
    env = opened("down")
    assert env.step("right").observation.startswith("You cannot go right: the box is blocked.\n")
    env = opened("right")
    assert env.step("move down").observation.startswith("You cannot go down: there is a box.\n")
    assert env.step("push down").valid


@settings(deadline=None, max_examples=50)
@given(texts=st.lists(st.one_of(st.text(max_size=40), st.sampled_from(["up", "down", "left", "right"])), max_size=16))
def test_no_sequence_of_texts_breaks_the_level(texts):
    env = opened()
    for text in texts:
        step = env.step(text)
        position = env.snapshot().position
        assert len(set(position.boxes)) == 2
        assert position.player not in position.boxes
        assert set(env.admissible()) <= {"up", "down", "left", "right"}
        assert step.valid or step.observation.startswith(("You cannot go", NO_ACTION))
        if step.done:
            break


# ---------------------------------------------------------------- dead positions


CORNERED = ["#######", "#@$ . #", "# $.  #", "#     #", "#######"]


def test_after_a_push_into_a_corner_play_goes_on_and_nothing_is_said_of_it():
    env = opened("right", "right", rows=CORNERED)
    assert (env.progress(), env.distance() > 0) == (0.5, True)
    step = env.step("right")
    assert (env.distance(), env.oracle(), env.best_action(), env.progress()) == (-1, [], None, 0.0)
    assert step == (
        "# # # # # # #\n# _ _ _ S X #\n# _ X O _ _ #\n# _ _ _ _ _ #\n# # # # # # #",
        0.0,
        False,
        False,
        True,
    )
    while not step.done:
        step = env.step(env.admissible()[0])
    assert not step.success
    assert env.snapshot().turns == 30


def test_progress_is_the_share_of_boxes_on_targets_also_where_the_level_is_lost():
    env = opened("right", "right", "down", "left", rows=["#######", "#@$ . #", "#  $. #", "#     #", "#######"])
    assert (env.progress(), env.distance()) == (0.5, -1)


def test_turns_that_are_left_do_not_count_for_the_distance():
    env = opened("up", "up", horizon=16)
    assert env.distance() == opened().distance()


# ---------------------------------------------------------------- settings and damaged tasks


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"horizon": 12}, r"an optimal plan may take 16 actions \(length\), which do not fit into 12"),
        ({"boxes": ()}, r"boxes: one or more numbers within 1\.\.4, each once, not \[\]"),
        ({"boxes": (1, 1)}, r"boxes: .*not \[1, 1\]"),
        ({"boxes": (9,)}, r"boxes: .*not \[9\]"),
        ({"sizes": (3,)}, r"sizes: one or more numbers within 5\.\.9, each once, not \[3\]"),
        ({"length": (8, 4)}, r"length: \[fewest, most\], at least 1, not \[8, 4\]"),
        ({"view": "image"}, "view"),
        ({"levels": 3}, "levels"),
    ],
)
def test_settings_that_no_level_can_have_are_refused_by_name(given, said):
    with pytest.raises(ValueError, match=said):
        Settings(**given)


def test_a_family_that_has_no_such_levels_is_named():
    with pytest.raises(UserError, match=r"found no new level of the family '1 box 5x5' for the split 'train'"):
        make_tasks("train", 1, 0, Settings(boxes=(1,), sizes=(5,), length=(29, 30)))


@pytest.mark.parametrize("game", ['{"rows": ["#####", "#@ .#", "#####"]}', '{"rows": 5}', '["rows"]', "#####"])
def test_a_damaged_level_of_the_table_is_named(game):
    with pytest.raises(UserError, match=r"a Sokoban level in the tasks table is damaged"):
        open_task({"game": game}, Settings())


# ---------------------------------------------------------------- the rule judge


def roles(rows, actions, view) -> str:
    env, grammar = opened(rows=rows, view=view), envs.load("sokoban").grammar()
    turns = [grammar.read_turn(Turn(action, env.step(action).observation)) for action in actions]
    return "".join(
        grammar.judge(grammar.read_goal("push the box onto the target."), turns[:n], turn, ())[0]
        for n, turn in enumerate(turns)
    )


ROOM = ["#######", "#     #", "#@ $ .#", "#     #", "#######"]


@pytest.mark.parametrize("view", VIEWS)
@pytest.mark.parametrize(
    ("actions", "found"),
    [
        pytest.param(["right", "right", "right"], "DDD", id="behind the box, pushed nearer, pushed onto the target"),
        pytest.param(["left", "left", "up", "left"], "NRNN", id="a wall, again, a walk, another wall"),
        pytest.param(["up", "down", "up"], "NNR", id="back where an earlier turn led"),
        pytest.param(["jump", "jump"], "NR", id="no action"),
        pytest.param(["up", "right", "right", "right", "down", "left"], "NNNNNN", id="pushed away"),
    ],
)
def test_the_rules_of_the_judge(view, actions, found):
    assert roles(ROOM, actions, view) == found


@pytest.mark.parametrize(
    ("view", "found"), [("grid", "NRNNN"), ("both", "NRNNN"), ("relations", "NNNNR")], ids=["grid", "both", "relations"]
)
def test_the_grid_tells_of_every_dead_position_and_relations_of_corners(view, found):
    """The first push is against a wall without a target, the second one along it into the corner."""
    rows = ["#####", "#@  #", "# $.#", "#   #", "#####"]
    actions = ["right", "down", "right", "down", "left"]
    assert opened(*actions[:2], rows=rows).distance() == -1
    assert roles(rows, actions, view) == found


@pytest.mark.parametrize("view", VIEWS)
def test_a_push_in_the_first_turn_is_judged_by_where_the_box_came_from(view):
    assert roles(["######", "#@$ .#", "#    #", "######"], ["right"], view) == "D"
    assert roles(["#######", "#.  $@#", "#     #", "#######"], ["left"], view) == "D"
    assert roles(["#######", "#   $.#", "#   @ #", "#     #", "#     #", "#######"], ["left", "up"], view)[0] == "N"


def test_any_view_reads_as_the_same_boxes():
    grammar = envs.load("sokoban").grammar()
    read_as = [grammar.read_turn(Turn("up", show(*LEVEL))).boxes for show in (grid, relations)]
    assert read_as[0] == read_as[1]
    assert len(read_as[0]) == 2


def test_the_task_s_row_has_the_level_in_the_common_format():
    row = make_tasks("train", 1, 0, Settings())[0]
    rows = json.loads(row["game"])["rows"]
    assert sum(line.count("@") + line.count("+") for line in rows) == 1
    assert sum(line.count("$") for line in rows) == 1
    assert row["family"] == "1 box 6x6"
    env = open_task(row, Settings())
    env.reset()
    assert random_command(env, type("Zero", (), {"random": lambda _: 0.0})()) in env.admissible()
