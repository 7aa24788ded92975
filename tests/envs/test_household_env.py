"""The environment keeps the promises of the protocol."""

from __future__ import annotations

import random

import pytest

from turncredit.envs.household import Settings, make_tasks, open_task
from turncredit.envs.household.goals import FAMILIES

SETTINGS = Settings(receptacles=(5, 8), distractors=(3, 8), horizon=25)
ROWS = make_tasks("train", 12, 0, SETTINGS)


def opened(row=ROWS[0], settings=SETTINGS):
    env = open_task(row, settings)
    env.reset()
    return env


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["task_id"])
def test_the_oracle_wins_in_the_optimal_number_of_commands(row):
    env = opened(row)
    commands = env.oracle()
    assert len(commands) == env.distance() == row["optimal_length"]
    steps = [env.step(command) for command in commands]
    assert [s.success for s in steps] == [False] * (len(steps) - 1) + [True]
    assert sum(s.reward for s in steps) == 1.0
    assert steps[-1].done
    assert env.progress() == 1.0
    assert env.oracle() == []


def test_only_the_winning_step_has_a_reward_and_its_size_is_a_setting():
    env = opened(settings=SETTINGS.model_copy(update={"success_reward": 10.0}))
    rewards = [env.step(command).reward for command in env.oracle()]
    assert rewards == [0.0] * (len(rewards) - 1) + [10.0]
    with pytest.raises(ValueError, match="greater than 0"):
        Settings(success_reward=0)


def test_the_first_observation_is_the_room_and_the_intro_has_banner_and_task_too():
    env = open_task(ROWS[0], SETTINGS)
    room = env.reset()
    assert room.startswith("You are in the middle of a room. Looking quickly around you, you see a ")
    assert env.intro == f"-= Welcome to TextWorld, ALFRED! =-\n\n{room}\n\nYour task is to: {env.goal}"
    assert env.goal == ROWS[0]["goal"]


def test_what_is_no_command_is_refused():
    env = opened()
    steps = [env.step(command) for command in ("", "look around", "look!", "go to moon 1", "take moon 1 from sky 1")]
    assert {(step.valid, step.observation) for step in steps} == {(False, "Nothing happens.")}


def test_commands_are_understood_in_upper_case_and_with_more_spaces():
    assert opened().step("  LOOK ") == opened().step("look")
    go = next(command for command in opened().admissible() if command.startswith("go to "))
    assert opened().step(go.replace("go to", "Go  To").upper()) == opened().step(go)


def test_stepping_before_a_reset_is_an_error():
    with pytest.raises(RuntimeError, match="reset"):
        open_task(ROWS[0], SETTINGS).step("look")


@pytest.mark.parametrize("family", FAMILIES)
def test_progress_is_one_exactly_when_won_and_the_distance_is_then_zero(family):
    settings = SETTINGS.model_copy(update={"families": (family,), "horizon": 200})
    seen = set()
    for n, row in enumerate(make_tasks("train", 6, 1, settings)):
        env, rng = opened(row, settings), random.Random(n)
        for _ in range(150):
            command = rng.choice(env.oracle()[:1]) if rng.random() < 0.5 else rng.choice(env.admissible())
            step = env.step(command)
            seen.add(env.progress())
            assert (env.progress() == 1.0) == step.success == (env.distance() == 0)
            if step.done:
                break
    expected = {"pick": {0, 1}, "look": {0, 1 / 3, 2 / 3, 1}}.get(family, {0, 0.5, 1})
    assert seen == expected


def test_no_random_walk_leads_into_a_dead_end_of_a_generated_game():
    settings = SETTINGS.model_copy(update={"horizon": 60})
    for n, row in enumerate(ROWS):
        env, rng = opened(row, settings), random.Random(n)
        for _ in range(60):
            if env.step(rng.choice(env.admissible())).done:
                break
            assert env.distance() > 0
